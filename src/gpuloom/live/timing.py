"""How long the runner waits for things, in the engine's seconds. Parameters: a rehearsal shortens them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from gpuloom.contract.view import MoveCosts
from gpuloom.errors import InputError


@dataclass(frozen=True, slots=True)
class Timing:
    grace_s: float = 30.0
    """From SIGTERM to SIGKILL: so long a job may take to save."""
    up_s: float = 10.0
    """A job that has not reported so long after its launch, and lives, is taken to be working."""
    level_s: float = 10.0
    """Measuring at one MPS level."""
    report_s: float = 60.0
    """Between two measurements of a running job's speed."""
    elastic_s: float = 5.0
    """Between two reports of an elastic job that are passed on."""
    resize_s: float = 60.0
    """A job that has not taken other devices in place so long after it was told is stopped and started again."""
    restore_s: float = 30.0
    """After so long a GPU that was given up is looked at again."""
    poll_real_s: float = 0.05
    """Between two looks at the processes; of the real clock, whatever the pace."""
    share_real_s: float = 10.0
    """So often those who share a device are asked whether they still can, and so long an answer may take; likewise."""
    start_cost_s: float = 10.0
    """What policies are told that a first start costs: a guess, like the next two, and not measured on this machine."""
    resume_cost_s: float = 10.0
    """What policies are told that a stop and a start from a checkpoint cost."""
    resize_cost_s: float = 1.0
    """What policies are told that a resize in place costs."""

    def told_costs(self) -> MoveCosts:
        return MoveCosts(self.start_cost_s, self.resume_cost_s, self.resize_cost_s)


MOST_POLL_S, MOST_S = 60.0, 1e9


def begun_timing(kept: Mapping[str, float]) -> Timing:
    """Of a run that goes on; what another version knew as well is passed over."""
    names = [field.name for field in fields(Timing)]
    return Timing(**{name: seconds for name, seconds in kept.items() if name in names})


def with_changes(timing: Timing, changes: Sequence[str]) -> Timing:
    """Times with `name=seconds` applied, as the command line gives them."""
    names = [field.name for field in fields(Timing)]
    for text in changes:
        name, _, value = text.partition("=")
        if name not in names:
            raise InputError(f"--timing {text}: no such time; accepted are {', '.join(names)}")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        most = MOST_POLL_S if name.endswith("_real_s") else MOST_S
        if not 0 <= seconds <= most:
            raise InputError(f"--timing {text}: expected {name}=SECONDS, zero to {most:g}")
        timing = replace(timing, **{name: seconds})
    return timing
