"""A probe under MPS, simulated from measured mixes: the errors of its predictions are those of real data.

No absolute speeds under MPS were published, and an arbitrary mix was rarely measured. So for a job among n, a measured
mix of n jobs that has its workload is drawn; the predictor is shown that whole mix, and what comes out for the job is
what the probe says. To be honest about jobs that nobody has seen, each is predicted by weights trained without its
model family: no mix in which it takes part was ever trained on.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from gpuloom.contract.view import Estimates
from gpuloom.perf.slices.predictor import SlicePredictor, SliceSpeeds
from gpuloom.perf.slices.table import probe_of
from gpuloom.perf.speed import Estimate
from gpuloom.work.measured.figures import Figures
from gpuloom.work.measured.mps_mixes import SEATS, MeasuredMix, read_mixes
from gpuloom.work.measured.predictor_weights import load_weights
from gpuloom.work.model import TraceJob

PredictorFor = Callable[[str], SlicePredictor]
"""Of a model family: whom to ask about its jobs."""


class Drawn(NamedTuple):
    """A measured mix that stands for what a probe sees, and which of its jobs stands for the probed one."""

    mix: MeasuredMix
    seat: int


class MeasuredMixes:
    """By workload and number of jobs."""

    def __init__(self, mixes: Sequence[MeasuredMix]) -> None:
        self._drawable: dict[tuple[str, int], list[Drawn]] = defaultdict(list)
        for mix in mixes:
            for seat, job in enumerate(mix.jobs):
                self._drawable[job.workload, len(mix.jobs)].append(Drawn(mix, seat))
        self.workloads = frozenset(workload for workload, _ in self._drawable)

    def draw(self, workloads: Sequence[str], rng: Random) -> list[Drawn | None]:
        """For each of the jobs side by side a draw of its own; None for a workload that is in no mix.

        If no mix of as many jobs has the workload, the nearest number of jobs is taken, the larger of two.
        """
        return [self._draw_for(workload, len(workloads), rng) for workload in workloads]

    def _draw_for(self, workload: str, jobs: int, rng: Random) -> Drawn | None:
        if workload not in self.workloads:
            return None
        sizes = [size for size in range(1, SEATS + 1) if (workload, size) in self._drawable]
        nearest = min(sizes, key=lambda size: (abs(size - jobs), -size))
        return rng.choice(self._drawable[workload, nearest])


@lru_cache(maxsize=2)
def measured_mixes(path: Path) -> MeasuredMixes:
    """From a file, read once however many runs there are."""
    return MeasuredMixes(read_mixes(path))


class MeasuredProbe:
    """A `Prober`: draws measured mixes and asks a predictor that has not seen the job's family.

    A job whose workload is in no mix is probed as the measured workload with the most similar true speeds.
    """

    def __init__(self, mixes: MeasuredMixes, figures: Figures, predictor_for: PredictorFor, seed: int) -> None:
        self._mixes = mixes
        self._rng = Random(seed)
        self._predictor_for = predictor_for
        self._predictors: dict[str, SlicePredictor] = {}
        self._speeds = {
            name: _by_slices(workload.speeds) for name, workload in figures.workloads.items() if name in mixes.workloads
        }
        self._answers: dict[tuple[int, int], SliceSpeeds] = {}

    def predict(self, entries: Sequence[TraceJob], truth: Sequence[Mapping[str, float]]) -> list[Estimates]:
        """Of jobs side by side, with their true speeds by profile; a profile without the memory is in neither."""
        workloads = [self._stand_in(entry.job.workload, speeds) for entry, speeds in zip(entries, truth, strict=True)]
        draws = self._mixes.draw(workloads, self._rng)
        return [self._estimates(drawn, speeds) for drawn, speeds in zip(draws, truth, strict=True)]

    def _stand_in(self, workload: str | None, truth: Mapping[str, float]) -> str:
        if workload in self._mixes.workloads:
            return str(workload)
        own = _by_slices(truth)

        def distance(name: str) -> float:
            other = self._speeds[name]
            shared = own.keys() & other.keys()
            return sum(abs(own[slices] - other[slices]) for slices in shared) + len(own.keys() ^ other.keys())

        return min(self._speeds, key=distance)

    def _estimates(self, drawn: Drawn | None, truth: Mapping[str, float]) -> Estimates:
        assert drawn is not None, "a stand-in is in some mix"
        answer = self._ask(drawn)
        return {profile: Estimate(*answer[_slices(profile)]) for profile in truth}

    def _ask(self, drawn: Drawn) -> SliceSpeeds:
        key = (drawn.mix.id, drawn.seat)
        if key not in self._answers:
            mix = drawn.mix
            predictor = self._predictor(mix.jobs[drawn.seat].family)
            answers = predictor.predict([probe_of(job) for job in mix.jobs], [probe_of(g) for g in mix.gauges])
            self._answers[key] = answers[drawn.seat]
        return self._answers[key]

    def _predictor(self, family: str) -> SlicePredictor:
        if family not in self._predictors:
            self._predictors[family] = self._predictor_for(family)
        return self._predictors[family]


@lru_cache
def never_saw(family: str) -> SlicePredictor:
    """The shipped weights that were trained without a family, or for one they never had, with everything."""
    about = load_weights().about
    without = family if family in about["families"] else None
    return SlicePredictor.from_arrays(load_weights(without_family=without).arrays)


def _by_slices(speeds: Mapping[str, float]) -> dict[int, float]:
    return {_slices(profile): speed for profile, speed in speeds.items()}


def _slices(profile: str) -> int:
    """The 3 of 3g.20gb."""
    return int(profile.split("g", 1)[0])
