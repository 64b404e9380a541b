"""Three models in plain PyTorch and the elastic job that trains one, for elastic_rescale.py:

    python benchmarks/elastic_models.py cnn FOLDER

Without arguments it is warm: it has imported everything, and forks a job for every line that it reads,
`{"model": "cnn", "folder": "…", "env": {…}}`; `{"wait": PID}` waits for one.

Rank 0 writes a line a step: when it began and ended, on the clock that all processes share.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from gpuloom.train import elastic
from gpuloom.train.elastic.launch import import_what_workers_need

BATCH = 24


def cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for given, made in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(given, made, 3, 2, 1), nn.BatchNorm2d(made), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions and a way around them (He et al. 2016)."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU(),
            nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made),
        )  # fmt: skip
        same = stride == 1 and given == made
        around = [nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made)]
        self.around = nn.Identity() if same else nn.Sequential(*around)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(inputs) + self.around(inputs))


def resnet18() -> nn.Module:
    blocks: list[nn.Module] = []
    width = 64
    for made in (64, 128, 256, 512):
        blocks += [Block(width, made, 1 if made == width else 2), Block(made, made, 1)]
        width = made
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Transformer(nn.Module):  # type: ignore[misc]
    """Four layers over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(96, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = inputs.transpose(1, 2).flatten(2)
        return self.head(self.layers(self.embed(rows)).mean(1))


MODELS = {"cnn": cnn, "resnet18": resnet18, "transformer": Transformer}


def run(name: str, folder: Path) -> None:
    def train(worker: elastic.Worker) -> None:
        torch.manual_seed(1)
        dataset = TensorDataset(torch.randn(960, 3, 32, 32), torch.randint(0, 10, (960,)))
        model = MODELS[name]()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        job = worker.wrap(model, optimiser, dataset)
        for images, labels in job.batches(epochs=10**6):
            began = time.monotonic()
            loss = nn.functional.cross_entropy(model(images), labels)
            if job.backward(loss) and job.rank == 0:
                row = {"step": job.step, "round": job.round, "began": began, "ended": time.monotonic()}
                with (folder / "steps").open("a") as steps:
                    steps.write(json.dumps(row) + "\n")

    elastic.run(train, batch=BATCH, max_batch=480, checkpoint_s=2.0)


def stay_warm() -> None:
    import_what_workers_need()
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            os.environ.update(asked["env"])
            try:
                run(asked["model"], Path(asked["folder"]))
            except SystemExit as error:
                os._exit(int(error.code or 0))
            finally:
                os._exit(1)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2])) if len(sys.argv) > 1 else stay_warm()
