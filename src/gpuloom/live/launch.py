"""Starting one launch of a job, and being sure that it has ended: its group, its keeper, what its environment tells it.

Nothing here waits. A launch is `GONE` when its group could be removed: then it was empty, and whoever was about to join
it cannot any more. Without cgroups its keeper's word is the proof, and a keeper that was killed has left none.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from gpuloom.gpus.host.cgroups import Group, Home, Limits
from gpuloom.gpus.host.files import open_own
from gpuloom.gpus.host.homes import key_of
from gpuloom.live import keeper, processes
from gpuloom.live.devices import Place
from gpuloom.live.processes import MARK
from gpuloom.live.store import Launch, Store
from gpuloom.live.users import Account, environment_of
from gpuloom.work.model import Job, Kind

KEEPER = [sys.executable, "-I", "-S", str(Path(keeper.__file__))]
KEEPERS = "keepers"
"""The group that keepers live in, beside those of their launches."""


TOLD_WHO_GROWS = ("GPULOOM_WORKERS", "GPULOOM_GENERATION", "GPULOOM_BATCH", "GPULOOM_ELASTIC_SOCKET")


class Left(Enum):
    """What is left of a launch whose keeper has gone."""

    NOBODY = auto()
    SOMEBODY = auto()
    UNKNOWN = auto()
    """Nobody can tell any more."""


@dataclass(frozen=True, slots=True)
class Launcher:
    store: Store
    home: Home | None
    """None: without cgroups."""
    accounts: Mapping[str, Account]
    """Who each job runs as."""
    working_dir: str
    pace: float
    grace_s: float

    def start(
        self, job: Job, start: int, place: Place, share_pct: float | None
    ) -> "tuple[Launch, subprocess.Popen[bytes]]":
        """Whoever calls is sure that the last one has gone."""
        account, last = self.accounts[job.id], self.store.last_launch(job.id)
        number = 1 if last is None else last.number + 1
        group, name = None, f"{self.store.job_dir(job.id).name}-{number}"
        if place.home is not None:
            group = place.home.group(f"{self._whose}{name}")
        elif self.home is not None:
            group = self.home.group(name)
        if group is not None:
            group.create(place.limits)
        launch = self.store.new_launch(job.id, number, start, share_pct, account, group)
        environment = self._environment(launch, job, account, place)
        return launch, self._keeper(launch, job, account, environment)

    def _keeper(
        self, launch: Launch, job: Job, account: Account, environment: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        folder, group = self.store.job_dir(job.id), launch.group
        settings = {
            "keepers": self._keepers_door(),
            "doors": [] if group is None else [str(door) for door in group.doors()],
            "kill": None if group is None else str(group.path / "cgroup.kill"),
            "outputs": [str(folder / "out.log"), str(folder / "err.log")],
            "log_max_bytes": job.host.log_max_mib << 20,
            "uid": account.uid,
            "gid": account.gid,
            "groups": list(account.groups),
            "grace_real_s": self.grace_s / self.pace,
        }
        words = open_own(launch.folder / "keeper.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def begun(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                [*KEEPER, str(launch.folder), json.dumps(settings), *command],
                env=environment,
                cwd=self.working_dir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                start_new_session=True,
            )

        with os.fdopen(words, "ab"), _sigterm_blocked():
            try:
                return begun(job.command, environment)
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise
                # Its keeper cannot be handed them either, so it keeps somebody who says so and fails as such jobs do.
                return begun(_too_long(job.command[0]), {MARK: environment[MARK], "PATH": os.defpath})

    def _keepers_door(self) -> str | None:
        if self.home is None:
            return None
        group = self.home.group(KEEPERS)
        group.create()
        return str(group.path / "cgroup.procs")

    def _environment(self, launch: Launch, job: Job, account: Account, place: Place) -> dict[str, str]:
        """`train.job` is the other side of it."""
        # Whoever has no share is not to become a client of a daemon that the runner happens to know.
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("CUDA_MPS_", *TOLD_WHO_GROWS))
        }
        environment = environment_of(account, inherited) | dict(place.environment)
        environment |= {
            MARK: str(launch.folder),
            "GPULOOM_JOB": job.id,
            "GPULOOM_PROGRESS": str(launch.progress_path),
            "GPULOOM_CHECKPOINT_DIR": str(self.store.checkpoint_dir(job.id)),
            "GPULOOM_PACE": f"{self.pace:g}",
        }
        environment.pop("GPULOOM_RESUME", None)
        if launch.number > 1:
            environment["GPULOOM_RESUME"] = "1"
        return environment if job.kind is not Kind.ELASTIC else environment | _told_who_grows(job, launch, place)

    def strays(self, known: set[Path], homes: Sequence[Home]) -> list[Group]:
        """Groups of launches that nobody knows of, by the paths of those that somebody does. `homes`: of devices."""
        own = [] if self.home is None else [group for group in self.home.groups() if group.path.name != KEEPERS]
        there = [group for home in homes for group in home.groups() if group.path.name.startswith(self._whose)]
        return [group for group in (*own, *there) if group.path not in known]

    @property
    def _whose(self) -> str:
        """How the names of our groups begin where there may be others'."""
        return f"{key_of(self.store.folder)}-"


def _too_long(name: str) -> list[str]:
    """What is run in place of a command that, with its environment, is too long for the kernel."""
    says = f"gpuloom: {name[:100]} cannot be run: its command and environment are too long together"
    return ["sh", "-c", f'printf "%s\\n" "$1" >&2; exit {keeper.NOT_EXECUTABLE}', "sh", says]


def _told_who_grows(job: Job, launch: Launch, place: Place) -> dict[str, str]:
    """What an elastic job begins with, and where it hears of changes."""
    told = {
        "GPULOOM_WORKERS": json.dumps(place.workers),
        "GPULOOM_WORKERS_COUNT": str(len(place.workers)),
        "GPULOOM_GENERATION": "0",
    }
    if place.batch is not None:
        told["GPULOOM_BATCH"] = str(place.batch)
    if job.in_place:
        told["GPULOOM_ELASTIC_SOCKET"] = str(launch.socket_path)
    return told


def limits_of(job: Job) -> Limits:
    return Limits(job.host.cpus, job.host.host_mem_mib, job.host.pids)


def left_of(launch: Launch) -> Left:
    """Of one whose keeper has gone. Somebody who is left is killed: nobody would write down how it ended."""
    if launch.before_boot:
        return Left.NOBODY
    told = launch.exit()
    seen_empty = not launch.started or (told is not None and told.empty)
    if launch.group is not None:
        # Root's processes can leave a group: without their keeper they are known only by their mark, if at all.
        if launch.group.remove() and (seen_empty or processes.end(launch.folder, timeout_s=0.0)):
            return Left.NOBODY
        launch.group.kill()
        return Left.SOMEBODY
    if seen_empty:
        return Left.NOBODY
    processes.end(launch.folder, timeout_s=0.0)  # those that can still be recognised; it proves nothing
    return Left.UNKNOWN


def kill(launch: Launch) -> None:
    """End whoever is in it, now. Its keeper does so too, also to who has left the group, says how it ended and goes."""
    if launch.group is not None:
        launch.group.kill()
    elif launch.is_old:
        processes.end(launch.folder, timeout_s=0.0)
        return
    keeper_id = launch.keeper()
    if keeper_id is not None:
        keeper_id.signal(signal.SIGCONT)
        keeper_id.signal(signal.SIGUSR1)


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """A keeper starts with SIGTERM blocked and lets it in when it can pass it on: none is lost, and none kills it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
