"""One job, one or more whole GPUs, never interrupted: in order of arrival, or the shortest first."""

from collections.abc import Iterable

from gpuloom.contract.plan import NO_CHANGE, Plan, Reason
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import JobView, View
from gpuloom.gpus.cluster import IdleGpus
from gpuloom.gpus.grant import Grant


class WholeFifo(Policy):
    """First come, first served; a job that does not fit makes those behind it wait."""

    def queue(self, view: View) -> Iterable[JobView]:
        return view.waiting.values()

    def decide(self, view: View) -> Plan:
        if not view.waiting or not view.idle.total:
            return NO_CHANGE
        # Nearly always one job waits, and then nothing has to be taken from a copy.
        alone = len(view.waiting) == 1
        idle = view.idle if alone else view.idle.copy()
        grants, reasons = {}, []
        for job in self.queue(view):
            if (job.job.mem_mib or 0) > view.cluster.least_mem_mib:
                gpus = self._with_memory(view, idle, job, taken=not alone)
            else:
                gpus = idle.first(job.job.gpus) if alone else idle.take(job.job.gpus)
            if gpus is None:
                break
            job_id = job.job.id
            grants[job_id] = tuple(map(Grant, gpus))
            reasons.append(Reason(job_id, f"GPU {', '.join(map(str, gpus))}", self.why(job)))
        return Plan(grants=grants, reasons=tuple(reasons)) if grants else NO_CHANGE

    def _with_memory(self, view: View, idle: IdleGpus, job: JobView, *, taken: bool) -> tuple[int, ...] | None:
        """In a cluster of unlike GPUs: the first idle ones that have the memory."""
        has_mib = [gpu.model.mem_mib for gpu in view.cluster.gpus]
        fitting = [
            gpu for node in view.cluster.nodes for gpu in idle.on(node) if has_mib[gpu] >= (job.job.mem_mib or 0)
        ][: job.job.gpus]
        if len(fitting) < job.job.gpus:
            return None
        for gpu in fitting if taken else ():
            idle.remove(view.cluster.node_of[gpu], gpu)
        return tuple(fitting)

    def why(self, job: JobView) -> str:  # noqa: ARG002
        return "the oldest waiting job, and enough whole GPUs are idle"


class WholeSjf(WholeFifo):
    """The shortest waiting job first: it is told the true lengths."""

    told = frozenset({"length_s"})

    def queue(self, view: View) -> Iterable[JobView]:
        return sorted(view.waiting.values(), key=lambda job: job.hints.length_s or 0.0)

    def why(self, job: JobView) -> str:
        return f"the shortest waiting job ({job.hints.length_s:.0f} s), and enough whole GPUs are idle"
