"""Training the networks: every mix is shown with and without its gauge, and judged by who has not seen it."""

import numpy as np
import pytest

from gpuloom.errors import InputError
from gpuloom.perf.slices.intervals import CROWDS, SLICES
from gpuloom.perf.slices.mix import as_mix
from gpuloom.perf.slices.net import Recipe
from gpuloom.perf.slices.net_training import TENTHS, train_familiar
from gpuloom.perf.slices.predictor import NET_OUTPUTS
from gpuloom.perf.slices.small import SmallPoint, fit_small
from gpuloom.perf.slices.table import Table, probe_of
from tests.perf.slices.made_up_mixes import FIGURES, made_up_mixes

QUICK = Recipe(width=4, epochs=2)
SMALL = fit_small([SmallPoint(0.1 * n, 0.5 + 0.05 * n, 0.3 + 0.05 * n, 0.1 + 0.05 * n) for n in range(1, 8)])


def test_too_few_mixes_are_refused() -> None:
    table = Table.of(made_up_mixes(60)[: TENTHS - 1], FIGURES)
    with pytest.raises(InputError, match="too few mixes to train on: found 9, expected hundreds"):
        train_familiar(table, SMALL, np.random.default_rng(0), QUICK, 1, lambda: None)


@pytest.mark.parametrize("members", [1, 3])
def test_members_are_stacked_and_stamped_with_their_error(members: int) -> None:
    mixes = made_up_mixes(80)
    ticks: list[int] = []
    familiar = train_familiar(
        Table.of(mixes, FIGURES), SMALL, np.random.default_rng(0), QUICK, members, lambda: ticks.append(1)
    )
    assert len(ticks) == members * QUICK.epochs
    assert familiar.nets.weights.shape[0] == members
    assert familiar.nets.shape == (6, QUICK.width, NET_OUTPUTS)
    assert familiar.intervals.reach.shape == (len(SLICES), CROWDS, 3)
    assert 0 < familiar.mae < 0.5
    jobs = [probe_of(job) for job in mixes[-1].jobs]
    for gauges in ([probe_of(gauge) for gauge in mixes[-1].gauges], []):
        out = familiar(as_mix(jobs, gauges))
        assert out.shape == (len(jobs), NET_OUTPUTS)
        assert ((out > 0) & (out < 1)).all()
    assert np.isfinite(familiar.mean).all()
    assert (familiar.scale > 0).all()
