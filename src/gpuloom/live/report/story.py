"""What a run was, in figures: each job, each device, each probe beside what was seen afterwards. Pure.

All times are the engine's seconds, from the start of the run; `real_s` makes real ones of them. What is not known is
None. Knows nothing of pages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpuloom.contract.plan import Reason
from gpuloom.engine.events import GpuProbed
from gpuloom.engine.machine import Decision
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import GpuModel
from gpuloom.live.report.replay import Course, Doing, LayoutSpan, Rate, Replay, Segment, replay
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Job

WHOLE = "whole"
"""As the job is told, where a device is not cut."""
NOT_SUBMITTED = "not submitted"
AT_WORK = (Doing.RUNNING, Doing.PROBING, Doing.RESIZING)

References = dict[tuple[str, str], float]
"""Batches a second on all of a device, by job and model of device."""


@dataclass(frozen=True, slots=True)
class JobStory:
    id: str
    state: str
    """completed, given up, not submitted; or the phase in which the log leaves it."""
    submitted_s: float | None
    ended_s: float | None
    waited_s: float
    """Seconds without a device, all of them."""
    ran_s: float
    """Seconds at work, also while it was probed or resized; neither starting nor stopping."""
    starts: int
    rescales: int
    crashes: int
    cause: str | None
    segments: tuple[Segment, ...]

    @property
    def completion_s(self) -> float | None:
        """From its submission to its completion."""
        if self.state != "completed" or self.submitted_s is None or self.ended_s is None:
            return None
        return self.ended_s - self.submitted_s

    @property
    def restarts(self) -> int:
        return max(self.starts - 1, 0)


@dataclass(frozen=True, slots=True)
class DeviceStory:
    index: int
    model: GpuModel
    spans: tuple[LayoutSpan, ...]

    @property
    def name(self) -> str:
        return device_name(self.index, self.model)


@dataclass(frozen=True, slots=True)
class SeenSpeed:
    """What a job reported from one kind of device, taken together."""

    job_id: str
    model: str
    profile: str
    reports: int
    batches_per_s: float
    """The median."""
    relative: float | None
    """To the same job on the whole device, or on the profile with all its slices; None if it was never seen there."""


@dataclass(frozen=True, slots=True)
class Prediction:
    job_id: str
    profile: str
    predicted: Estimate
    batches_per_s: float | None
    """What it then reported from there, up to its next probe: the median; None: not seen."""
    seen: float | None
    """The same relative to all of the device, as the prediction is; None if it was never seen on that."""


@dataclass(frozen=True, slots=True)
class ProbeStory:
    at_s: float
    gpu: int
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """One reason of one decision."""

    at_s: float
    cause: str
    reason: Reason
    rejected: str | None


@dataclass(frozen=True, slots=True)
class RunStory:
    policy: str
    gpus: str
    pace: float
    """Engine seconds in one real second."""
    end_s: float
    jobs: tuple[JobStory, ...]
    devices: tuple[DeviceStory, ...]
    speeds: tuple[SeenSpeed, ...]
    probes: tuple[ProbeStory, ...]
    decided: tuple[Decided, ...]

    def real_s(self, engine_s: float) -> float:
        return engine_s / self.pace

    @property
    def completed(self) -> tuple[JobStory, ...]:
        return tuple(job for job in self.jobs if job.state == "completed")

    @property
    def mean_completion_s(self) -> float | None:
        """Of the jobs that completed."""
        times = [job.completion_s for job in self.completed if job.completion_s is not None]
        return fmean(times) if times else None

    @property
    def makespan_s(self) -> float | None:
        """From the first submission to the last completion; None unless every job completed."""
        begun = [job.submitted_s for job in self.jobs if job.submitted_s is not None]
        ended = [job.ended_s for job in self.completed if job.ended_s is not None]
        return max(ended) - min(begun) if self.jobs and len(ended) == len(self.jobs) else None


def run_story(lines: Iterable[str], name: str, jobs: Sequence[Job], pace: float = 1.0) -> RunStory:
    """From the lines of a run's log, whose name is for errors, and the jobs that were asked for."""
    seen = replay(lines, name)
    models = [gpu.model for gpu in seen.cluster.gpus]
    references = _references(seen.rates, models)
    return RunStory(
        seen.header.policy,
        seen.header.gpus,
        pace,
        seen.end_s,
        tuple(_job(job.id, seen) for job in jobs),
        tuple(DeviceStory(index, model, seen.spans[index]) for index, model in enumerate(models)),
        tuple(_speeds(seen.rates, models, references)),
        tuple(_probe(at, seen, models, references) for at in range(len(seen.probes))),
        tuple(decided for decision in seen.decisions for decided in _decided(decision)),
    )


