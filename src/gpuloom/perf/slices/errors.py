"""How wrong a predictor is on measured mixes: errors of relative latency and of speeds, and what intervals hold.

Relative latency is the figure MISO's authors use: batch latency on 7g, 4g and 3g, each divided by the largest of the
three; the mean is over jobs and the three slices. Speeds are relative to 7g, as schedulers use them. Only real jobs are
counted, never the gauges, and never the speed on 7g, which is right by definition.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.perf.arrays import Floats
from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.predictor import SlicePredictor, SliceSpeeds, relative_latencies
from gpuloom.perf.slices.small import SmallPoint, SmallSlices, fit_small
from gpuloom.perf.slices.table import MeasuredSpeeds, Table, probe_of, true_speeds
from gpuloom.work.measured.mps_mixes import MeasuredJob, MeasuredMix


@dataclass(frozen=True, slots=True)
class Errors:
    """A row for each judged job."""

    workloads: tuple[str, ...]
    sizes: tuple[int, ...]
    latency: Floats
    """Absolute error of relative latency on 7g, 4g, 3g."""
    predicted: Floats
    """Speeds on SLICES."""
    truth: Floats
    """NaN where the job does not run or nobody measured it."""
    held: Floats
    """1 where the interval holds the truth, 0 where not, NaN where that is unknown."""

    @property
    def mae(self) -> float:
        return float(self.latency.mean())

    @property
    def coverage(self) -> float:
        """Share of the intervals on 4g and 3g that hold the truth."""
        return float(self.held[:, :2].mean())


def judge(
    predictor: SlicePredictor,
    mixes: Iterable[MeasuredMix],
    figures: MeasuredSpeeds,
    *,
    only_family: str | None = None,
    use_gauges: bool = True,
    tell_family: bool = True,
) -> Errors:
    """Ask the predictor about every mix; with `only_family`, count that family's jobs alone."""
    judged: list[tuple[MeasuredJob, int, SliceSpeeds]] = []
    for mix in mixes:
        if only_family is not None and only_family not in mix.families:
            continue
        jobs = [probe_of(job, tell_family=tell_family) for job in mix.jobs]
        answers = predictor.predict(jobs, [probe_of(gauge) for gauge in mix.gauges] if use_gauges else ())
        judged += [
            (job, len(jobs), answer)
            for job, answer in zip(mix.jobs, answers, strict=True)
            if only_family in (None, job.family)
        ]
    return _errors(judged, figures)


def small_slice_fit(mixes: Sequence[MeasuredMix], figures: MeasuredSpeeds) -> dict[str, dict[str, float]]:
    """Of the lines of `small`, given the truth they start from: R², and the same on families left out."""
    table = Table.of(mixes, figures)
    solo, speeds = table.means.solo, table.means.speeds
    seen = np.isfinite(solo)
    points = np.column_stack([np.exp(solo), speeds[:, 1:]])[seen]
    family = table.family_of_workload[seen]
    same, out = np.zeros((len(points), 2)), np.zeros((len(points), 2))
    for left_out in np.unique(family):
        its = family == left_out
        same[its] = np.column_stack(_fitted(points)(points[its, 0], points[its, 1]))
        out[its] = np.column_stack(_fitted(points[~its])(points[its, 0], points[its, 1]))
    return {
        name: {
            "workloads": int(np.isfinite(points[:, column + 2]).sum()),
            "r2": r2(same[:, column], points[:, column + 2]),
            "r2_family_out": r2(out[:, column], points[:, column + 2]),
            "mae_family_out": float(np.nanmean(np.abs(out[:, column] - points[:, column + 2]))),
        }
        for column, name in enumerate(("2g", "1g"))
    }


def _fitted(points: Floats) -> SmallSlices:
    return fit_small([SmallPoint(*map(float, point)) for point in points])


def r2(guess: Floats, truth: Floats) -> float:
    """The part of the variance that is explained; NaN where there is none."""
    known = np.isfinite(truth)
    off, around = guess[known] - truth[known], truth[known] - truth[known].mean()
    return 1.0 - float((off**2).sum()) / float((around**2).sum()) if around.any() else float("nan")


def _errors(judged: Sequence[tuple[MeasuredJob, int, SliceSpeeds]], figures: MeasuredSpeeds) -> Errors:
    speeds = np.array([[answer[slices] for slices in SLICES] for _, _, answer in judged])
    truth = np.array([true_speeds(job, figures) for job, _, _ in judged])
    guess = relative_latencies(speeds[:, :, 0])
    measured = np.array([job.mig for job, _, _ in judged])
    measured /= measured.max(axis=1, keepdims=True)
    held = np.where(np.isfinite(truth), (speeds[:, :, 1] <= truth) & (truth <= speeds[:, :, 2]), np.nan)
    return Errors(
        tuple(job.workload for job, _, _ in judged),
        tuple(size for _, size, _ in judged),
        np.abs(guess - measured),
        speeds[:, :, 0],
        truth,
        held,
    )
