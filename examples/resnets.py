"""Training of three sizes of ResNet, as in the study of training on MIG slices, in plain PyTorch on made-up pictures.

    python examples/resnets.py small        # ResNet-26 on 32 x 32 pictures
    python examples/resnets.py medium       # ResNet-50 on 64 x 64
    python examples/resnets.py large        # ResNet-152 on 224 x 224, on a CPU 64 x 64

It trains until it is stopped and reports every step, for `gpuloom measure examples/mig_study.yaml`. On gpuloom's
stand-in for GPUs it only waits, as long as was measured for a workload of such a kind on a slice of an A100.
"""

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from gpuloom.train import on_stop, report

PICTURES = {"small": (32, 32), "medium": (64, 64), "large": (224, 64)}
"""Pixels to a side, on a GPU and on a CPU."""
BATCH = {"cuda": 32, "cpu": 2}
CLASSES = 100
LIKE = {"small": "resnet 128", "medium": "transformer 32", "large": "transformer 128"}
"""Of the workloads that ship with their speeds on A100 slices, those that gain as these did in the study."""


def wait_instead(size: str) -> None:
    script = Path(__file__).with_name("measured_job.py")
    sys.argv = [str(script), "--workload", LIKE[size], "--steps", str(10**9), "--save-every", str(10**9)]
    runpy.run_path(str(script), run_name="__main__")


def network(size: str) -> Any:
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]  # unknown to the type checker
        """Two convolutions, or three of which the outer ones are narrow, beside a short cut."""

        def __init__(self, before: int, width: int, after: int, stride: int) -> None:
            super().__init__()
            narrow = after != width
            sizes = ((before, width, 1), (width, width, 3), (width, after, 1)) if narrow else (
                (before, width, 3), (width, after, 3),
            )  # fmt: skip
            layers: list[nn.Module] = []
            for at, (wide, next_wide, kernel) in enumerate(sizes):
                step = stride if at == len(sizes) - 2 else 1
                layers += [nn.Conv2d(wide, next_wide, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(next_wide)]
                layers += [nn.ReLU(inplace=True)] if at < len(sizes) - 1 else []
            self.body = nn.Sequential(*layers)
            self.short = nn.Identity()
            if stride > 1 or before != after:
                self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, pictures: Any) -> Any:
            return nn.functional.relu(self.body(pictures) + self.short(pictures))

    small = size == "small"
    depths = {"small": (4, 4, 4), "medium": (3, 4, 6, 3), "large": (3, 8, 36, 3)}[size]
    first, wider = (16, 1) if small else (64, 4)
    kernel, stride = (3, 1) if small else (7, 2)
    layers: list[nn.Module] = [nn.Conv2d(3, first, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(first)]
    layers += [nn.ReLU(inplace=True)] if small else [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    before = first
    for stage, depth in enumerate(depths):
        width = first << stage
        for number in range(depth):
            layers.append(Block(before, width, width * wider, 2 if stage and not number else 1))
            before = width * wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


def train(size: str, batch: int | None) -> None:
    import torch

    stop: list[bool] = []
    on_stop(lambda: stop.append(True))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    side = PICTURES[size][device == "cpu"]
    pictures = torch.randn(4 * (batch or BATCH[device]), 3, side, side, device=device)
    wanted = torch.randint(CLASSES, (len(pictures),), device=device)
    model = network(size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    report(step)
    while not stop:
        chosen = torch.arange(batch or BATCH[device], device=device) + step % 4 * (batch or BATCH[device])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures[chosen]), wanted[chosen]).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()  # a step is over when its work is, not when that has been asked for
        step += 1
        report(step)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("size", choices=[*PICTURES])
    options.add_argument("--batch", type=int, help="Pictures a step; 32 on a GPU, 2 on a CPU.")
    wish = options.parse_args()
    if "GPULOOM_STANDIN_STATE" in os.environ and "GPULOOM_DEVICE" not in os.environ:
        wait_instead(wish.size)
    else:
        train(wish.size, wish.batch)


if __name__ == "__main__":
    main()
