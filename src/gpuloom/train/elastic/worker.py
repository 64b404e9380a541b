"""A worker's process: what the fork server leaves in it, how it talks to the server, and what `train` is given."""

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gpuloom.train.elastic.checkpoint import check_that_it_can_be_read
from gpuloom.train.elastic.job import Job, Leave
from gpuloom.train.elastic.settings import ElasticError, Every, Seat, Settings
from gpuloom.train.elastic.state import Training
from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.samples import fetcher, length
from gpuloom.train.elastic.steps.stepper import Options, Stepper
from gpuloom.train.elastic.wire import Lines, Message
from gpuloom.train.elastic.words import flush

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
        state: Any = None,
        clip_norm: float | None = None,
        fetch: Callable[[torch.Tensor], Any] | None = None,
        measure_noise: bool = True,
    ) -> Job:
        """The training as it changes its size. `fetch` turns indices into samples; by default they are collated.

        `state` is whatever else belongs to it, with `state_dict` and `load_state_dict`.
        """
        refuse(model)
        refuse_optimiser(optimiser)
        refuse_scheduler(scheduler)
        refuse_state(state)
        if self.job is not None:
            raise ElasticError("wrap was called twice; a worker has one job")
        training, samples = Training(model, optimiser, scheduler, scaler, state), length(dataset)
        refuse_overlaps(training.tensors())
        check_that_it_can_be_read(training.gather())
        options = Options(Every(scheduler_every), clip_norm, measure_noise)
        fetch = fetch or fetcher(dataset, self.device)
        stepper = Stepper(training, self.settings, options, samples, fetch, self.device)
        self.job = Job(self, training, stepper, samples)
        return self.job


def refuse(model: nn.Module) -> None:
    """Models whose state is not what it seems, by the names of their classes."""
    for module in model.modules():
        for kind in type(module).__mro__:
            if kind.__name__ in REFUSED and kind.__module__.startswith("torch."):
                raise ElasticError(f"{REFUSED[kind.__name__]} ({kind.__name__})")


def refuse_optimiser(optimiser: Any) -> None:
    if isinstance(optimiser, torch.optim.LBFGS):
        raise ElasticError("LBFGS: it computes the loss itself, several times in a step; here a step computes it once")


def refuse_scheduler(scheduler: Any) -> None:
    if any(kind.__name__ == "ReduceLROnPlateau" for kind in type(scheduler).__mro__):
        raise ElasticError(
            "ReduceLROnPlateau: the job cannot know its figure; pass it as state= and call its step(figure) yourself,"
            " with the same figure on all workers"
        )


def refuse_state(state: Any) -> None:
    """What has no state to be sent and saved."""
    if state is None:
        return
    if not (hasattr(state, "state_dict") and hasattr(state, "load_state_dict")):
        raise ElasticError(f"state: {type(state).__name__} has no state_dict() and load_state_dict(kept)")


def refuse_overlaps(tensors: dict[str, torch.Tensor]) -> None:
    """What cannot be put back, since several numbers are one in memory."""
    for name, tensor in tensors.items():
        if tensor.layout is torch.strided and torch._debug_has_internal_overlap(tensor) == 1:
            raise ElasticError(f"{name}: it was expanded, so nothing can be copied to it; its clone() can be")


def leave_signals_to_the_server() -> None:
    """It hears them and decides. Not ignored, but not acted on: whatever this worker starts hears them as usual."""
    usual: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is nohup's
        usual[signal.SIGHUP] = signal.SIG_DFL
    for number in usual:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: [signal.signal(number, how) for number, how in usual.items()])


def work(
    train: Callable[[Worker], None], settings: Settings, seat: Seat, lines: Lines, launch: str, resume: bool
) -> None:
    """The whole life of a worker, after the fork. Never returns."""
    leave_signals_to_the_server()
    control = Control(lines)
    code = 0
    worker: Worker | None = None
    try:
        os.environ.update(dict(seat.env))
        if "OMP_NUM_THREADS" not in os.environ or settings.one_thread:
            torch.set_num_threads(1)  # as torchrun does: several workers share this machine's cores
        worker = Worker(device_of(seat), settings, seat, control, launch, resume)
        train(worker)
        if worker.job is None:
            raise ElasticError("train() returned without worker.wrap(model, optimiser, dataset)")
        worker.job.returned()
    except Leave:
        pass
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        fatal = isinstance(error, ElasticError)
        control.say(say="crash", traceback=str(error) if fatal else traceback.format_exc(), fatal=fatal)
        code = 1
    flush()
    os._exit(code)


def device_of(seat: Seat) -> torch.device:
    """CUDA is touched here for the first time, with the seat's environment."""
    if seat.device.startswith("cpu") or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", 0)
