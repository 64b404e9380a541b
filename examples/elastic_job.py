"""A PyTorch training that changes its number of workers and its batch without a restart. Also runs alone:

python examples/elastic_job.py --workers 2 --epochs 3
"""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset

from gpuloom.train import elastic

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--epochs", type=int, default=20)
options.add_argument("--workers", type=int)
wish = options.parse_args()


def train(worker: elastic.Worker) -> None:
    torch.manual_seed(1)
    inputs = torch.randn(4096, 32)
    dataset = TensorDataset(inputs, inputs.pow(2).sum(1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).to(worker.device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    job = worker.wrap(model, optimiser, dataset)
    for epoch in job.epochs(wish.epochs):
        for given, wanted in job.batches():
            loss = nn.functional.mse_loss(model(given), wanted)
            job.backward(loss)
        if job.rank == 0:
            print(f"epoch {epoch}: {job.workers} workers, batch {job.batch}, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    elastic.run(train, batch=64, max_batch=1024, max_local_batch=256, workers=wish.workers)
