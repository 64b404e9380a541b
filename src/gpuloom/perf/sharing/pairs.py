"""Measured pairs as arrays, and how far off predictions are on pairs with a model that was left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.interference import Crowd, InterferenceModel
from gpuloom.perf.sharing.intervals import Intervals, intervals_of
from gpuloom.work.measured.service_pairs import PairRow


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured pairs as arrays: the crowds with the row's own model in the first seat, and its latency."""

    crowd: Crowd
    measured_ms: Floats

    @classmethod
    def of(cls, rows: Sequence[PairRow], names: Sequence[str]) -> "Pairs":
        if not rows:
            raise InputError("there are no measured pairs to calibrate on: expected one or more")
        missing = models_of(rows) - set(names)
        if missing:
            raise InputError(
                f"the measured pairs name {', '.join(sorted(missing))}: expected models that are profiled,"
                f" {', '.join(names)}"
            )
        index = {name: number for number, name in enumerate(names)}
        crowd = Crowd(
            np.array([[index[row.model], index[row.neighbour]] for row in rows]),
            np.array([[row.batch, row.neighbour_batch] for row in rows], float),
            np.array([[row.share_pct, row.neighbour_share_pct] for row in rows], float),
        )
        return cls(crowd, np.array([row.latency_ms for row in rows]))


def models_of(rows: Sequence[PairRow]) -> set[str]:
    return {row.model for row in rows} | {row.neighbour for row in rows}


def without(rows: Sequence[PairRow], model: str) -> list[PairRow]:
    return [row for row in rows if model not in (row.model, row.neighbour)]


def containing(rows: Sequence[PairRow], model: str) -> list[PairRow]:
    return [row for row in rows if model in (row.model, row.neighbour)]


class Fitted(InterferenceModel, Protocol):
    def floor_part(self, crowd: Crowd) -> Floats: ...


def left_out_intervals(rows: Sequence[PairRow], fit: Callable[[Sequence[PairRow]], Fitted]) -> Intervals:
    """Each model left out in turn: fitted to pairs without it, judged on pairs with it.

    Where there are too few models for that, errors are those on the very pairs of the fit.
    """
    parts, errors = [], []
    for left_out in sorted(models_of(rows)):
        fitted = fit(without(rows, left_out) or rows)
        pairs = Pairs.of(containing(rows, left_out), fitted.names)
        parts.append(fitted.floor_part(pairs.crowd)[:, 0])
        errors.append(np.log(pairs.measured_ms / fitted.latencies(pairs.crowd).total_ms[:, 0]))
    return intervals_of(np.concatenate(parts), np.concatenate(errors))
