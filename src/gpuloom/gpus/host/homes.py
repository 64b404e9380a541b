"""Where on this machine groups of processes may live that outlive whoever made them.

Where systemd runs: in a scope of their own below gpuloom.slice, delegated to us, so that the end of the runner's unit
or session does not end them. Elsewhere below the runner's own group, in one that is called gpuloom.
"""

import hashlib
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from gpuloom.gpus.host.cgroups import Group, Home, Mounts, NoCgroups, home_below, mounts_here

SYSTEMD = Path("/run/systemd/system")
OURS = "gpuloom"
VARIABLE = "GPULOOM_CGROUP"
"""Names a group of version 2 that is delegated to gpuloom, instead of looking for one; none: do without."""
_PATIENCE_S = 5.0


def key_of(folder: Path) -> str:
    """A short name for whatever lives in this folder."""
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]


def find_home(key: str) -> Home:
    """The home of this name, made if it is not there; NoCgroups if it cannot be."""
    mounts = mounts_here()
    return home_below(mounts, _parent(mounts, key), f"{OURS}/{key}")


def is_home(folder: Path) -> bool:
    """Whether a group is one that `find_home` makes, not one inside it."""
    return folder.parent.name == OURS


def _parent(mounts: Mounts, key: str) -> str:
    given = os.environ.get(VARIABLE)
    if given == "none":
        raise NoCgroups(f"{VARIABLE} is none")
    if given:
        return given
    if SYSTEMD.is_dir():
        return _scope(mounts, key)
    own = mounts.own.get("", "/")
    if "/.." in own:
        raise NoCgroups("this process's cgroup is outside of what the container sees")
    return own


def leave_home(home: Home) -> None:
    """Nobody lives there any more: remove it, and end what systemd was given to hold its scope."""
    home.remove()
    above = home.unified.parent
    with suppress(OSError):
        above.rmdir()
    for twin in home.version_1.values():
        with suppress(OSError):
            twin.parent.rmdir()
    holder = Group(above.parent / "holder")
    if above.parent.suffix == ".scope" and holder.exists and not home.unified.exists():
        holder.end(_PATIENCE_S)


def _scope(mounts: Mounts, key: str) -> str:
    unit, user = f"gpuloom-{key}.scope", [] if os.geteuid() == 0 else ["--user"]
    scope = _group_of(unit, user)
    if scope is None:
        _begin_scope(unit, user)
        deadline_s = time.monotonic() + _PATIENCE_S
        while (scope := _group_of(unit, user)) is None:
            if time.monotonic() > deadline_s:
                raise NoCgroups(f"systemd does not make {unit}; is systemd-run installed, and may this user call it?")
            time.sleep(0.02)
    if mounts.unified is not None:
        # Only groups without processes of their own can have limits for those inside.
        home, holder = Group(mounts.unified / scope.lstrip("/")), Group(mounts.unified / scope.lstrip("/") / "holder")
        with suppress(OSError):
            holder.create()
            for pid in (home.path / "cgroup.procs").read_text(encoding="ascii").split():
                (holder.path / "cgroup.procs").write_text(pid, encoding="ascii")
    return scope


def _begin_scope(unit: str, user: list[str]) -> None:
    command = ["systemd-run", *user, "--quiet", "--collect", "--scope", "--slice=gpuloom.slice", f"--unit={unit}"]
    try:
        subprocess.Popen(
            [*command, "--property=Delegate=yes", "--property=TasksMax=infinity", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise NoCgroups(f"systemd-run cannot be run ({error.strerror}), so there is no scope to live in") from error


def _group_of(unit: str, user: list[str]) -> str | None:
    try:
        shown = subprocess.run(
            ["systemctl", *user, "show", "--property=ControlGroup", "--value", unit],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCgroups(f"systemctl does not answer ({error})") from error
    return shown.stdout.strip() or None
