"""No cutting: up to K jobs share each GPU under MPS, each with an equal percentage: `mps-only:2`."""

from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant
from gpuloom.policies.contract import ON_EVENTS, Plan, Reason, View
from gpuloom.work.model import Kind

MOST_CLIENTS = 48
"""What one MPS server can serve."""


class MpsOnly:
    """First come, first served, on the GPU with the fewest jobs that still has the memory.

    The percentage is fixed at 100/K: another one would bind only new processes, so every change would be a restart.
    """

    told: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.when = ON_EVENTS
        if not (arg or "2").isdecimal() or not 1 <= int(arg or 2) <= MOST_CLIENTS:
            raise InputError(f"mps-only:{arg}: expected a number of jobs per GPU from 1 to {MOST_CLIENTS}")
        self.slots = int(arg or 2)

    def decide(self, view: View) -> Plan:
        if not view.waiting:
            return Plan()
        tenants = {gpu: [*seen.tenants] for gpu, seen in view.gpus.items() if not seen.lost}
        free_mib = {
            gpu: view.cluster.gpus[gpu].model.mem_mib - sum(view.jobs[job_id].job.mem_mib or 0 for job_id in jobs)
            for gpu, jobs in tenants.items()
        }
        grants, reasons = {}, []
        for job in view.waiting.values():
            need_mib = job.job.mem_mib or 0
            fitting = [gpu for gpu, jobs in tenants.items() if len(jobs) < self.slots and free_mib[gpu] >= need_mib]
            if not fitting or job.job.gpus > 1 or job.job.kind is Kind.ELASTIC:
                break
            gpu = min(fitting, key=lambda gpu: (len(tenants[gpu]), gpu))
            others = tuple((f"GPU {other}", float(len(tenants[other]))) for other in fitting[:4] if other != gpu)
            reasons.append(Reason(job.id, f"GPU {gpu}", "the fewest jobs on it", float(len(tenants[gpu])), others))
            grants[job.id] = (Grant(gpu, None, 100 / self.slots),)
            tenants[gpu].append(job.id)
            free_mib[gpu] -= need_mib
        return Plan(grants=grants, reasons=tuple(reasons))
