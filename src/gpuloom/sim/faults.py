"""What is to go wrong in a run, and how the command line spells it.

`gpu-lost:3@1000`, `gpu-restored:3@5000`, `crash:job-7@300`, `cut-fails:2`, `resize-fails:5`.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from math import isfinite

from gpuloom.engine.events import Event, GpuLost, GpuRestored, JobCrashed
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster

CAUSE = "injected"
SPELLINGS = "gpu-lost:GPU@SECONDS, gpu-restored:GPU@SECONDS, crash:JOB@SECONDS, cut-fails:NTH or resize-fails:NTH"


@dataclass(frozen=True, slots=True)
class Faults:
    """What is to go wrong: events at given times; which cuts stop half-way, which resizes in place end in an error.

    Cuts and resizes are counted from 1.
    """

    events: tuple[Event, ...] = ()
    failing_cuts: frozenset[int] = field(default_factory=frozenset)
    failing_resizes: frozenset[int] = field(default_factory=frozenset)


NO_FAULTS = Faults()


def parse_faults(texts: Sequence[str], cluster: Cluster) -> Faults:
    events = list[Event]()
    counted: dict[str, set[int]] = {"cut-fails": set(), "resize-fails": set()}
    for text in texts:
        kind, _, rest = text.partition(":")
        target, _, when = rest.rpartition("@")
        if kind in counted and rest.isdecimal() and int(rest) > 0:
            counted[kind].add(int(rest))
        else:
            events.append(_event(text, kind, target, when, cluster))
    in_order = tuple(sorted(events, key=lambda event: event.at_s))
    return Faults(in_order, frozenset(counted["cut-fails"]), frozenset(counted["resize-fails"]))


def check_crashes(texts: Sequence[str], jobs: Set[str]) -> None:
    """Refuse the crash of a job that is not in the trace."""
    for text in texts:
        kind, _, rest = text.partition(":")
        if kind == "crash" and rest.rpartition("@")[0] not in jobs:
            raise InputError(f"--fault {text}: there is no job {rest.rpartition('@')[0]!r} in the trace")


def _event(text: str, kind: str, target: str, when: str, cluster: Cluster) -> Event:
    try:
        at_s = float(when)
    except ValueError:
        at_s = -1.0
    if not (target and isfinite(at_s) and at_s >= 0):
        raise InputError(f"--fault {text}: expected {SPELLINGS}")
    if kind == "crash":
        return JobCrashed(at_s, CAUSE, target)
    if kind not in ("gpu-lost", "gpu-restored") or not target.isdecimal():
        raise InputError(f"--fault {text}: expected {SPELLINGS}")
    if int(target) >= len(cluster):
        raise InputError(f"--fault {text}: there are GPUs 0 to {len(cluster) - 1}")
    return (GpuLost if kind == "gpu-lost" else GpuRestored)(at_s, CAUSE, int(target))
