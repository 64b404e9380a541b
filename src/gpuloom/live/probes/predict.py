"""From rates under MPS to speeds on slices, with the shipped predictor: what `gpuloom run` believes after a probe.

The weights were trained on an A100. For another GPU that is cut into the same seven slices they are used as well, with
intervals of at least ±0.2, since nothing was measured there; for any other, and for a job that did not report at every
level, the simple rule of `probe` takes their place. No gauge runs along, which makes the predictions less sure than the
best of them: the intervals know.
"""

from collections.abc import Sequence
from functools import lru_cache

from gpuloom.contract.view import Estimates
from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.model import GpuModel
from gpuloom.live.probes.measure import LEVELS_PCT, UNCERTAIN, Rates, by_share
from gpuloom.perf.slices.mix import MpsSpeeds
from gpuloom.perf.slices.predictor import MEASURED_MODEL, SlicePredictor, SliceSpeeds
from gpuloom.perf.speed import Estimate
from gpuloom.work.measured.mps_mixes import SEATS, family_of
from gpuloom.work.measured.predictor_weights import load_weights
from gpuloom.work.model import Job

MEASURED_CHIPS = ("A100-40GB", "A100-80GB")
"""The same chip, with more memory."""


def trained(jobs: Sequence[Job], rates: Sequence[Rates], model: GpuModel) -> list[Estimates]:
    """A `Predict`. Whoever was measured at all levels is predicted from all who were; the others by the simple rule."""
    answers = by_share(jobs, rates, model)
    measured = [at for at, rate in enumerate(rates) if all(level in rate for level in LEVELS_PCT)]
    if not 1 <= len(measured) <= SEATS or _sizes(model) != _sizes(MEASURED_MODEL):
        return answers
    mix = [_as_mps(jobs[at], rates[at]) for at in measured]
    for at, answer in zip(measured, _predictor(model).predict(mix), strict=True):
        answers[at] = _estimates(answer, 0.0 if model.name in MEASURED_CHIPS else UNCERTAIN)
    return answers


def _as_mps(job: Job, rates: Rates) -> MpsSpeeds:
    family = None if job.workload is None else family_of(job.workload)
    at_100, at_50, at_14 = (rates[level].batches_per_s for level in LEVELS_PCT)
    return MpsSpeeds(at_100, at_50, at_14, job.mem_mib, family)


def _estimates(answer: SliceSpeeds, least_reach: float) -> Estimates:
    return {
        name: speed
        if speed.low == speed.high
        else Estimate(
            speed.speed,
            max(min(speed.low, speed.speed - least_reach), 0.01),
            max(speed.high, speed.speed + least_reach),
        )
        for name, speed in answer.profiles.items()
    }


def _sizes(model: GpuModel) -> set[int]:
    return {profile.slices for profile in base_profiles(model)}


@lru_cache
def _predictor(model: GpuModel) -> SlicePredictor:
    return SlicePredictor.from_arrays(load_weights().arrays, model)
