"""A job that behaves like a measured workload: it waits as long for each batch as the shipped figures say.

It keeps gpuloom's contract for jobs: reports, saves when asked to stop, resumes. Its "training" is a counter, so that a
lost or repeated batch can be seen: every batch and every checkpoint is a line in `steps.log`, next to the checkpoint.

    python examples/measured_job.py --workload "resnet 128" --steps 2000
"""

import argparse
import ctypes
import json
import os
import socket
import sys
import time
from itertools import pairwise
from pathlib import Path

from gpuloom.train import checkpoint_dir, on_stop, report, resuming
from gpuloom.work.measured.figures import WHOLE, load_figures

SLICES = 7
LOOK_EVERY_S = 0.1
LOOK_EVERY = 10
"""Steps between two looks at whether the device is still there."""


def speed_here(workload: str, neighbours: int) -> float:
    """Relative to the whole GPU; under MPS, what the slices say about its part of the SMs: its share at most."""
    speeds = load_figures().workloads[workload].speeds
    profile = os.environ.get("GPULOOM_PROFILE", "whole")
    if profile != "whole" and profile not in speeds:  # elsewhere it is as fast as on the A100's slice of that size
        profile = next((name for name in speeds if name[0] == profile[0]), profile)
    share = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")) / 100
    if profile != "whole" and profile not in speeds:
        sys.exit(f"out of memory: {workload} does not fit on {profile}")
    points = [(0.0, 0.0), *sorted((int(name[0]) / SLICES, speed) for name, speed in speeds.items())]
    part = min(share, 1 / (neighbours + 1))
    (x0, y0), (x1, y1) = next((low, high) for low, high in pairwise(points) if part <= high[0])
    return speeds[WHOLE if profile == "whole" else profile] * (y0 + (y1 - y0) * (part - x0) / (x1 - x0))


class Neighbours:
    """How many other clients the MPS daemon has; looked up every now and then."""

    def __init__(self) -> None:
        self.count, self.until = 0, 0.0

    def __call__(self) -> int:
        pipes = mps_pipes()
        if pipes is not None and time.monotonic() >= self.until:
            servers = ask_mps(pipes, "get_server_list").split()
            clients = [client for server in servers for client in ask_mps(pipes, f"get_client_list {server}").split()]
            self.count, self.until = max(len(clients) - 1, 0), time.monotonic() + LOOK_EVERY_S
        return self.count


def mps_pipes() -> str | None:
    """Where its MPS daemon listens; None if there is none, and the device is its own."""
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    return pipes if Path(pipes, "control").exists() else None


def ask_mps(pipes: str, command: str) -> str:
    """As the stand-in's control tool does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{pipes}/control")
        connection.sendall(command.encode())
        return connection.recv(4096).decode()


def occupy_the_device() -> object:
    """On the stand-in for a GPU: be seen as its user, as a CUDA context would be. Keep what this returns."""
    pipes = mps_pipes()
    if "GPULOOM_STANDIN_STATE" not in os.environ or "GPULOOM_DEVICE" in os.environ:
        return None
    if pipes is None:
        for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","):
            if ctypes.CDLL("libnvidia-ml.so.1").standinUse(device.encode()) != 0:
                sys.exit(f"no such device: {device}")
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{pipes}/control")
    share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")
    connection.sendall(f"client {os.getpid()} {os.getuid()} {share} none\n".encode())
    answer = connection.recv(4096).decode()
    if not answer.startswith("admitted"):
        sys.exit(f"MPS: {answer}")
    return connection


def device_is_there() -> bool:
    """On the stand-in: what a program notices at its next kernel when its GPU has fallen off the bus."""
    if "GPULOOM_STANDIN_STATE" not in os.environ or "GPULOOM_DEVICE" in os.environ:
        return True
    standin = ctypes.CDLL("libnvidia-ml.so.1")
    return all(standin.standinHas(device.encode()) for device in os.environ["CUDA_VISIBLE_DEVICES"].split(","))


class Training:
    def __init__(self, folder: Path) -> None:
        self.saved, self.steps = folder / "checkpoint.json", folder / "steps.log"
        self.done = json.loads(self.saved.read_text())["done"] if resuming() and self.saved.exists() else 0

    def save(self) -> None:
        draft = self.saved.with_suffix(".draft")
        draft.write_text(json.dumps({"done": self.done}))
        self._log(f"saving {self.done}")
        draft.replace(self.saved)
        self._log(f"saved {self.done}")

    def step(self) -> None:
        self.done += 1
        self._log(f"{self.done}")

    def _log(self, line: str) -> None:
        with self.steps.open("a") as log:
            log.write(f"{line}\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workload", default="resnet 128")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--save-every", type=int, default=100)
    options.add_argument("--die-at", type=int, help="Exit with 1 at this step, every time: for rehearsing failures.")
    options.add_argument("--ignore-sigterm", action="store_true", help="Do not stop when asked: likewise.")
    wish = options.parse_args()
    stop = False

    def ask() -> None:
        nonlocal stop
        stop = not wish.ignore_sigterm

    on_stop(ask)
    connection = occupy_the_device()
    training = Training(checkpoint_dir())
    pace = float(os.environ.get("GPULOOM_PACE", "1"))
    alone_s = load_figures().workloads[wish.workload].batch_s / pace
    neighbours = Neighbours()
    report(training.done)
    while training.done < wish.steps and not stop:
        time.sleep(alone_s / speed_here(wish.workload, neighbours()))
        training.step()
        report(training.done)
        if training.done % LOOK_EVERY == 0 and not device_is_there():
            sys.exit("CUDA error: the GPU is lost")
        if training.done == wish.die_at:
            sys.exit(1)
        if training.done % wish.save_every == 0:
            training.save()
    training.save()
    del connection


if __name__ == "__main__":
    main()
