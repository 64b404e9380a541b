"""What `ones` believes of jobs whose number of GPUs never changes: rigid ones, and those on one GPU or a part of it.

Of their steps they tell little, so their work is counted in seconds of one whole GPU: how long they ran, times how fast
they are believed to be on what they hold. How fast that is on a slice is told by a probe, by batches a second on slices
that jobs of the same work have had, and before that by the prior of all workloads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuloom.contract.view import JobView, Phase, View
from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.layouts import total_slices
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.goodput.remaining import Lengths, index
from gpuloom.perf.slices.memory import RunMemory, fingerprint
from gpuloom.perf.slices.prior import prior
from gpuloom.policies.ones.beliefs import UNKNOWN_SCALING, Belief
from gpuloom.policies.ones.tuning import Tuning
from gpuloom.work.model import Kind

WHOLE = "whole"
"""What stands for a profile on GPUs that cannot be cut."""


class Steady:
    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._lengths = Lengths()
        self._seen = RunMemory()
        self._done: dict[str, tuple[float, float]] = {}
        """Of each live job: work done (seconds of one GPU), and how long it had run when that was counted."""
        self._counted: dict[str, float] = {}
        """Of each live job: when it reported what was last taken in."""

    def learn_ends(self, view: View) -> None:
        """From who has finished since the last question: that is told once."""
        for job in view.finished:
            name = self._name(job)
            if job.job.kind is not Kind.ELASTIC and name is not None:
                # It ended at some time since the last round: in the middle, for all that is known.
                self._lengths.add(name, self._work_s(view, job, unseen=0.5))

    def learn(self, view: View) -> None:
        """From how long the others ran and what they reported since the last round."""
        steady = [job for job in view.jobs.values() if job.job.kind is not Kind.ELASTIC]
        for job in steady:
            self._watch(view.cluster, job)
        self._done = {job.id: (self._work_s(view, job), ran_s(view, job)) for job in steady}
        self._counted = {job.id: self._counted[job.id] for job in steady if job.id in self._counted}

    def informed(self, jobs: Sequence[JobView], beliefs: Sequence[Belief]) -> list[Belief]:
        """With the work that is left of those of the jobs that are steady."""
        furthest: dict[str | None, float] = {}
        for job in jobs:
            furthest[self._name(job)] = max(furthest.get(self._name(job), 0.0), self._done_s(job))
        return [
            belief if job.job.kind is Kind.ELASTIC else self._one(job, belief, furthest[self._name(job)])
            for job, belief in zip(jobs, beliefs, strict=True)
        ]

    def speeds(self, job: JobView, model: GpuModel) -> dict[str, float]:
        """On the profiles that have the memory and keep what it was promised, relative to the whole GPU."""
        if not model.mig:
            return {WHOLE: 1.0} if model.mem_mib >= (job.job.mem_mib or 0) else {}
        most = total_slices(model)
        believed = job.estimates or {profile.name: prior(profile.slices / most) for profile in model.profiles}
        key = self._key(job)
        found = believed if key is None else self._seen.correct(key, model, believed)
        # Who has run out of memory without having said how much it needs may need all there is.
        whole_only = job.crashes > 0 and job.job.mem_mib is None
        return {
            profile.name: 1.0 if profile.slices == most else found[profile.name].speed
            for profile in model.profiles
            if profile.name in found
            and profile.mem_mib >= (job.job.mem_mib or 0)
            and (profile.slices == most or (not whole_only and found[profile.name].low >= (job.job.min_speed or 0.0)))
        }

    def _one(self, job: JobView, belief: Belief, furthest: float) -> Belief:
        done_s, name = self._done_s(job), self._name(job)
        left_s = index(self._lengths.left(name, done_s, furthest))
        return replace(belief, work_s=left_s, known=left_s > 0)

    def _name(self, job: JobView) -> str | None:
        return job.job.workload if self._tuning.by_name else None

    def _key(self, job: JobView) -> str | None:
        return fingerprint(job.job) if self._tuning.by_name else f"job {job.id}"

    def _done_s(self, job: JobView) -> float:
        return self._done.get(job.id, (0.0, 0.0))[0]

    def _work_s(self, view: View, job: JobView, unseen: float = 1.0) -> float:
        """What was counted, and this part of the time that it ran since."""
        work_s, counted_s = self._done.get(job.id, (0.0, 0.0))
        return work_s + unseen * max(ran_s(view, job) - counted_s, 0.0) * self._speed_now(view.cluster, job)

    def _speed_now(self, cluster: Cluster, job: JobView) -> float:
        if len(job.held) != 1 or job.held[0].instance is None:
            return float(len(job.held) ** UNKNOWN_SCALING)
        profile = job.held[0].instance.profile
        return self.speeds(job, cluster.gpus[job.held[0].gpu].model).get(profile, 1.0)

    def _watch(self, cluster: Cluster, job: JobView) -> None:
        """How fast a job is that has a slice, or a GPU that can be cut, for itself."""
        report, key = job.report, self._key(job)
        if (
            report is None
            or not report.batches_per_s
            or key is None
            or len(job.held) != 1
            or job.held[0].share_pct < 100
        ):
            return
        model, instance = cluster.gpus[job.held[0].gpu].model, job.held[0].instance
        settled = job.phase is Phase.RUNNING and report.at_s >= job.since_s
        if model.mig and settled and self._counted.get(job.id) != report.at_s:
            self._counted[job.id] = report.at_s
            profile = whole_profile(model) if instance is None else instance.profile
            self._seen.observe(key, model, profile, report.batches_per_s)

    # ---- memory ------------------------------------------------------------------------------------------------

    def remember(self) -> dict[str, Any]:
        """Nothing, where there has been nobody to learn from."""
        found = {
            "finished": self._lengths.finished,
            "seen": self._seen.remember(),
            "done": self._done,
            "counted": self._counted,
        }
        return found if any(found.values()) else {}

    def restore(self, memory: Mapping[str, Any]) -> None:
        if not memory:
            return
        for name, lengths in dict(memory["finished"]).items():
            for length in lengths:
                self._lengths.add(name, float(length))
        self._seen.restore(memory["seen"])
        self._done = {job_id: (float(work_s), float(ran)) for job_id, (work_s, ran) in dict(memory["done"]).items()}
        self._counted = {job_id: float(at_s) for job_id, at_s in dict(memory["counted"]).items()}


def ran_s(view: View, job: JobView) -> float:
    return job.ran_s + (max(view.now_s - job.since_s, 0.0) if job.phase is Phase.RUNNING else 0.0)


def whole_profile(model: GpuModel) -> str:
    """The profile that is all of the GPU; what is given there is the uncut GPU."""
    if not model.mig:
        return WHOLE
    return next(profile.name for profile in base_profiles(model) if profile.slices == total_slices(model))
