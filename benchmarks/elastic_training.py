"""A real elastic training of one of three kinds, for elastic_loop.py; also runs alone:

    python benchmarks/elastic_training.py cnn --steps 20 --workers 2

Its batch stays as it is, so that as many steps are as much work, however many workers share them.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset

from elastic_models import Transformer, cnn
from gpuloom.train import elastic

SAMPLES = 1536
BATCH = {"cnn": 768, "transformer": 48, "mlp": 384}
"""A step takes about a tenth of a second of CPU time: much longer than the kernel's periods."""


def mlp() -> nn.Module:
    """Three million weights: workers have much to tell each other."""
    layers = [nn.Linear(3072, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


MODELS = {"cnn": cnn, "transformer": Transformer, "mlp": mlp}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=[*MODELS])
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--workers", type=int)
    wish = options.parse_args()

    def train(worker: elastic.Worker) -> None:
        torch.manual_seed(1)
        dataset = TensorDataset(torch.randn(SAMPLES, 3, 32, 32), torch.randint(0, 10, (SAMPLES,)))
        model = MODELS[wish.kind]()
        job = worker.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), dataset)
        for images, labels in job.batches(epochs=10**6):
            if job.step + 1 >= wish.steps:
                job.finish()
            job.backward(nn.functional.cross_entropy(model(images), labels))

    elastic.run(train, batch=BATCH[wish.kind], workers=wish.workers)


if __name__ == "__main__":
    main()
