"""`elastic.run`: the one call of a user's script. Checks what it was given, then the script is a fork server."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpuloom.train.elastic.conductor import Conductor
from gpuloom.train.elastic.server import Server
from gpuloom.train.elastic.settings import ElasticError, Scaling, Settings, launch_target
from gpuloom.train.elastic.words import tell
from gpuloom.train.job import checkpoint_dir as told_checkpoint_dir
from gpuloom.train.job import resuming

if TYPE_CHECKING:
    from gpuloom.train.elastic.worker import Worker

INTERRUPTED = 130


def run(
    train: "Callable[[Worker], None]",
    *,
    batch: int,
    max_batch: int | None = None,
    max_local_batch: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    scaling: Scaling | str = Scaling.AUTO,
    warmup_steps: int = 0,
    drop_last: bool = False,
    timeout_s: float = 60.0,
    checkpoint_s: float = 300.0,
    checkpoint_dir: Path | str | None = None,
    resume: bool | None = None,
    address: str = "127.0.0.1",
) -> None:
    """Train with as many workers as are wanted at any time. Returns when training is over; exits if it was stopped."""
    if not callable(train):
        raise ElasticError(f"train is {train!r}; the training function is needed, and is called with a worker")
    import_what_workers_need()
    check_that_it_can_fork()
    settings = Settings(
        batch, max_batch, max_local_batch, seed=seed, scaling=Scaling(scaling), warmup_steps=warmup_steps,
        drop_last=drop_last, timeout_s=timeout_s, checkpoint_s=checkpoint_s,
        checkpoint_dir=checkpoint_place(checkpoint_dir), one_thread=threads_were_used(), address=address,
    )  # fmt: skip
    from gpuloom.train.elastic.checkpoint import prepare

    prepare(settings.checkpoint_dir)
    target = launch_target(workers, () if os.environ.get("GPULOOM_WORKERS") else visible_devices())
    server = Server(train, settings, Conductor(settings, target), resuming() if resume is None else resume)
    finish = server.serve()
    if finish.sentence:
        tell(finish.sentence)
    if finish.code or server.stopped:
        sys.exit(finish.code or (INTERRUPTED if server.interrupted else 0))


def import_what_workers_need() -> None:
    """Whatever is imported before the fork need not be after it. Optimisers import the second, and it takes long."""
    for name in ("gpuloom.train.elastic.worker", "torch._dynamo"):
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)


def check_that_it_can_fork() -> None:
    """What a fork would break has not been begun."""
    import torch

    if torch.cuda.is_initialized():
        raise ElasticError("CUDA was used before elastic.run: use it in the training function only, workers are forks")
    if threading.active_count() > 1:
        raise ElasticError(
            "a thread was started before elastic.run: start it in the training function, workers are forks"
        )


def threads_were_used() -> bool:
    """Whether native threads were started that a fork leaves behind, and that PyTorch would wait for in a worker.

    OpenMP's are such. Others (OpenBLAS's) know of forks and are gone after one, so there is one before they are
    counted; a thread that has ended is still seen for a moment.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ or torch.get_num_threads() == 1:
        return False  # workers compute with one thread anyway
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + 0.2
    while len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (numbers, not paths)
        if time.monotonic() > until:
            tell("PyTorch used threads before elastic.run, and they do not survive a fork: workers compute with one")
            return True
        time.sleep(0.005)
    return False


def checkpoint_place(given: Path | str | None) -> Path:
    """Where gpuloom says; outside of it as given, or the working directory."""
    if not isinstance(given, str | os.PathLike | None):
        raise ElasticError(f"checkpoint_dir is {given!r}; a path is needed")
    told = told_checkpoint_dir()
    return Path(given) if given is not None and not os.environ.get("GPULOOM_CHECKPOINT_DIR") else told


def visible_devices() -> tuple[str, ...]:
    """CUDA devices, without touching CUDA here: from the environment, or asked for in a process of its own."""
    import torch

    if not torch.backends.cuda.is_built() or not Path("/dev/nvidiactl").exists():
        return ()
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return tuple(name for name in (part.strip() for part in told.split(",")) if name not in ("", "-1"))
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, str(torch.cuda.device_count()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        count = int(answer.read() or 0)
    os.waitpid(child, 0)
    return tuple(str(number) for number in range(count))
