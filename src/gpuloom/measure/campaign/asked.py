"""What a campaign was begun with, kept in its state folder: whoever goes on must ask for the same.

Beside the plan: the device, where its commands run and in whose name, and what can be told of both, for whoever reads
the figures later.
"""

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from gpuloom import __version__
from gpuloom.errors import InputError
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.files import NotOursError, read_own, write_whole
from gpuloom.gpus.host.noise import Noise
from gpuloom.live.devices import insist
from gpuloom.live.memory.keeping import driver_version
from gpuloom.measure.plan import Plan, differs

NAME = "asked.json"
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    uuid: str
    product: str
    """As its driver calls it."""
    model: str
    """As gpuloom does."""
    mem_mib: int
    driver: str | None
    """Its version; of a CPU device, the kernel's."""


@dataclass(frozen=True, slots=True)
class Code:
    """Which state of a git repository the commands were run in."""

    commit: str
    changed: bool
    """Tracked files differ from it."""
    changes: str | None = None
    """A digest of how they differ; None if they do not, or if that was not kept."""

    def __str__(self) -> str:
        return f"commit {self.commit[:12]}" + (" with changes" if self.changed else "")


@dataclass(frozen=True, slots=True)
class LaterCode:
    """The campaign went on, and its commands were no longer in the same state of the repository."""

    run: int
    """Number of the first run with it."""
    code: Code | None


@dataclass(frozen=True, slots=True)
class Asked:
    plan: Plan
    device: DeviceFacts
    devices: tuple[str, ...]
    """As the command line named it; none: a GPU of this host."""
    working_dir: str
    owner_uid: int
    pace: float
    begun_unix_s: float
    code: Code | None
    noise: Noise | None
    """How steady the device was before the first run, where that can be told."""
    host_cpus: int
    counters: str | None = None
    """Who told how busy the device is; None on a CPU device."""
    version: str = __version__
    later_code: tuple[LaterCode, ...] = ()
    """In the order of their runs."""

    @property
    def last_code(self) -> Code | None:
        return self.later_code[-1].code if self.later_code else self.code


def read_asked(folder: Path) -> Asked | None:
    """None: nothing was begun there."""
    path = folder / NAME
    if not path.exists() and not path.is_symlink():
        if (folder / "run.json").exists():
            raise InputError(f"{folder}: holds a run of gpuloom run; expected a folder of its own for measurements")
        return None
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Asked).validate_json(read_own(path))
    except NotOursError as error:
        raise InputError(str(error)) from None
    except ValidationError:
        raise InputError(f"{path}: not what gpuloom measure writes; name another --state") from None


def write_asked(folder: Path, asked: Asked) -> None:
    write_whole(folder / NAME, json.dumps(asdict(asked)))


def why_not_the_same(
    before: Asked, plan: Plan, devices: tuple[str, ...], working_dir: str, owner_uid: int, pace: float
) -> str | None:
    """In what they differ; None if measurements of both can stand in one table."""
    if before.devices != devices:
        return f"--device {' '.join(before.devices)}" if before.devices else "a GPU, and no --device"
    if before.working_dir != working_dir:
        return f"commands that run in {before.working_dir}"
    if before.owner_uid != owner_uid:
        return f"a plan of user {before.owner_uid}"
    return f"pace {before.pace:g}" if before.pace != pace else differs(before.plan, plan)


def goes_on_with(before: Asked, code: Code | None, run: int) -> Asked:
    """What stands in the folder from this run on. Of code that no run was made with nothing is kept."""
    used = replace(before, later_code=tuple(later for later in before.later_code if later.run < run))
    if used.last_code == code:
        return used
    return replace(used, code=code) if run == 0 else replace(used, later_code=(*used.later_code, LaterCode(run, code)))


def device_facts(cutter: Cutter, host: int) -> DeviceFacts:
    state = insist(partial(cutter.look, host))
    model = state.model
    return DeviceFacts(state.uuid, state.product, model.name, model.mem_mib, driver_version(model))


def code_in(working_dir: str) -> Code | None:
    """None: it is in no repository that git can read."""
    commit = _git(working_dir, "rev-parse", "HEAD")
    changed = _git(working_dir, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return None
    how = _git(working_dir, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD") if changed else None
    return Code(commit, bool(changed), None if how is None else sha256(how.encode()).hexdigest()[:16])


def _git(working_dir: str, *words: str) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", working_dir, *words],
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else None
    return None
