"""What the jobs of one run have shown, whatever its policy: for the runs that come after it (`perf.slices.earlier`).

Steps a second on devices that a job had for itself. It follows from the events alone, so whoever goes on from a log
has what the log has. Rates are of the engine's seconds, as jobs' reports are.
"""

from typing import NamedTuple

from gpuloom.contract.view import Phase
from gpuloom.engine.events import Event, JobReported
from gpuloom.engine.state import State
from gpuloom.perf.slices.earlier import WHOLE, Rate
from gpuloom.perf.slices.memory import fingerprint


class Shown(NamedTuple):
    """Of one workload on one model."""

    workload: str
    is_name: bool
    """Not a command."""
    model: str


class SeenInRun:
    def __init__(self) -> None:
        self.rates: dict[Shown, dict[str, Rate]] = {}
        """By profile, or WHOLE."""
        self.at_s: dict[Shown, float] = {}
        """When the latest of them came."""

    def hear(self, state: State, event: Event) -> None:
        """Of an event that the state has taken in."""
        if not isinstance(event, JobReported) or event.report.batches_per_s is None:
            return
        job, rate = state.jobs[event.job_id], event.report.batches_per_s
        name = fingerprint(job.job)
        if name is None or job.phase is not Phase.RUNNING or len(job.held) != 1 or job.held[0].share_pct < 100:
            return
        (grant,) = job.held
        key = Shown(name, job.job.workload is not None, state.cluster.gpus[grant.gpu].model.name)
        known = self.rates.setdefault(key, {})
        profile = WHOLE if grant.instance is None else grant.instance.profile
        before = known.get(profile, Rate(0.0, 0))
        number = before.observations + 1
        known[profile] = Rate(before.steps_per_s + (rate - before.steps_per_s) / number, number)
        self.at_s[key] = event.at_s
