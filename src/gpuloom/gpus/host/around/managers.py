"""Other managers of this host's GPUs, by the traces that each leaves: best effort, as there is no common register.

Who is at work is believed. A trace alone may be stale: whoever knows that names the manager in $GPULOOM_OVERRIDE.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gpuloom.gpus.host.around.root import host_root
from gpuloom.gpus.host.processes import text_of

VARIABLE = "GPULOOM_OVERRIDE"
PLUGIN, DRA, MIG_MANAGER, SLURM = "device-plugin", "dra-driver", "mig-manager", "slurm"
OVERRIDABLE = (DRA, MIG_MANAGER, PLUGIN, SLURM)

_WHO = {
    PLUGIN: "NVIDIA's Kubernetes device plugin",
    DRA: "the Kubernetes DRA driver",
    MIG_MANAGER: "NVIDIA's MIG manager",
    SLURM: "Slurm",
}
_PROGRAMS = {
    "nvidia-mig-manager": _WHO[MIG_MANAGER],
    "nvidia-device-plugin": _WHO[PLUGIN],
    "gpu-kubelet-plugin": _WHO[DRA],
    "nvidia-mig-parted": "NVIDIA's mig-parted",
}
_ONLY_LOOKS = {"assert", "checkpoint", "export", "generate-config"}
"""Commands of mig-parted."""
_KERNEL_KEEPS = 15
"""Characters of a program's name."""


@dataclass(frozen=True, slots=True)
class Manager:
    why: str
    """Who it is, and by what that is known: a sentence's main clause."""
    override: str | None = None
    """What it is called in $GPULOOM_OVERRIDE; None for one that is at work at this moment."""

    def __str__(self) -> str:
        if self.override is None:
            return self.why
        return f"{self.why}; if you know that it leaves these GPUs alone, set {VARIABLE}={self.override}"


def other_manager(root: Path | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The sentence that says which other manager has this host's GPUs; None if none was found but those overridden."""
    overridden = {word for word in re.split(r"[\s,]+", environment.get(VARIABLE, "")) if word}
    unknown = sorted(overridden - {*OVERRIDABLE})
    if unknown:
        return f"{VARIABLE} names {', '.join(unknown)}; accepted are {', '.join(OVERRIDABLE)}"
    return next((str(found) for found in managers(root) if found.override not in overridden), None)


def managers(root: Path | None = None) -> Iterator[Manager]:
    """Those with a trace on this host."""
    root = root or host_root()
    yield from _by_traces(root)
    yield from _by_processes(root)


def _by_traces(root: Path) -> Iterator[Manager]:
    # By patterns, which pass over what this user may not look into.
    for unit in root.glob("etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service"):
        yield Manager(f"{_WHO[MIG_MANAGER]} is enabled ({unit})", MIG_MANAGER)
    for path in sorted(root.glob("var/lib/kubelet/device-plugins/nvidia-*.sock")):
        if _answers(path):
            yield Manager(f"{_WHO[PLUGIN]} hands out this host's GPUs ({path})")
        else:
            yield Manager(f"{_WHO[PLUGIN]} has handed out this host's GPUs ({path}, where nobody listens now)", PLUGIN)
    for folder in root.glob("var/lib/kubelet/plugins/gpu.nvidia.com"):
        works = any(_answers(path) for path in folder.glob("*.sock"))
        yield Manager(f"{_WHO[DRA]} hands out this host's GPUs ({folder})", None if works else DRA)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(1.0)
        try:
            door.connect(str(path))
        except TimeoutError:
            return True  # somebody is there, and busy
        except PermissionError:
            return True  # who may not ask cannot know
        except OSError:
            return False
    return True


def _by_processes(root: Path) -> Iterator[Manager]:
    names = {program[:_KERNEL_KEEPS]: program for program in _PROGRAMS}
    for comm in root.glob("proc/[0-9]*/comm"):
        name, pid = text_of(comm).strip(), comm.parent.name
        program = names.get(name)
        if name == "slurmd":
            yield from _by_slurm(root, comm.parent)
        elif program is not None and not _only_looks(program, comm.parent):
            yield Manager(f"{_PROGRAMS[program]} is running (process {pid})")


def _only_looks(program: str, process: Path) -> bool:
    words = {*text_of(process / "cmdline").split("\0")}
    return program == "nvidia-mig-parted" and "apply" not in words and bool(words & _ONLY_LOOKS)


# ---- Slurm: its node daemon runs on many hosts; it has the GPUs where its files say so ------------------------------

_SLURM_FOLDERS = (
    "etc/slurm",
    "etc/slurm-llnl",
    "usr/local/etc",
    "opt/slurm/etc",
    "run/slurm/conf",
    "var/spool/slurmd/conf-cache",
    "var/spool/slurm/d/conf-cache",
)
"""Where gres.conf is; without files of its own (`slurmd --conf-server`) a node keeps those that it was sent."""
_GPUS_IN_GRES = re.compile(
    r"^[^#\n]*\b(AutoDetect\s*=\s*nv\w+|Name\s*=\s*(gpu|mps|shard)\b)", re.IGNORECASE | re.MULTILINE
)


def _by_slurm(root: Path, process: Path) -> Iterator[Manager]:
    folders = [folder for folder in _named_by(process) if folder.is_absolute()]
    places = [root / folder.relative_to("/") for folder in folders] + [root / folder for folder in _SLURM_FOLDERS]
    for path in (folder / "gres.conf" for folder in places):
        if _GPUS_IN_GRES.search(text_of(path)):
            yield Manager(f"{_WHO[SLURM]} hands out this host's GPUs (slurmd, process {process.name}; {path})", SLURM)
            return


def _named_by(process: Path) -> Iterator[Path]:
    """The folders of the configuration file that a slurmd was started with."""
    words = text_of(process / "cmdline").split("\0")
    yield from (Path(after).parent for word, after in pairwise(words) if word == "-f")
    for entry in text_of(process / "environ").split("\0"):
        name, _, value = entry.partition("=")
        if name == "SLURM_CONF":
            with suppress(ValueError):
                yield Path(value).parent
