"""What moving work about costs, in seconds. Defaults: measured by MISO's authors on an A100 (SoCC'22 artifact)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from gpuloom.contract.view import MoveCosts
from gpuloom.errors import InputError
from gpuloom.work.source import MAX_SECONDS


@dataclass(frozen=True, slots=True)
class Costs:
    start_s: float = 10.0
    """First start of a job's processes."""
    restart_s: float | None = None
    """Start from a checkpoint; None takes the measured figure of the workload, or `start_s` where there is none."""
    rescale_s: float | None = None
    """Another number of GPUs in place; None: only of jobs that say that they can, at the cost of a restart."""
    checkpoint_s: float = 0.0
    """Saving before a stop. Zero in MISO's accounting, which counts it within the restart."""
    cut_s: float = 4.0
    """One MIG reconfiguration of one GPU, whatever the number of steps."""
    stay_s: float = 0.0
    """What a job loses whose instance stays while others of its GPU are cut: nothing, on real MIG."""
    mps_start_s: float = 5.0
    """Starting the MPS daemon for a job that gets a share of a device."""
    probe_s: float = 30.0
    """Measuring the jobs of one GPU under MPS: three levels of 10 s."""

    def told(self) -> MoveCosts:
        """As a scheduler is told them."""
        resume_s = self.start_s if self.restart_s is None else self.restart_s
        return MoveCosts(self.start_s, resume_s, resume_s if self.rescale_s is None else self.rescale_s)


def with_overrides(costs: Costs, overrides: Sequence[str]) -> Costs:
    """Costs with `name=seconds` applied, as the command line gives them."""
    names = {field.name for field in fields(Costs)}
    for text in overrides:
        name, _, value = text.partition("=")
        if name not in names:
            raise InputError(f"--cost {text}: no such cost; known are {', '.join(sorted(names))}")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_SECONDS:
            raise InputError(f"--cost {text}: expected {name}=SECONDS, from 0 to {MAX_SECONDS:g}")
        costs = replace(costs, **{name: seconds})
    return costs
