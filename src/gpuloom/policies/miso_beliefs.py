"""What `miso` believes of each workload: a prior, what probes predicted, and what runs on real slices have shown.

A measured run beats a prediction, and a prediction beats the prior. Kept by workload, so that the second job of a kind
needs no probe; a job without a name for its workload is a kind of its own.
"""

from collections.abc import Mapping

from gpuloom.gpus.model import GpuModel
from gpuloom.policies.contract import Estimate, Estimates, JobView, Phase

PRIOR = {7: (1.0, 1.0), 4: (0.57, 0.97), 3: (0.51, 0.95), 2: (0.30, 0.85), 1: (0.16, 0.65)}
"""Range of the relative speed by compute slices (of seven), before anything is known: 9 in 10 measured workloads."""

Rates = dict[str, float]


class Beliefs:
    def __init__(self) -> None:
        self.version = 0
        """Raised with every change, so that whatever was computed from a belief can be forgotten."""
        self._predicted: dict[str, Estimates] = {}
        self._rates: dict[str, Rates] = {}
        self._counted: dict[str, float] = {}

    def learn(self, jobs: Mapping[str, JobView]) -> None:
        """Take in what the view shows: new predictions, and rates of jobs that have a device for themselves."""
        for job_id in [job_id for job_id in self._counted if job_id not in jobs]:
            del self._counted[job_id]
        for job in jobs.values():
            key = workload_of(job)
            if job.estimates is not None and self._predicted.get(key) is not job.estimates:
                if self._predicted.get(key) != job.estimates:
                    self.version += 1
                self._predicted[key] = job.estimates
            report = job.report
            if report is None or report.batches_per_s is None or self._counted.get(job.id) == report.at_s:
                continue
            self._counted[job.id] = report.at_s
            if job.phase is Phase.RUNNING and len(job.held) == 1 and job.held[0].instance is not None:
                profile, rates = job.held[0].instance.profile, self._rates.setdefault(key, {})
                if rates.get(profile) != report.batches_per_s:
                    rates[profile] = report.batches_per_s
                    self.version += 1

    def is_unknown(self, job: JobView) -> bool:
        """Only the prior speaks of it."""
        key = workload_of(job)
        return key not in self._predicted and len(self._rates.get(key, ())) < 2

    def of(self, job: JobView, model: GpuModel) -> Estimates:
        """Speeds on the profiles that have the memory and keep what the job was promised."""
        key, most = workload_of(job), max(profile.slices for profile in model.profiles)
        predicted, rates = self._predicted.get(key), self._rates.get(key, {})
        whole = next(
            (rates[profile.name] for profile in model.profiles if profile.slices == most and profile.name in rates),
            None,
        )
        need_mib, floor = job.job.mem_mib or 0, job.job.min_speed or 0.0
        believed = {}
        for profile in model.profiles:
            if profile.mem_mib < need_mib or (predicted is not None and profile.name not in predicted):
                continue
            if whole is not None and profile.name in rates:
                speed = rates[profile.name] / whole
                estimate = Estimate(speed, speed, speed)
            elif predicted is not None:
                estimate = predicted[profile.name]
            else:
                estimate = _prior(profile.slices / most)
            if estimate.speed >= floor:
                believed[profile.name] = estimate
        return believed


def workload_of(job: JobView) -> str:
    return job.job.workload or job.id


def _prior(share: float) -> Estimate:
    slices = max(1, round(share * 7))
    low, high = PRIOR[min(PRIOR, key=lambda known: abs(known - slices))]
    return Estimate((low + high) / 2, low, high)
