"""What was measured: a row for every copy of every run. Pure: how rows are kept in files is `table`'s.

A figure that could not be had is None, never 0.
"""

from dataclasses import dataclass
from enum import StrEnum

from gpuloom.measure.arrangement import Seat, Way


class Outcome(StrEnum):
    """How a copy's run ended. Everything but `OK` is a result too."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    CRASHED = "crashed"
    SILENT = "no steps"
    """It never reported a step."""
    TOO_FEW = "too few steps"
    """Not enough of them, after its warm-up, to tell a step's time."""
    BACKWARDS = "steps go backwards"
    ENDED_EARLY = "ended early"
    """It was done, by its own account, before there were enough steps."""

    STALLED = "stalled"
    """It stepped, and then no more, until the run's end."""

    @property
    def is_failure(self) -> bool:
        """Surely the place's, or the workload's; of the others, more time may be all that was missing."""
        return self not in (Outcome.OK, Outcome.TOO_FEW, Outcome.ENDED_EARLY, Outcome.STALLED)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy in one run."""

    run: int
    """Number of the run in the order in which they took place."""
    arrangement: str
    """Its name."""
    way: Way
    copies: int
    """In that run, of whatever workload."""
    copy: int
    """Its number among them, from 0."""
    repetition: int
    """Of this arrangement, from 0."""
    seat: Seat
    outcome: Outcome
    said: str | None = None
    """If it was not fine: in one sentence."""
    warm_up_steps: int | None = None
    steps: int | None = None
    """After the warm-up."""
    seconds: float | None = None
    """That these took."""
    step_ms: float | None = None
    """Mean; then percentiles."""
    step_p50_ms: float | None = None
    step_p95_ms: float | None = None
    step_p99_ms: float | None = None
    mem_peak_mib: float | None = None
    """Of the device."""
    host_cpus: float | None = None
    """CPU seconds a second."""
    host_mem_peak_mib: float | None = None
    power_w: float | None = None
    """Of the whole device, over these steps: the same for all copies of a run."""
    energy_j: float | None = None
    """Likewise."""
    gract: float | None = None
    """Parts of the time that something was active, 0 to 1, as the counters say."""
    smact: float | None = None
    smocc: float | None = None
    drama: float | None = None
    batches: str | None = None
    """How many items are in a request of each copy of the run, as `1,8`; None: commands do not say."""

    @property
    def batch(self) -> int | None:
        """Of this copy."""
        return None if self.batches is None else int(self.batches.split(",")[self.copy])

    @property
    def steps_per_s(self) -> float | None:
        return None if self.steps is None or not self.seconds else self.steps / self.seconds
