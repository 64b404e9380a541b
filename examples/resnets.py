"""Training of three sizes of ResNet, as in the study of training on MIG slices, in plain PyTorch on made-up pictures.

    python examples/resnets.py small        # ResNet-26 on 32 x 32 pictures
    python examples/resnets.py medium       # ResNet-50 on 64 x 64
    python examples/resnets.py large        # ResNet-152 on 224 x 224, on a CPU 64 x 64

It trains until it is stopped and reports every step, for `gpuloom measure examples/mig_study.yaml`.

On gpuloom's stand-in for GPUs it trains nothing: it waits as long as MISO's authors published for another workload,
`LIKE`, on that slice of an A100. Of the study we have what its sizes gain and not its times, so these workloads were
picked for gaining about as much. A campaign there shows that gpuloom concludes from such times what the study did; it
says nothing about ResNets, and copies on the stand-in cannot slow each other down.
"""

import argparse
import os
import runpy
import time
from pathlib import Path
from typing import Any

from gpuloom.train import on_stop, report

PICTURES = {"small": (32, 32), "medium": (64, 64), "large": (224, 64)}
"""Pixels to a side, on a GPU and on a CPU."""
BATCH, CPU_BATCH = 32, {"small": 32, "medium": 2, "large": 2}
"""On a CPU a step should take some 70 ms or more: a quota is a duty cycle, and shorter steps slip through it."""
CLASSES = 100
LIKE = {"small": "resnet 128", "medium": "transformer 64", "large": "transformer 128"}
"""The first does three times the work in seven slices; the others gain 4 and 2 %, and fit 2g and 3g at the least."""


def wait_instead(size: str) -> None:
    """Every step is told with the time at which it was due: how late a busy host wakes up is not the device's doing."""
    from gpuloom.work.measured.figures import load_figures

    like, stop = LIKE[size], list[bool]()
    on_stop(lambda: stop.append(True))
    job = runpy.run_path(str(Path(__file__).with_name("measured_job.py")))
    connection, neighbours = job["occupy_the_device"](), job["Neighbours"]()
    fastest_s = load_figures().workloads[like].batch_s / float(os.environ.get("GPULOOM_PACE", "1"))
    step, due_s = 0, time.monotonic()
    report(step, at_monotonic_s=due_s)
    while not stop:
        due_s += fastest_s / job["speed_here"](like, neighbours())
        time.sleep(max(due_s - time.monotonic(), 0.0))
        step += 1
        report(step, at_monotonic_s=due_s)
    del connection


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
    batch = batch or (BATCH if device == "cuda" else CPU_BATCH[size])
    pictures = torch.randn(4 * batch, 3, side, side, device=device)
    wanted = torch.randint(CLASSES, (len(pictures),), device=device)
    model = network(size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    report(step)
    while not stop:
        chosen = torch.arange(batch, device=device) + step % 4 * batch
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
    options.add_argument("--batch", type=int, help="Pictures a step; 32, but of medium and large on a CPU 2.")
    wish = options.parse_args()
    if "GPULOOM_STANDIN_STATE" in os.environ and "GPULOOM_DEVICE" not in os.environ:
        wait_instead(wish.size)
    else:
        train(wish.size, wish.batch)


if __name__ == "__main__":
    main()
