"""Everything the engine knows, and the few ways in which it changes. No decisions here."""

from collections import OrderedDict
from typing import Any, NamedTuple

from gpuloom.contract.view import NOTHING_BEFORE, GpuView, JobView, Phase, SeenBefore
from gpuloom.gpus.cluster import Cluster, Gpu, IdleGpus
from gpuloom.gpus.grant import Device, Grants


class Rescaling(NamedTuple):
    before: Grants
    after: Grants


class State:
    """Jobs, GPUs and who is where. `grants` and `layout` are what is planned; `held` and `actual` what is."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now_s = 0.0
        self.jobs: dict[str, JobView] = {}
        self.waiting: OrderedDict[str, JobView] = OrderedDict()
        self.gpus: dict[int, GpuView] = {gpu.index: GpuView(gpu.index) for gpu in cluster.gpus}
        self.idle = IdleGpus(cluster, self.gpus)
        self.held: dict[Device, dict[str, float]] = {}
        """Share of each device that each job occupies at this moment."""
        self.left: set[int] = set()
        """GPUs that are lost for good."""
        self.frozen: set[int] = set()
        """GPUs that are lost only to plans, since they could not be cut: who works there goes on."""
        self.rescaling: dict[str, Rescaling] = {}
        """Jobs that were told to go on with other grants and have not answered. They hold those of before and after."""
        self.cancelled: set[str] = set()
        """Jobs that are told to stop and will not come back. They wait for nothing."""
        self.arrivals = 0
        self.order: dict[str, int] = {}
        """Number of arrival of each live job."""
        self.next_wake_s: float | None = None
        self.last_tick_s: float | None = None
        self.changed = False
        """Something that matters has happened since the policy was last asked."""
        self.finished: list[JobView] = []
        """Who completed since the policy was last asked."""
        self.earlier: SeenBefore = NOTHING_BEFORE
        """What earlier runs saw."""
        self.completed = 0
        self.given_up = 0
        self.plans_accepted = 0
        self.plans_rejected = 0

    def admit(self, job: JobView) -> None:
        self.jobs[job.id] = job
        self.order[job.id] = self.arrivals
        self.arrivals += 1
        self.waiting[job.id] = job

    def join(self, gpu: Gpu) -> None:
        """One more GPU, idle and uncut."""
        self.cluster = self.cluster.with_gpu(gpu)
        self.gpus[gpu.index] = GpuView(gpu.index)
        self.idle.join(gpu.node, gpu.index)

    def put(self, job: JobView) -> None:
        """Replace a job's record."""
        job_id = job.job.id
        self.jobs[job_id] = job
        if not job.grants and job_id not in self.cancelled:
            self._wait(job_id, job)
        elif job_id in self.waiting:
            del self.waiting[job_id]

    def _wait(self, job_id: str, job: JobView) -> None:
        newcomer = job_id not in self.waiting
        youngest = next(reversed(self.waiting), None)
        self.waiting[job_id] = job
        if newcomer and youngest is not None and self.order[youngest] > self.order[job_id]:
            # A job that comes back takes its old place in the queue.
            for other in sorted(self.waiting, key=self.order.__getitem__):
                self.waiting.move_to_end(other)

    def forget(self, job_id: str) -> None:
        """The job has ended: nothing of it is kept."""
        job = self.jobs.pop(job_id)
        self.release(job)
        self.leave(job_id, job.grants)
        self.waiting.pop(job_id, None)
        self.cancelled.discard(job_id)
        del self.order[job_id]

    def occupy(self, job: JobView, grants: Grants) -> None:
        """Its processes now sit on these devices."""
        for grant in grants:
            self.held.setdefault(grant.device, {})[job.job.id] = grant.share_pct

    def release(self, job: JobView) -> None:
        """Its processes are gone from what it held."""
        self.rescaling.pop(job.job.id, None)
        for grant in job.held:
            on_device = self.held[grant.device]
            del on_device[job.job.id]
            if not on_device:
                del self.held[grant.device]

    def settle_in(self, job_id: str, grants: Grants) -> None:
        """Plan the job on these GPUs (it has at most one grant on each)."""
        for grant in grants:
            view = self.gpus[grant.gpu]
            if not view.tenants and not view.lost:
                self.idle.remove(self.cluster.node_of[grant.gpu], grant.gpu)
            self.gpus[grant.gpu] = view._replace(tenants=(*view.tenants, job_id))

    def leave(self, job_id: str, grants: Grants) -> None:
        """Plan the job no longer on these GPUs."""
        for grant in grants:
            view = self.gpus[grant.gpu]
            tenants = tuple([tenant for tenant in view.tenants if tenant != job_id])
            self.gpus[grant.gpu] = view._replace(tenants=tenants)
            if not tenants and not view.lost:
                self.idle.add(self.cluster.node_of[grant.gpu], grant.gpu)

    def plan_grants(self, job_id: str, grants: Grants) -> None:
        job = self.jobs[job_id]
        self.leave(job_id, job.grants)
        self.settle_in(job_id, grants)
        self.put(job._replace(grants=grants))

    def enter(self, job: JobView, phase: Phase, **changes: Any) -> None:
        """Put the job into another phase, from now on."""
        ran_s = job.ran_s + (self.now_s - job.since_s if job.phase is Phase.RUNNING else 0.0)
        self.put(job._replace(phase=phase, since_s=self.now_s, ran_s=ran_s, **changes))
