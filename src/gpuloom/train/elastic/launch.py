"""`elastic.run`: the one call of a user's script. Checks what it was given, then the script is a fork server."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpuloom.train.elastic.conductor import Conductor
from gpuloom.train.elastic.server import Server
from gpuloom.train.elastic.settings import ElasticError, Scaling, Settings, launch_target
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
    resume: bool | None = None,
    address: str = "127.0.0.1",
) -> None:
    """Train with as many workers as are wanted at any time. Returns when training is over; exits if it was stopped."""
    settings = Settings(
        batch,
        max_batch,
        max_local_batch,
        seed,
        Scaling(scaling),
        warmup_steps,
        drop_last,
        timeout_s,
        checkpoint_s,
        address,
    )
    import_what_workers_need()
    check_that_it_can_fork()
    target = launch_target(workers, () if os.environ.get("GPULOOM_WORKERS") else visible_devices())
    server = Server(train, settings, Conductor(settings, target), resuming() if resume is None else resume)
    finish = server.serve()
    if finish.sentence:
        print(finish.sentence.rstrip(), file=sys.stderr)
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
