"""Measuring jobs side by side at a few levels of their share, and what that says of each on each slice.

An MPS client's share is read when it creates its CUDA context and cannot be changed later, so on a GPU every level is
a restart from a checkpoint (MISO, SoCC'22, section 4: levels 100, 50 and 14 % for everybody at once). On a CPU device
it is a quota, which can be. What is measured is what the jobs report: batches done, with the time on the monotonic
clock, or else with the time at which each was seen here. In which of the two does not matter: only the ratios between
a job's levels count. A job that reports nothing is measured as nothing.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from gpuloom.contract.view import Estimates
from gpuloom.gpus.model import GpuModel
from gpuloom.live.store import Progress
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Job

LEVELS_PCT = (100.0, 50.0, 14.0)


class Rate(NamedTuple):
    batches_per_s: float
    used: float | None = None
    """What part of the device's time it had meanwhile; None where nobody counts that."""
    most: float = 1.0
    """What part of it the threads that worked could have used at once."""


Rates = Mapping[float, Rate]
"""By level; one at which the job did not report twice is absent."""

Predict = Callable[[Sequence[Job], Sequence[Rates], GpuModel], Sequence[Estimates]]
"""From what was measured of jobs side by side to the speed of each on each profile that has the memory for it."""

UNCERTAIN = 0.2
"""Half the interval of the simple rule below. Not calibrated: it says that the rule has not been."""


class Count(NamedTuple):
    """What the kernel has counted so far; nothing of it where nobody counts."""

    threads_s: Mapping[int, float]
    """How much time each thread of the job has had, by its number."""
    one_thread: float = 1.0
    """What part of the device one can use at once."""


class Subjects(Protocol):
    """The jobs that are measured, in the hands of whoever runs them."""

    def now_s(self) -> float: ...
    def reshare(self, job_id: str, share_pct: float | None) -> None:
        """Give it this share; None: its grant's. Where it must, have it save, leave, and come back."""

    def is_there(self, job_id: str) -> bool:
        """It has neither ended nor been told to stop."""

    def is_up(self, job_id: str) -> bool:
        """It works with the share that it was last given."""

    def progress(self, job_id: str) -> Progress | None: ...
    def used_s(self, job_id: str) -> float | None:
        """Of the device's time, so much it has had so far; None where nobody counts that."""

    def count(self, job_id: str) -> Count: ...


def measure(subjects: Subjects, job_ids: Sequence[str], level_s: float) -> Generator[None, None, dict[str, Rates]]:
    """Rates of those who are still there at the end. Yields whenever there is nothing to do but wait."""
    rates: dict[str, dict[float, Rate]] = {job_id: {} for job_id in job_ids}
    for level_pct in LEVELS_PCT:
        for job_id in _there(subjects, job_ids):
            subjects.reshare(job_id, level_pct)
        while not all(map(subjects.is_up, _there(subjects, job_ids))):
            yield
        watched = {job_id: _Watched(subjects.count(job_id)) for job_id in _there(subjects, job_ids)}
        until_s = subjects.now_s() + level_s
        _look(subjects, watched)
        while subjects.now_s() < until_s:
            yield
            _look(subjects, watched)
        for job_id in _there(subjects, job_ids):
            rate = watched[job_id].rate(subjects.count(job_id)) if job_id in watched else None
            if rate is not None:
                rates[job_id][level_pct] = rate
    return {job_id: rates[job_id] for job_id in _there(subjects, job_ids)}


def _there(subjects: Subjects, job_ids: Sequence[str]) -> list[str]:
    return [job_id for job_id in job_ids if subjects.is_there(job_id)]


class Sight(NamedTuple):
    """A report, when it was seen, and how much of the device's time the job had had by then."""

    progress: Progress
    at_s: float
    used_s: float | None


@dataclass(slots=True)
class _Watched:
    """What one job reports during one level."""

    count: Count
    """At its beginning."""
    began: Progress | None = None
    """The first report that was found: its batch may have been done long before."""
    first: "Sight | None" = None
    """The first that came while we looked."""
    last: "Sight | None" = None

    def see(self, progress: Progress, now_s: float, used_s: float | None = None) -> None:
        if self.began is None:
            self.began = progress
        elif progress.step != (self.began if self.last is None else self.last[0]).step:
            self.last = Sight(progress, now_s, used_s)
            self.first = self.first or self.last

    def rate(self, count: Count) -> Rate | None:
        """None if too few were seen. `count`: at its end."""
        if self.began is None or self.first is None or self.last is None:
            return None
        # A job that did not have to be launched again may have done its first batch with two shares.
        before = self.began if self.first.used_s is None else self.first.progress
        after = self.last.progress
        if before.at_monotonic_s is not None and after.at_monotonic_s is not None:
            passed_s = after.at_monotonic_s - before.at_monotonic_s
        else:
            before, passed_s = self.first.progress, self.last.at_s - self.first.at_s
        done = after.step - before.step
        if done <= 0 or passed_s <= 0:
            return None
        return Rate(done / passed_s, _part(self.first, self.last), _most(self.count, count))


def _part(first: "Sight", last: "Sight") -> float | None:
    """Of the device's time."""
    if first.used_s is None or last.used_s is None:
        return None
    return max(last.used_s - first.used_s, 0.0) / (last.at_s - first.at_s)


def _most(before: Count, after: Count) -> float:
    """What its threads can use at once: as many work side by side as the busiest of them would fill with all work."""
    worked_s = [used_s - before.threads_s.get(thread, 0.0) for thread, used_s in after.threads_s.items()]
    busiest_s = max(worked_s, default=0.0)
    return min(sum(worked_s) / busiest_s * after.one_thread, 1.0) if busiest_s > 0 else 1.0


def _look(subjects: Subjects, watched: Mapping[str, _Watched]) -> None:
    for job_id in _there(subjects, list(watched)):
        progress = subjects.progress(job_id)
        if progress is not None:
            watched[job_id].see(progress, subjects.now_s(), subjects.used_s(job_id))


def by_share(jobs: Sequence[Job], rates: Sequence[Rates], model: GpuModel) -> list[Estimates]:
    """The simple rule, where no trained predictor can be asked: a slice of s/7 is as fast as s/7 of the SMs under MPS.

    Straight lines between the measured levels. Without a measurement: in proportion, and nothing is certain.
    """
    return [_by_share(job, measured, model) for job, measured in zip(jobs, rates, strict=True)]


def _by_share(job: Job, rates: Rates, model: GpuModel) -> Estimates:
    most = max(profile.slices for profile in model.profiles)
    full = rates[100.0].batches_per_s if 100.0 in rates else None
    points = (
        [(0.0, 0.0), *sorted((level / 100, rate.batches_per_s / full) for level, rate in rates.items())] if full else []
    )
    estimates = {}
    for profile in model.profiles:
        if profile.mem_mib < (job.mem_mib or 0):
            continue
        share = profile.slices / most
        speed = min(max(_between(points, share), 0.01), 1.0) if points else share
        near = UNCERTAIN if points else 1.0
        estimates[profile.name] = Estimate(speed, max(speed - near, 0.01), min(speed + near, 1.0))
    return estimates


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]