def device_name(index: int, model: GpuModel) -> str:
    return f"{model.noun} {index}"


def profile_of(grant: Grant) -> str:
    return WHOLE if grant.instance is None else grant.instance.profile


def _job(job_id: str, seen: Replay) -> JobStory:
    course = seen.courses.get(job_id)
    if course is None:
        return JobStory(job_id, NOT_SUBMITTED, None, None, 0.0, 0.0, 0, 0, 0, None, ())
    segments = seen.segments[job_id]
    ran_s = sum(part.lasted_s for part in segments if part.doing in AT_WORK)
    return JobStory(
        job_id,
        course.state,
        course.arrived_s,
        course.ended_s,
        _waited_s(course, segments, seen.end_s),
        ran_s,
        course.starts,
        course.rescales,
        course.crashes,
        course.cause,
        segments,
    )


def _waited_s(course: Course, segments: Sequence[Segment], end_s: float) -> float:
    there_s = (end_s if course.ended_s is None else course.ended_s) - course.arrived_s
    return max(there_s - sum(part.lasted_s for part in segments), 0.0)


def _decided(decision: Decision) -> list[Decided]:
    return [Decided(decision.at_s, decision.cause, reason, decision.rejected) for reason in decision.plan.reasons]


# ---- predicted and seen ----------------------------------------------------------------------------------------------


def _speeds(rates: Sequence[Rate], models: Sequence[GpuModel], references: References) -> list[SeenSpeed]:
    kinds: dict[tuple[str, str, str], list[float]] = {}
    for rate in rates:
        kind = rate.job_id, models[rate.grant.gpu].name, profile_of(rate.grant)
        kinds.setdefault(kind, []).append(rate.batches_per_s)
    return [
        SeenSpeed(job_id, model, profile, len(found), median(found), _over(median(found), references, job_id, model))
        for (job_id, model, profile), found in kinds.items()
    ]


def _references(rates: Sequence[Rate], models: Sequence[GpuModel]) -> References:
    """The median of what was seen where nothing of the device was kept from the job."""
    found: dict[tuple[str, str], list[float]] = {}
    for rate in rates:
        model = models[rate.grant.gpu]
        if _is_all_of(model, profile_of(rate.grant)):
            found.setdefault((rate.job_id, model.name), []).append(rate.batches_per_s)
    return {key: median(seen) for key, seen in found.items()}


def _is_all_of(model: GpuModel, profile: str) -> bool:
    most = max((each.slices for each in model.profiles), default=0)
    return profile == WHOLE or (profile in model.by_name and model.by_name[profile].slices == most)


def _over(rate: float, references: References, job_id: str, model: str) -> float | None:
    reference = references.get((job_id, model))
    return None if reference is None else rate / reference


def _probe(at: int, seen: Replay, models: Sequence[GpuModel], references: References) -> ProbeStory:
    probe = seen.probes[at]
    model = models[probe.gpu]
    predictions = []
    for job_id, estimates in probe.estimates.items():
        until_s = _next_probe_s(seen.probes[at + 1 :], job_id)
        then = [rate for rate in seen.rates if rate.job_id == job_id and probe.at_s <= rate.at_s < until_s]
        for profile, estimate in estimates.items():
            found = [rate.batches_per_s for rate in then if _is_there(rate, model, profile, models)]
            rate = median(found) if found else None
            relative = None if rate is None else _over(rate, references, job_id, model.name)
            predictions.append(Prediction(job_id, profile, estimate, rate, relative))
    return ProbeStory(probe.at_s, probe.gpu, tuple(predictions))


def _is_there(rate: Rate, model: GpuModel, profile: str, models: Sequence[GpuModel]) -> bool:
    """Whether it was seen on such a profile; a device that is not cut counts as the profile with all its slices."""
    found = profile_of(rate.grant)
    same = found == profile or (found == WHOLE and _is_all_of(model, profile))
    return same and models[rate.grant.gpu].name == model.name


def _next_probe_s(later: Sequence[GpuProbed], job_id: str) -> float:
    return next((probe.at_s for probe in later if job_id in probe.estimates), float("inf"))
