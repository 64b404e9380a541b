"""A PyTorch training that can be stopped at any batch and goes on as if it had not been: weights, momentum, data order.

python examples/torch_job.py --steps 2000
"""

import argparse

import torch
from torch import nn

from gpuloom.train import checkpoint_dir, on_stop, report, resuming

SAMPLES, BATCH = 4096, 64
options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--steps", type=int, default=2000)
options.add_argument("--save-every", type=int, default=200)
wish = options.parse_args()
stop: list[bool] = []
on_stop(lambda: stop.append(True))

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
inputs = torch.randn(SAMPLES, 32).to(device)
wanted = inputs.pow(2).sum(1, keepdim=True).sin()
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
saved, step = checkpoint_dir() / "checkpoint.pt", 0
if resuming() and saved.exists():
    state = torch.load(saved, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]


def save() -> None:
    draft = saved.with_suffix(".draft")  # whoever is killed while saving keeps the last checkpoint
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, draft)
    draft.replace(saved)


report(step)
while step < wish.steps and not stop:
    epoch, batch = divmod(step, SAMPLES // BATCH)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))  # known from the step alone
    chosen = order[batch * BATCH : (batch + 1) * BATCH].to(device)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[chosen]), wanted[chosen]).backward()
    optimizer.step()
    step += 1
    report(step)
    if step % wish.save_every == 0:
        save()
save()
