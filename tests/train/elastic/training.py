"""The training that the tests and the benchmark drive: every visit of a sample leaves a trace in the model itself.

The parameter `visits` grows by exactly one for every sample whenever it is visited, whatever the batch: with a linear
learning rate, B0 * (B/B0) * 1/B = 1. So nothing but the final state is needed to see that none was lost or doubled.
Needs PyTorch: imported in the spawner's processes only.
"""

import json
import os
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gpuloom.train import elastic
from gpuloom.train.elastic.steps.sampler import permutation, step_end

FEATURES, RATE = 6, 0.004
"""Small enough to converge at every batch: differences of rounding then do not grow with the number of steps."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a test asks of a training."""

    epochs: int = 4
    samples: int = 203
    batch: int = 16
    norm: str = "none"
    dropout: float = 0.0
    max_local_batch: int | None = None
    timeout_s: float = 5.0
    checkpoint_s: float = 300.0
    pace_s: float = 0.0
    """How long a step takes at least, so that there is time to interfere."""
    fail_at: int | None = None
    """The step at which a worker raises an exception."""
    stumble_at: int | None = None
    """The step at which a worker raises one, once in the life of the job."""
    child: bool = False
    """Whether each worker starts a process that outlives it, until there is enough."""
    drop_last: bool = False
    fail_on: str | None = None
    """The device on which a worker raises one before it could train."""
    workers: int | None = None
    adam: bool = False
    finish_at: int | None = None
    resume: bool | None = None
    seed: int = 0
    nothing: bool = False
    """Whether to return at once."""
    odd_on: str | None = None
    """The device on which a worker is `odd`."""
    odd: str = ""
    """`longer`: its data set; `empty`: it; `stubborn`: its state, which cannot be put back."""
    goes_on: bool = False
    """Whether the script goes on: when it is told so it resumes, which is over at once, and becomes another program."""


class Own:
    """A state that may not be put back."""

    def __init__(self, stubborn: bool) -> None:
        self._stubborn = stubborn

    def state_dict(self) -> dict[str, Any]:
        return {"seen": 1}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        if self._stubborn:
            raise RuntimeError(f"{kept} cannot be put back")


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self, wish: Wish) -> None:
        super().__init__()
        norms = {"none": nn.Identity, "plain": nn.BatchNorm1d, "sync": elastic.SyncBatchNorm}
        norm = nn.Identity() if wish.norm == "none" else norms[wish.norm](8)
        self.net = nn.Sequential(nn.Linear(FEATURES, 8), norm, nn.Tanh(), nn.Dropout(wish.dropout), nn.Linear(8, 1))
        self.visits = nn.Parameter(torch.zeros(wish.samples))


def parts(wish: Wish) -> tuple[torch.Tensor, torch.Tensor, Net, Any]:
    torch.manual_seed(3)
    inputs = torch.randn(wish.samples, FEATURES, dtype=torch.float64)
    model = Net(wish).double()
    groups = [
        {"params": list(model.net.parameters()), "lr": RATE, "momentum": 0.0 if wish.adam else 0.9},
        {"params": [model.visits], "lr": float(wish.batch)},
    ]
    return inputs, inputs.square().sum(1, keepdim=True).sin(), model, torch.optim.SGD(groups)


def loss_of(model: Net, given: torch.Tensor, wanted: torch.Tensor, chosen: torch.Tensor, share: float) -> torch.Tensor:
    return nn.functional.mse_loss(model.net(given), wanted) - model.visits[chosen].mean() * share


def checksum(model: Net, optimiser: Any) -> int:
    tensors = [*model.state_dict().values(), *(one for kept in optimiser.state.values() for one in kept.values())]
    found = 0
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            found = zlib.crc32(tensor.detach().numpy().tobytes(), found)
    return found


def start_child(folder: Path, enough: Path) -> None:
    """It has whatever its worker has open."""
    if os.fork() == 0:
        (folder / f"child-{os.getpid()}").touch()
        while not enough.exists():
            time.sleep(0.02)
        os._exit(0)


