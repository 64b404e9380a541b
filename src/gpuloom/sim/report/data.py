"""What a report is made of: the figures, segments and curves of each run. Knows nothing of pages."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from gpuloom.sim.metrics import FRAGMENTATION, QUEUE, USE
from gpuloom.sim.run import Result
from gpuloom.sim.timeline import Segment

Points = Sequence[tuple[float, float]]
"""(start of a stretch in seconds, mean over it)."""


@dataclass(frozen=True, slots=True)
class RunData:
    """One run, as a report shows it."""

    policy: str
    seed: int
    gpus: str
    """As on the command line: 8xA100-40GB."""
    summary: Mapping[str, float | int | None]
    """The fields of `metrics.Summary` by name."""
    segments: Sequence[Segment]
    """Empty if the run kept no timeline; the report then has no Gantt chart for it."""
    queue: Points
    utilisation: Points
    fragmentation: Points

    @property
    def end_s(self) -> float:
        last_s = max((points[-1][0] for points in (self.queue, self.utilisation) if points), default=0.0)
        return max((segment.end_s for segment in self.segments), default=last_s)


def run_data(result: Result, gpus: str) -> RunData:
    """What a report needs of a run; for the Gantt chart, of one that was simulated with `timeline=True`."""
    curves, timeline = result.curves, result.timeline
    return RunData(
        policy=result.policy,
        seed=result.seed,
        gpus=gpus,
        summary=asdict(result.summary),
        segments=() if timeline is None else timeline.segments,
        queue=() if curves is None else curves.points(QUEUE),
        utilisation=() if curves is None else curves.points(USE),
        fragmentation=() if curves is None else curves.points(FRAGMENTATION),
    )
