"""The same cut on every GPU, for ever: `static:3,2,2`. Jobs take the slices in order of arrival."""

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import JobView, View
from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster, Gpu
from gpuloom.gpus.grant import Device, Grant, Grants
from gpuloom.gpus.model import Layout, Profile
from gpuloom.work.model import Kind


class Static(Policy):
    """First come, first served: the GPU with the fewest jobs, its largest free slice. A larger slice that nobody waits
    for goes to the job on the smallest slice of the cluster: MISO's authors gave their static baseline that rule.
    """

    cuts = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "3,2,2") -> None:  # noqa: ARG002
        self.arg = arg
        self.cut: dict[int, Layout] = {}
        self.profile: dict[Device, Profile] = {}
        for gpu in cluster.gpus:
            self._add(gpu, layouts.parse(gpu.model, arg))
        if not all(self.cut.values()):
            raise InputError(f"static:{arg}: expected a layout such as static:3,2,2 on GPUs that have MIG")

    def _add(self, gpu: Gpu, cut: Layout) -> None:
        self.cut[gpu.index] = cut
        self.profile |= {(gpu.index, instance): gpu.model.by_name[instance.profile] for instance in cut}

    def _welcome(self, cluster: Cluster) -> None:
        """GPUs that have joined. One that cannot be cut like the others stays as it is, and unused."""
        for gpu in cluster.gpus[len(self.cut) :]:
            try:
                self._add(gpu, layouts.parse(gpu.model, self.arg))
            except InputError:
                self._add(gpu, ())

    def decide(self, view: View) -> Plan:
        self._welcome(view.cluster)
        uncut = {gpu: cut for gpu, cut in self.cut.items() if view.gpus[gpu].layout != cut and not view.gpus[gpu].lost}
        taken = {grant.device: job.id for job in view.jobs.values() for grant in job.grants}
        free = [device for device in self.profile if device not in taken and not view.gpus[device[0]].lost]
        load = {gpu: len(seen.tenants) for gpu, seen in view.gpus.items()}
        grants: dict[str, Grants] = {}
        reasons: list[Reason] = []
        for job in view.waiting.values():
            fitting = [device for device in free if self._fits(job, device)]
            if not fitting:
                break
            fitting.sort(key=lambda device: (load[device[0]], -self.profile[device].sms, device))
            self._give(
                job, fitting[0], "the largest free slice on the GPU with the fewest jobs", fitting, grants, reasons
            )
            free.remove(fitting[0])
            load[fitting[0][0]] += 1
        if len(grants) == len(view.waiting):
            self._move_up(view, free, taken, grants, reasons)
        return Plan(uncut, grants, tuple(reasons))

    def _fits(self, job: JobView, device: Device) -> bool:
        return job.job.kind is Kind.SLICEABLE and self.profile[device].mem_mib >= (job.job.mem_mib or 0)

    def _give(
        self,
        job: JobView,
        device: Device,
        why: str,
        options: list[Device],
        grants: dict[str, Grants],
        reasons: list[Reason],
    ) -> None:
        grants[job.id] = (Grant(*device),)
        others = tuple((_name(other), float(self.profile[other].sms)) for other in options[:4] if other != device)
        reasons.append(Reason(job.id, _name(device), why + " (SMs)", float(self.profile[device].sms), others))

    def _move_up(
        self, view: View, free: list[Device], taken: dict[Device, str], grants: dict[str, Grants], reasons: list[Reason]
    ) -> None:
        """Nobody waits: each free slice, the largest first, goes to the job on the smallest one, if that is smaller."""
        for device in sorted(free, key=lambda device: (-self.profile[device].sms, device)):
            seats = [seat for seat, job_id in taken.items() if job_id not in grants]
            smallest = min(seats, key=lambda seat: (self.profile[seat].sms, seat), default=None)
            if smallest is None or self.profile[smallest].sms >= self.profile[device].sms:
                return
            self._give(view.jobs[taken[smallest]], device, "a larger slice is free", [smallest], grants, reasons)


def _name(device: Device) -> str:
    return f"GPU {device[0]} {device[1]}"
