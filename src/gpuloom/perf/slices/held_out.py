"""Training with its proof: for each family, weights that have never seen it, and how wrong those are on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuloom.perf.slices.errors import Errors, judge, small_slice_fit
from gpuloom.perf.slices.net_training import MEMBERS, Tick
from gpuloom.perf.slices.predictor import SlicePredictor
from gpuloom.perf.slices.table import MeasuredSpeeds
from gpuloom.perf.slices.training import RECIPE, train, train_trend
from gpuloom.work.measured.mps_mixes import MeasuredMix, all_families


@dataclass(frozen=True, slots=True)
class Trained:
    predictor: SlicePredictor
    """Trained on everything."""
    held_out: Mapping[str, SlicePredictor]
    """By family: trained without it."""
    strangers: Mapping[str, Errors]
    """By family: of that predictor, on that family."""
    errors: Mapping[str, Any]
    """What is kept with the weights."""

    @property
    def mae_one_network(self) -> float:
        assert self.predictor.familiar is not None, "it has networks"
        return self.predictor.familiar.mae


def ticks(mixes: Sequence[MeasuredMix]) -> int:
    """How often `tick` will be called."""
    return MEMBERS * RECIPE.epochs + len(all_families(mixes))


def train_and_judge(
    mixes: Sequence[MeasuredMix], figures: MeasuredSpeeds, generator: np.random.Generator, tick: Tick
) -> Trained:
    """The whole training, with a tick for each step of it."""
    families = all_families(mixes)
    predictor = train(mixes, figures, generator, tick=tick)
    held_out = {}
    for family in families:
        held_out[family] = train_trend(mixes, figures, without_family=family)
        tick()
    strangers = {family: judge(held_out[family], mixes, figures, only_family=family) for family in families}
    assert predictor.familiar is not None, "train gives it networks"
    errors = {
        "mae_one_network": predictor.familiar.mae,
        "mae_family_out": sum(errors.mae for errors in strangers.values()) / len(families),
        "mae_by_family": {family: errors.mae for family, errors in strangers.items()},
        "interval_coverage_family_out": sum(errors.coverage for errors in strangers.values()) / len(families),
        "small_slices": small_slice_fit(mixes, figures),
    }
    return Trained(predictor, held_out, strangers, errors)