def begin(wish: Wish, folder: Path) -> None:
    """An elastic job. Each worker's trace is a file of its own."""

    def train(worker: elastic.Worker) -> None:
        if wish.nothing:
            return
        if worker.seat.device == wish.fail_on:
            raise RuntimeError("this device is not to be used")
        inputs, wanted, model, optimiser = parts(wish)
        odd = wish.odd if worker.seat.device == wish.odd_on else ""
        rows = {"longer": 2, "empty": 0}.get(odd, 1)
        tensors = (one.repeat(rows, *[1] * (one.dim() - 1)) for one in (inputs, wanted, torch.arange(wish.samples)))
        own = Own(stubborn=odd == "stubborn")
        job = worker.wrap(model, optimiser, torch.utils.data.TensorDataset(*tensors), state=own)
        enough = folder / "enough"  # whoever drives it has seen what it wanted
        if wish.child:
            start_child(folder, enough)
        with (folder / f"trace-{os.getpid()}").open("a", buffering=1) as trace:
            for given, goal, chosen in job.batches(epochs=wish.epochs):
                began, step = time.monotonic(), job.step
                if step == wish.fail_at:
                    raise RuntimeError("a bug in the training")
                if step == wish.stumble_at and not (folder / "stumbled").exists():
                    (folder / "stumbled").touch()
                    raise RuntimeError("a stone in the way")
                if step == wish.finish_at or (job.rank == 0 and enough.exists()):
                    job.finish()
                batch, size, epoch, counts = job.batch, job.step_samples, job.epoch, job.counts
                loss = loss_of(model, given, goal, chosen, size / batch)
                while time.monotonic() < began + wish.pace_s:
                    time.sleep(wish.pace_s / 10)
                if job.backward(loss):
                    row = {
                        "step": step, "round": job.round, "rank": job.rank, "batch": batch, "size": size,
                        "epoch": epoch, "crc": checksum(model, optimiser), "began": began, "ended": time.monotonic(),
                        "counts": counts,
                    }  # fmt: skip
                    trace.write(json.dumps(row) + "\n")
        if job.rank == 0:
            torch.save({"model": model.state_dict(), "step": job.step}, folder / "final.pt")

    elastic.run(
        train, batch=wish.batch, max_batch=64, max_local_batch=wish.max_local_batch, timeout_s=wish.timeout_s,
        checkpoint_s=wish.checkpoint_s, scaling="linear", workers=wish.workers, resume=wish.resume,
        drop_last=wish.drop_last, seed=wish.seed,
    )  # fmt: skip
    if wish.goes_on and not (folder / "over").exists():
        go_on(wish, folder)


def go_on(wish: Wish, folder: Path) -> None:
    """What a script may do when its training is over."""
    (folder / "over").touch()
    while not (folder / "again").exists():
        time.sleep(0.01)
    begin(replace(wish, resume=True), folder)
    os.execvp("sh", ["sh", "-c", 'touch "$0/other"; while [ ! -e "$0/end" ]; do sleep 0.02; done', str(folder)])


def compare(wish: Wish, folder: Path) -> dict[str, Any]:
    """The final state against a plain loop of one process that takes the same batches."""
    rows = [json.loads(line) for path in folder.glob("trace-*") for line in path.read_text().splitlines()]
    last = {row["step"]: row for row in sorted(rows, key=lambda row: (row["round"], row["ended"]))}
    crcs: dict[tuple[int, int], set[int]] = {}
    for row in rows:
        crcs.setdefault((row["round"], row["step"]), set()).add(row["crc"])
    # Alone, a plain batch norm sees the whole batch.
    inputs, wanted, model, optimiser = parts(replace(wish, norm="plain") if wish.norm == "sync" else wish)
    position = epoch = 0
    final = torch.load(folder / "final.pt", weights_only=True)
    for step in range(final["step"]):
        batch = last[step]["batch"]
        end = step_end(wish.samples, batch, position, drop_last=False)
        assert end is not None
        chosen = permutation(wish.samples, 0, epoch)[position:end]
        optimiser.zero_grad()
        loss_of(model, inputs[chosen], wanted[chosen], chosen, len(chosen) / batch).backward()
        for group, rate in zip(optimiser.param_groups, (RATE, float(wish.batch)), strict=True):
            group["lr"] = rate * batch / wish.batch
        optimiser.step()
        position = end
        if position == wish.samples:
            position, epoch = 0, epoch + 1
    theirs, ours = final["model"], model.state_dict()
    return {
        "steps": final["step"],
        "visits": sorted({round(value, 9) for value in theirs["visits"].tolist()}),
        "wrong_visits": int(((theirs["visits"] - ours["visits"]).abs() > 1e-6).sum()),
        "difference": max(float((theirs[name] - ours[name]).abs().max()) for name in ours if name.startswith("net")),
        "weights_difference": max(
            float((theirs[name] - ours[name]).abs().max()) for name, _ in model.named_parameters() if "net" in name
        ),
        "torn": sum(len(found) > 1 for found in crcs.values()),
        "rounds": len({row["round"] for row in rows}),
        "workers": max(row["rank"] for row in rows) + 1,
        "batches": sorted({row["batch"] for row in rows}),
    }
