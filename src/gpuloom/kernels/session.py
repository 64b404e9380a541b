"""The shared memory of a machine's participants, from Python: join it, switch its policy, start programs."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.kernels import FLOOR, SLOWDOWN
from gpuloom.kernels.core import CUDA_LIBRARY, Policy, Region, library_path, load


def default_region() -> Path:
    """One for each user: nobody gates another user's programs."""
    return Path(f"/dev/shm/gpuloom-kernels-{os.getuid()}")


@contextmanager
def joined(path: Path) -> Iterator[Region]:
    """The region while it is in use; the last one to leave removes the file. InputError if it cannot be trusted."""
    core = load()
    why = ctypes.create_string_buffer(512)
    pointer = core.loom_region_open(os.fsencode(path.absolute()), why, len(why))
    if not pointer:
        raise InputError(f"shared memory {why.value.decode(errors='replace')}")
    try:
        yield pointer.contents
    finally:
        core.loom_region_leave(pointer)


def policy_of(region: Region) -> str:
    """Its name; a number that nobody knows gates nobody."""
    known = {int(policy) for policy in Policy}
    return Policy(region.head.policy if region.head.policy in known else Policy.SHARE).name.lower()


def switch(region: Region, policy: Policy) -> None:
    """From the next launch on; whoever waits looks again."""
    region.head.policy = policy
    load().loom_ring(ctypes.byref(region))


@dataclass(frozen=True, slots=True)
class Settings:
    """How a program takes part."""

    region: Path
    priority: int = 0
    profile: Path | None = None
    slowdown: float = SLOWDOWN
    floor: float = FLOOR


def environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """For a program that is to be gated. Its children take part as well."""
    found = dict(inherited) | {
        "GPULOOM_KERNELS_REGION": str(settings.region.absolute()),
        "GPULOOM_KERNELS_PRIORITY": str(settings.priority),
        "GPULOOM_KERNELS_SLOWDOWN": str(settings.slowdown),
        "GPULOOM_KERNELS_FLOOR": str(settings.floor),
    }
    if settings.profile is not None:
        found["GPULOOM_KERNELS_PROFILE"] = str(settings.profile.resolve())
    return _with_front_ends(found)


def recording(prefix: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """For a program that is to be measured."""
    return _with_front_ends(dict(inherited) | {"GPULOOM_KERNELS_RECORD": str(prefix)})


def _with_front_ends(environment: dict[str, str]) -> dict[str, str]:
    environment["OPENCL_LAYERS"] = _joined(str(library_path()), environment.get("OPENCL_LAYERS"))
    cuda = library_path(CUDA_LIBRARY)
    if cuda.exists():
        environment["LD_PRELOAD"] = _joined(str(cuda), environment.get("LD_PRELOAD"))
    return environment


def _joined(ours: str, theirs: str | None) -> str:
    return ours if not theirs else f"{ours}:{theirs}"


STANDARD_ERROR = 2


def run_program(command: Sequence[str], environment: Mapping[str, str], stdout: int | None = None) -> int:
    """Its exit code; Ctrl-C and termination reach it, and it decides what to do with them."""
    try:
        child = subprocess.Popen(command, env=dict(environment), stdout=stdout)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}: expected a program") from None
    kept = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),  # the terminal sends it to the child as well
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    try:
        code = child.wait()
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
