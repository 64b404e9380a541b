"""One job, one or more whole GPUs, never interrupted: in order of arrival, or the shortest first."""

from collections.abc import Iterable

from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant
from gpuloom.policies.contract import NO_CHANGE, ON_EVENTS, JobView, Plan, Reason, View


class WholeFifo:
    """First come, first served; a job that does not fit makes those behind it wait."""

    told: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.when = ON_EVENTS

    def queue(self, view: View) -> Iterable[JobView]:
        return view.waiting.values()

    def decide(self, view: View) -> Plan:
        first = next(iter(self.queue(view)), None) if view.idle.total else None
        if first is None or first.job.gpus > view.idle.total:
            return NO_CHANGE
        idle, grants, reasons = view.idle.copy(), {}, []
        for job in self.queue(view):
            gpus = idle.take(job.job.gpus)
            if gpus is None:
                break
            grants[job.id] = tuple(map(Grant, gpus))
            reasons.append(Reason(job.id, f"GPU {', '.join(map(str, gpus))}", self.why(job)))
        return Plan(grants=grants, reasons=tuple(reasons))

    def why(self, job: JobView) -> str:  # noqa: ARG002
        return "the oldest waiting job, and enough whole GPUs are idle"


class WholeSjf(WholeFifo):
    """The shortest waiting job first: it is told the true lengths."""

    told = frozenset({"length_s"})

    def queue(self, view: View) -> Iterable[JobView]:
        return sorted(view.waiting.values(), key=lambda job: job.hints.length_s or 0.0)

    def why(self, job: JobView) -> str:
        return f"the shortest waiting job ({job.hints.length_s:.0f} s), and enough whole GPUs are idle"
