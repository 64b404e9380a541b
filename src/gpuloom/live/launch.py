"""Starting one process of a job: what its environment tells it, and the keeper between it and the runner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpuloom.live import keeper
from gpuloom.live.processes import MARK
from gpuloom.live.store import Launch, Store
from gpuloom.work.model import Job

KEEPER = [sys.executable, "-I", "-S", str(Path(keeper.__file__))]


def start_keeper(
    store: Store, launch: Launch, job: Job, device: Mapping[str, str], working_dir: str, pace: float
) -> "subprocess.Popen[bytes]":
    """`device`: the variables that name its device and share. Its output goes to files of the job."""
    folder = store.job_dir(job.id)
    with (folder / "out.log").open("ab") as out, (folder / "err.log").open("ab") as err, _sigterm_blocked():
        return subprocess.Popen(
            [*KEEPER, str(launch.folder), *job.command],
            env=_environment(launch, job, store.checkpoint_dir(job.id), pace, device),
            cwd=working_dir,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _environment(
    launch: Launch, job: Job, checkpoint_dir: Path, pace: float, device: Mapping[str, str]
) -> dict[str, str]:
    """`train.job` is the other side of it."""
    # Whoever has no share is not to become a client of a daemon that the runner happens to know.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
    environment |= device
    environment |= {
        MARK: str(launch.folder),
        "GPULOOM_JOB": job.id,
        "GPULOOM_PROGRESS": str(launch.folder / "progress"),
        "GPULOOM_CHECKPOINT_DIR": str(checkpoint_dir),
        "GPULOOM_PACE": f"{pace:g}",
    }
    environment.pop("GPULOOM_RESUME", None)
    if launch.number > 1:
        environment["GPULOOM_RESUME"] = "1"
    return environment


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """A keeper starts with SIGTERM blocked and lets it in when it can pass it on: none is lost, and none kills it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
