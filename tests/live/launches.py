"""Launches without a runner: a keeper and its job, in a group or without."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpuloom.gpus.host.cgroups import Home
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from gpuloom.live.devices import Place
from gpuloom.live.launch import Launcher, kill
from gpuloom.live.store import Exit, Launch, Store
from gpuloom.live.users import Account, account_of
from gpuloom.work.model import NO_HOST_NEEDS, HostNeeds, Job

PATIENCE_S = 20
GRACE_S = 4.0


@dataclass
class Bench:
    store: Store
    launcher: Launcher
    begun: "list[tuple[Launch, subprocess.Popen[bytes]]]" = field(default_factory=list)

    def start(self, *command: str, host: HostNeeds = NO_HOST_NEEDS) -> "tuple[Launch, subprocess.Popen[bytes]]":
        job = Job("job", command=command, host=host)
        self.begun.append(self.launcher.start(job, 1, Place({"CUDA_VISIBLE_DEVICES": ""}), None))
        return self.begun[-1]

    def finish(self, launch: Launch, keeper: "subprocess.Popen[bytes]") -> Exit:
        keeper.wait(PATIENCE_S)
        told = launch.exit()
        assert told is not None
        return told

    def out(self, name: str = "out.log") -> str:
        return (self.store.job_dir("job") / name).read_text()


@contextmanager
def bench(folder: Path, *, cgroups: bool, account: Account | None = None) -> Iterator[Bench]:
    home: Home | None = find_home(key_of(folder)) if cgroups else None
    store = Store(folder)
    accounts = {"job": account or account_of(None, os.geteuid(), os.geteuid())}
    made = Bench(store, Launcher(store, home, accounts, "/", 1.0, GRACE_S))
    yield made
    for launch, keeper in made.begun:
        kill(launch)
        keeper.send_signal(signal.SIGUSR1)
        keeper.wait(PATIENCE_S)
    if home is not None:
        for group in home.groups():
            assert group.end(PATIENCE_S)
        leave_home(home)
