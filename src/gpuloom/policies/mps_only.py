"""No cutting: up to K jobs share each GPU under MPS, each with an equal percentage: `mps-only:2`."""

from heapq import heapify, heappop

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import JobView, View
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import MOST_SHARERS, Grant, Grants
from gpuloom.work.model import Kind


class MpsOnly(Policy):
    """First come, first served, on the GPU with the fewest jobs that still has the memory.

    The percentage is fixed at 100/K: another one would bind only new processes, so every change would be a restart.
    """

    uses_mps = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        if not (arg or "2").isdecimal() or not 1 <= int(arg or 2) <= MOST_SHARERS:
            raise InputError(f"mps-only:{arg}: expected a number of jobs per GPU from 1 to {MOST_SHARERS}")
        self.slots = int(arg or 2)

    def decide(self, view: View) -> Plan:
        grants: dict[str, Grants] = {}
        reasons = []
        placed: dict[int, list[JobView]] = {}
        """Jobs that this plan adds to a GPU."""
        for job in view.waiting.values():
            fitting = [
                (len(seen.tenants) + len(placed.get(gpu, ())), gpu) for gpu, seen in view.gpus.items() if not seen.lost
            ]
            heapify(fitting)
            while fitting and not self._fits(view, job, *fitting[0], placed):
                heappop(fitting)
            if not fitting:
                break
            jobs, gpu = heappop(fitting)
            others = tuple((f"GPU {other}", float(load)) for load, other in fitting[:3])
            reasons.append(Reason(job.id, f"GPU {gpu}", "the fewest jobs on it", float(jobs), others))
            grants[job.id] = (Grant(gpu, None, 100 / self.slots),)
            placed.setdefault(gpu, []).append(job)
        return Plan(grants=grants, reasons=tuple(reasons))

    def _fits(self, view: View, job: JobView, jobs: int, gpu: int, placed: dict[int, list[JobView]]) -> bool:
        if jobs >= self.slots or job.job.kind is not Kind.SLICEABLE:
            return False
        residents = [*(view.jobs[job_id] for job_id in view.gpus[gpu].tenants), *placed.get(gpu, ()), job]
        return sum(resident.job.mem_mib or 0 for resident in residents) <= view.cluster.gpus[gpu].model.mem_mib
