"""A worker's process: what the fork server leaves in it, how it talks to the server, and what `train` is given."""

import contextlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gpuloom.train.elastic.job import Job, Leave
from gpuloom.train.elastic.settings import ElasticError, Every, Seat, Settings
from gpuloom.train.elastic.state import Training
from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.samples import fetcher
from gpuloom.train.elastic.steps.stepper import Options, Stepper
from gpuloom.train.elastic.wire import Lines, Message

REFUSED = {
    "OptimizedModule": "torch.compile: wrap the plain model, and call the compiled one in your loop if you must",
    "FullyShardedDataParallel": "FSDP: its state is spread over workers, and this library keeps it whole on each",
    "FSDPModule": "FSDP: its state is spread over workers, and this library keeps it whole on each",
    "DistributedDataParallel": "DistributedDataParallel: pass the plain model, gradients are added up by the job",
    "SyncBatchNorm": "torch.nn.SyncBatchNorm: it keeps one group for ever; use elastic.sync_batch_norm(model)",
}
TICK_S = 0.2


class Control:
    """The line to the fork server. A thread reads it, so that a hanging group can be aborted from outside."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._orders: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.group: Group | None = None
        self.park_round = -1
        """The round that is to park after its next step."""
        lines.sock.settimeout(TICK_S)
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, **message: Any) -> None:
        self._lines.send(message)

    def order(self) -> Message:
        """What to do next: waits for it."""
        return self._orders.get()

    def _listen(self) -> None:
        while True:
            messages = self._lines.receive()
            if messages is None:
                os._exit(1)  # the fork server has gone: nobody would ever call this worker again
            for message in messages:
                self._take(message)
            group = self.group
            if group is not None and group.hangs:
                group.abort("a collective took longer than the time-out")

    def _take(self, message: Message) -> None:
        match message["do"]:
            case "park":
                self.park_round = message["round"]
            case "broken":
                group = self.group
                if group is not None and group.round == message["round"]:
                    group.abort("somebody in the group has died")
            case _:
                self._orders.put(message)


@dataclass(slots=True)
class Worker:
    """What a training function is given."""

    device: torch.device
    settings: Settings
    seat: Seat
    control: Control
    launch: str
    resume: bool
    job: Job | None = field(default=None)

    def wrap(
        self,
        model: nn.Module,
        optimiser: Any,
        dataset: Any,
        *,
        scheduler: Any = None,
        scheduler_every: Every | str = Every.EPOCH,
        scaler: Any = None,
        clip_norm: float | None = None,
        fetch: Callable[[torch.Tensor], Any] | None = None,
        measure_noise: bool = True,
    ) -> Job:
        """The training as it changes its size. `fetch` turns indices into samples; by default they are collated."""
        refuse(model)
        if self.job is not None:
            raise ElasticError("wrap was called twice; a worker has one job")
        training = Training(model, optimiser, scheduler, scaler)
        options = Options(Every(scheduler_every), clip_norm, measure_noise)
        fetch = fetch or fetcher(dataset, self.device)
        stepper = Stepper(training, self.settings, options, len(dataset), fetch, self.device)
        self.job = Job(self, training, stepper, len(dataset))
        return self.job


def refuse(model: nn.Module) -> None:
    """Models whose state is not what it seems, by the names of their classes."""
    for module in model.modules():
        for kind in type(module).__mro__:
            if kind.__name__ in REFUSED and kind.__module__.startswith("torch."):
                raise ElasticError(f"{REFUSED[kind.__name__]} ({kind.__name__})")


def work(
    train: Callable[[Worker], None], settings: Settings, seat: Seat, lines: Lines, launch: str, resume: bool
) -> None:
    """The whole life of a worker, after the fork. Never returns."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the fork server hears them and decides
    os.environ.update(dict(seat.env))
    control = Control(lines)
    code = 0
    worker: Worker | None = None
    try:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # as torchrun does: several workers share this machine's cores
        worker = Worker(device_of(seat), settings, seat, control, launch, resume)
        train(worker)
        if worker.job is not None:
            worker.job.returned()
    except Leave:
        pass
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        fatal = isinstance(error, ElasticError)
        control.say(say="crash", traceback=str(error) if fatal else traceback.format_exc(), fatal=fatal)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def device_of(seat: Seat) -> torch.device:
    """CUDA is touched here for the first time, with the seat's environment."""
    if seat.device.startswith("cpu") or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", 0)
