"""What a campaign that was killed has left: copies that still run, their groups, MPS daemons. They are ended.

Theirs is a run that nobody will ever judge, so it is forgotten with its output, and begun anew.
"""

import re
import shutil
import time
from collections.abc import Set
from pathlib import Path

from gpuloom.gpus.host.driver import StepFailed
from gpuloom.live.devices import Devices
from gpuloom.live.launch import Launcher, Left, kill, left_of
from gpuloom.live.store import Launch, Store

_NAME = re.compile(r"r(\d{5,})-\d+")
PATIENCE_S, LOOK_S = 60.0, 0.02


def end_what_is_left(store: Store, launcher: Launcher, devices: Devices, judged: Set[int]) -> None:
    """`judged`: the runs that are over. StepFailed if somebody does not die."""
    folders = [path for path in sorted(store.jobs_dir.glob("r*")) if _number(path) not in (None, *judged)]
    launches = [launch for path in folders if (launch := store.last_launch(path.name)) is not None]
    deadline_s = time.monotonic() + PATIENCE_S
    while launches := [launch for launch in launches if not _has_ended(launch)]:
        if time.monotonic() >= deadline_s:
            raise StepFailed("processes of a campaign that was killed do not die: look for them by hand")
        time.sleep(LOOK_S)
    for group in launcher.strays(set(), devices.homes()):
        if not group.end(PATIENCE_S):
            raise StepFailed(f"processes in {group.path} do not die: look for them by hand")
    devices.stop_strays(())
    for path in folders:
        shutil.rmtree(path)


def _number(path: Path) -> int | None:
    match = _NAME.fullmatch(path.name)
    return None if match is None else int(match[1])


def _has_ended(launch: Launch) -> bool:
    if not launch.forestall():
        kill(launch)
        return False
    return left_of(launch) is not Left.SOMEBODY
