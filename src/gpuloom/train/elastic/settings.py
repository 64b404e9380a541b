"""What a user chooses once, and what the environment says at launch. Knows the variables' names; starts nothing."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

MIG = "MIG-"
LONGEST_S = 1e7
"""Of a time-out: what is longer does not fit where PyTorch counts it."""


class ElasticError(Exception):
    """Something the user gave is wrong: one sentence. (Jobs import this without gpuloom.errors.)"""


class Choice(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ElasticError(f"{cls.__name__.lower()} is {value!r}; one of {', '.join(cls)} is needed")


class Scaling(Choice):
    """How the learning rate follows the batch."""

    AUTO = "auto"
    """Square root for optimisers that divide by a running square of the gradient (Adam and its kin), else linear."""
    LINEAR = "linear"
    SQRT = "sqrt"
    GAIN = "gain"
    """AdaScale: by as much as a step is worth, from the measured noise of the gradient; never more than linear."""
    NONE = "none"


class Every(Choice):
    """When a learning rate scheduler takes a step of its own."""

    EPOCH = "epoch"
    STEP = "step"
    PROGRESS = "progress"
    """Once for each step of the initial batch that the steps taken were worth."""


def check_whole(name: str, value: Any, least: int | None = None) -> None:
    """What the user gave is a whole number, and no smaller."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ElasticError(f"{name} is {value!r}; a whole number is needed")
    if least is not None and value < least:
        raise ElasticError(f"{name} is {value}; at least {least} is needed")


def _check_seconds(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ElasticError(f"{name} is {value!r}; a number of seconds is needed")
    if value <= 0:
        raise ElasticError(f"{name} is {value}; it must be positive")


@dataclass(frozen=True, slots=True)
class Settings:
    """All that `run` takes, checked."""

    batch: int
    max_batch: int | None = None
    max_local_batch: int | None = None
    seed: int = 0
    scaling: Scaling = Scaling.AUTO
    warmup_steps: int = 0
    drop_last: bool = False
    timeout_s: float = 60.0
    checkpoint_s: float = 300.0
    checkpoint_dir: Path = Path()
    one_thread: bool = False
    """Whether PyTorch must not use several threads in a worker, whatever the environment says."""
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        check_whole("batch", self.batch, 1)
        for name in ("max_batch", "max_local_batch"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed)
        check_whole("warmup_steps", self.warmup_steps, 0)
        for name in ("timeout_s", "checkpoint_s"):
            _check_seconds(name, getattr(self, name))
        if self.timeout_s > LONGEST_S:
            raise ElasticError(f"timeout_s is {self.timeout_s}; at most {LONGEST_S:g} is needed")
        if not isinstance(self.address, str):
            raise ElasticError(f"address is {self.address!r}; text is needed")

    def allowed(self, batch: int) -> int:
        """As much of a wished batch as this job can bear."""
        return max(1, min(batch, self.max_batch or batch))


@dataclass(frozen=True, slots=True)
class Seat:
    """A place for one worker: the device that it is matched by, and what its process finds in the environment."""

    device: str
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What somebody wants the job to be, whole."""

    generation: int
    seats: tuple[Seat, ...]
    batch: int | None = None


def seats_from(rows: Any) -> tuple[Seat, ...]:
    """The workers of a resize or of GPULOOM_WORKERS; devices are named once."""
    if not isinstance(rows, list) or not rows:
        raise ElasticError("workers: a list with at least one {device, env} is needed")
    seats = tuple(_seat(row) for row in rows)
    devices = [seat.device for seat in seats]
    if len(set(devices)) < len(devices):
        raise ElasticError("workers: a device is named twice; they are told apart by it")
    if len(seats) > 1 and any(device.startswith(MIG) for device in devices):
        raise ElasticError("workers: NCCL does not span MIG slices, so a job on one has one worker")
    return seats


def _seat(row: Any) -> Seat:
    env = row.get("env") or {} if isinstance(row, dict) else None
    if not isinstance(row, dict) or not isinstance(row.get("device"), str) or not isinstance(env, dict):
        raise ElasticError('workers: each is {"device": "…", "env": {"NAME": "value"}}')
    return Seat(row["device"], tuple(_variable(row["device"], name, value) for name, value in env.items()))


def _variable(device: str, name: str, value: Any) -> tuple[str, str]:
    """One that the kernel would take: it would be too late to find out in a worker."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ElasticError(f"workers: env {name} of {device} is {value!r}; text or a number is needed")
    text = str(value)
    try:
        whole = os.fsencode(name + text)
    except UnicodeEncodeError:
        whole = b"\0"
    if not name or "=" in name or b"\0" in whole:
        raise ElasticError(f"workers: env {name!r} of {device} is no variable of an environment")
    return name, text


def target_from(message: Mapping[str, Any]) -> Target:
    """A resize as it came over the wire."""
    generation, batch = message.get("generation"), message.get("batch")
    if not isinstance(generation, int) or isinstance(generation, bool):
        raise ElasticError("generation: a whole number is needed")
    if batch is not None and (not isinstance(batch, int) or isinstance(batch, bool) or batch < 1):
        raise ElasticError("batch: a whole number of at least 1, or null")
    return Target(generation, seats_from(message.get("workers")), batch)


def launch_target(workers: int | None, visible: tuple[str, ...]) -> Target:
    """What the environment asks for at launch; without it `workers` seats, or one for each CUDA device that is visible.

    `visible` is empty where there is no GPU: workers are then processes on the CPU.
    """
    if workers is not None:
        check_whole("workers", workers, 1)
    told = os.environ.get("GPULOOM_WORKERS")
    if told:
        try:
            seats = seats_from(json.loads(told))
        except (ValueError, RecursionError) as error:
            raise ElasticError(f"GPULOOM_WORKERS is no JSON: {error}") from None
    elif visible:
        if workers is not None and workers > len(visible):
            raise ElasticError(f"{workers} workers were asked for, but {len(visible)} CUDA devices are visible")
        chosen = visible[: workers or len(visible)]
        seats = seats_from([{"device": device, "env": {"CUDA_VISIBLE_DEVICES": device}} for device in chosen])
    else:
        wanted = 1 if workers is None else workers
        names = ["cpu"] if wanted == 1 else [f"cpu:{number}" for number in range(wanted)]
        seats = seats_from([{"device": name} for name in names])
    return Target(_whole("GPULOOM_GENERATION") or 0, seats, _whole("GPULOOM_BATCH"))


def _whole(name: str) -> int | None:
    told = os.environ.get(name)
    if not told:
        return None
    try:
        return int(told)
    except ValueError:
        raise ElasticError(f"{name} is {told!r}; a whole number is needed") from None
