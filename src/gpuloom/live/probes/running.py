"""The probes that are under way on this machine: who is measured, with which share, and what the engine is told."""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuloom.contract.view import JobView, Phase
from gpuloom.engine.events import GpuProbed
from gpuloom.gpus.host.cgroups import Group
from gpuloom.live.launch import limits_of
from gpuloom.live.probes.measure import Count, Rates, measure
from gpuloom.live.store import Progress

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody


class Probing:
    def __init__(self, body: "LocalBody") -> None:
        self._body = body
        self._probes: dict[int, Generator[None, None, dict[str, Rates]]] = {}
        self._levelled: dict[str, int] = {}
        """Jobs that were given a level, and on which GPU: whatever becomes of them, it ends with the probe."""
        self._probed_start: dict[str, int] = {}
        """Which start of a job is being measured: one that crashed and came back elsewhere is not."""

    @property
    def active(self) -> bool:
        return bool(self._probes)

    def clear(self) -> None:
        self._probes.clear()
        self._levelled.clear()

    def begin(self, gpu: int, job_ids: tuple[str, ...]) -> None:
        jobs = self._body.engine.state.jobs
        # The same turn may have seen one end, or move elsewhere.
        there = [job_id for job_id in job_ids if job_id in jobs and _runs_on(jobs[job_id], gpu)]
        self._probed_start |= {job_id: jobs[job_id].starts for job_id in there}
        self._levelled |= dict.fromkeys(there, gpu)
        self._probes[gpu] = measure(self, there, self._body.timing.level_s)

    def advance(self) -> None:
        for gpu in list(self._probes):
            try:
                next(self._probes[gpu])
            except StopIteration as done:
                del self._probes[gpu]
                self._probed(gpu, done.value)

    def _probed(self, gpu: int, rates: dict[str, Rates]) -> None:
        body, state = self._body, self._body.engine.state
        there = {job_id: view.job for job_id in rates if (view := state.jobs.get(job_id)) is not None}
        model = state.cluster.gpus[gpu].model
        found = body.settings.predict(list(there.values()), [rates[job_id] for job_id in there], model)
        estimates = dict(zip(there, found, strict=True))
        body.tell(GpuProbed(body.now_s(), "probed side by side", gpu, estimates))
        for job_id in [job_id for job_id, where in self._levelled.items() if where == gpu]:
            del self._levelled[job_id]
            job = body.jobs.get(job_id)
            if job_id in body.launching or (job is not None and not job.stopping and job.launch.share_pct is not None):
                self.reshare(job_id, None)  # it stays: with the share that it was granted

    # ---- the jobs that are measured, for `measure` -----------------------------------------------------------------

    def now_s(self) -> float:
        return self._body.now_s()

    def reshare(self, job_id: str, share_pct: float | None) -> None:
        body = self._body
        if job_id in body.launching:
            body.launching.reshare(job_id, share_pct)
            return
        job = body.jobs[job_id]
        own = limits_of(body.engine.state.jobs[job_id].job)
        if body.devices.reshare(job.launch.group, own, job.grants[0], share_pct):
            job.launch = replace(job.launch, share_pct=share_pct)
            return
        job.next_share_pct, job.up = share_pct, False
        body.ask_to_leave(job, save=True)

    def is_there(self, job_id: str) -> bool:
        if job_id in self._body.launching:  # on its way back, or to somewhere else
            view = self._body.engine.state.jobs.get(job_id)
            return view is not None and view.starts == self._probed_start.get(job_id)
        job = self._body.jobs.get(job_id)
        return job is not None and not job.stopping and job.launch.start == self._probed_start.get(job_id)

    def is_up(self, job_id: str) -> bool:
        job = self._body.jobs.get(job_id)
        return job is not None and job.up and job.kill_at_s is None

    def progress(self, job_id: str) -> Progress | None:
        job = self._body.jobs.get(job_id)
        return None if job is None else job.launch.progress()

    def used_s(self, job_id: str) -> float | None:
        group, cpus = self._counted(job_id)
        cpu_s = None if group is None or cpus is None else group.cpu_s()
        return None if cpu_s is None or cpus is None else cpu_s / cpus * self._body.clock.pace

    def count(self, job_id: str) -> Count:
        group, cpus = self._counted(job_id)
        if group is None or cpus is None:
            return Count({})
        return Count(group.threads_s(), min(1.0 / cpus, 1.0))

    def _counted(self, job_id: str) -> tuple[Group | None, float | None]:
        """Where its time is counted, and how much of it the device has in a second."""
        job = self._body.jobs.get(job_id)
        return (None, None) if job is None else (job.launch.group, self._body.devices.cpus(job.grants[0].gpu))


def _runs_on(view: JobView, gpu: int) -> bool:
    return view.phase is Phase.RUNNING and any(grant.gpu == gpu for grant in view.held)
