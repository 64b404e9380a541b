"""Training the networks for known families (`predictor.Familiar`) from measured mixes.

Each network leaves out another tenth of the mixes; its errors on those are what the intervals are made of, so nothing
is judged on what it was trained on. Every mix is shown twice, with its gauge and without, so that the networks can do
without. Targets are the latencies on 7g and 4g relative to 3g, and the solo share.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats, Singles
from gpuloom.perf.slices.intervals import crowd_of, intervals_of_known
from gpuloom.perf.slices.mix import Mix, net_inputs
from gpuloom.perf.slices.net import Recipe, SetNet, train
from gpuloom.perf.slices.predictor import Familiar, relative_latencies, speeds_from
from gpuloom.perf.slices.small import SmallSlices
from gpuloom.perf.slices.table import Table

MEMBERS = 5
"""Networks that are averaged."""
TENTHS = 10
Tick = Callable[[], None]


class Shown(NamedTuple):
    """A mix as it is shown to a network."""

    mix: Mix
    number: int
    """In the table."""
    as_measured: bool
    """Else it is the twin without the gauge."""


def train_familiar(
    table: Table, small: SmallSlices, rng: np.random.Generator, recipe: Recipe, members: int, tick: Tick
) -> Familiar:
    if len(table.mixes) < TENTHS:
        raise InputError(f"too few mixes to train on: found {len(table.mixes)}, expected hundreds")
    shown = _shown(table.mixes)
    inputs = [net_inputs(shown_mix.mix) for shown_mix in shown]
    rows = np.concatenate(inputs)
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    scaled = [((x - mean) / scale).astype(np.float32) for x in inputs]
    targets = _targets(table)
    tenth = rng.permutation(len(table.mixes)) % TENTHS
    nets: list[SetNet] = []
    answers: list[tuple[Shown, Floats]] = []
    for member in range(members):
        out = [tenth[shown_mix.number] == member % TENTHS for shown_mix in shown]
        kept = [i for i, left_out in enumerate(out) if not left_out]
        nets.append(train([scaled[i] for i in kept], [targets[shown[i].number] for i in kept], recipe, rng, tick))
        answers += [
            (shown[i], speeds_from(nets[-1](scaled[i]).astype(np.float64), small))
            for i, left_out in enumerate(out)
            if left_out
        ]
    stacked = SetNet(*nets[0].shape, np.stack([net.weights for net in nets]))
    return _judged(table, answers, stacked, mean, scale)


def _shown(mixes: Sequence[Mix]) -> list[Shown]:
    return [
        shown_mix
        for number, mix in enumerate(mixes)
        for shown_mix in (Shown(mix, number, True), Shown(mix.without_gauge(), number, False))
        if shown_mix.as_measured or not mix.bare
    ]


def _targets(table: Table) -> list[Singles]:
    rows = np.column_stack([table.latencies, np.exp(table.means.solo[table.workload])])
    return np.split(rows.astype(np.float32), table.ends)


def _judged(
    table: Table, answers: Sequence[tuple[Shown, Floats]], nets: SetNet, mean: Floats, scale: Floats
) -> Familiar:
    """With the intervals and the error that follow from the answers on mixes left out."""
    truth = np.split(table.speeds, table.ends)
    crowds = np.concatenate([[crowd_of(shown.mix)] * shown.mix.size for shown, _ in answers])
    intervals = intervals_of_known(
        crowds,
        np.concatenate([speeds for _, speeds in answers]),
        np.concatenate([truth[shown.number] for shown, _ in answers]),
    )
    measured = [(speeds, truth[shown.number]) for shown, speeds in answers if shown.as_measured]
    guess, right = (relative_latencies(np.concatenate(part)) for part in zip(*measured, strict=True))
    return Familiar(nets, mean, scale, intervals, float(np.abs(guess - right).mean()))
