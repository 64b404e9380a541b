"""The measured world: alone as in the tables, beside others as in the pairs, and only of models that were measured."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.sharing.interference import Placed, predict, solo_ms
from gpuloom.perf.sharing.measured import measured_model, measured_tables
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import MeasuredServices, PairRow

FIGURES = load_service_figures("V100")
FITTED = SharingModel.from_figures(FIGURES)
BATCHES, SHARES_PCT = (1, 8, 32), (20.0, 50.0, 80.0)
SLOWER = 1.1
"""Of the made-up measurements than the fitted curves."""


def measured(models: Sequence[str], slowdown: float = 1.25) -> MeasuredServices:
    """Alone a little slower than the curves say, and all pairs slowed down alike."""
    alone = {
        model: {
            (batch, share): SLOWER * float(solo_ms(FITTED, model if model in FITTED.names else "ssd", batch, share))
            for batch, share in product(BATCHES, SHARES_PCT)
        }
        for model in models
    }
    pairs = tuple(
        PairRow(model, batch, share, other, batch, 100.0 - share, slowdown * alone[model][batch, share])
        for model, other, batch, share in product(models, models, BATCHES, SHARES_PCT)
    )
    uses = {model: dict.fromkeys(alone[model], 10.0 + 5.0 * index) for index, model in enumerate(models)}
    return MeasuredServices(pairs, alone, uses)


@settings(max_examples=25, deadline=None)
@given(
    model=st.sampled_from(FITTED.names),
    batch=st.sampled_from(BATCHES),
    share_pct=st.sampled_from(SHARES_PCT),
)
def test_alone_it_is_the_table(model: str, batch: int, share_pct: float) -> None:
    data = measured(FITTED.names)
    (latency,) = predict(measured_model(data, FIGURES), [Placed(model, batch, share_pct)])
    assert latency.total_ms == pytest.approx(data.solo_ms[model][batch, share_pct], rel=0.01)
    assert latency.low_ms == latency.total_ms == latency.high_ms


@settings(max_examples=25, deadline=None)
@given(
    models=st.tuples(st.sampled_from(FITTED.names), st.sampled_from(FITTED.names)),
    batch=st.sampled_from(BATCHES),
    share_pct=st.sampled_from(SHARES_PCT),
    slowdown=st.sampled_from([1.05, 1.25, 1.6]),
)
def test_in_pairs_it_is_as_slow_as_the_pairs_were(
    models: tuple[str, str], batch: int, share_pct: float, slowdown: float
) -> None:
    world = measured_model(measured(FITTED.names, slowdown), FIGURES)
    placed = [Placed(models[0], batch, share_pct), Placed(models[1], batch, 100.0 - share_pct)]
    for resident, latency in zip(placed, predict(world, placed), strict=True):
        (alone,) = predict(world, [resident])
        assert latency.total_ms == pytest.approx(slowdown * alone.total_ms, rel=1e-6)


def test_nobody_is_faster_beside_others() -> None:
    """A pair that was measured faster than alone is noise."""
    world = measured_model(measured(FITTED.names, 0.8), FIGURES)
    placed = [Placed(model, 8, 25.0) for model in FITTED.names]
    for resident, latency in zip(placed, predict(world, placed), strict=True):
        assert latency.total_ms >= predict(world, [resident])[0].total_ms * (1 - 1e-9)


def test_beyond_its_shares_a_table_goes_on_as_the_curve_does() -> None:
    world = measured_model(measured(("resnet50",)), FIGURES)
    less = float(solo_ms(world, "resnet50", 8, 10.0)) / float(solo_ms(world, "resnet50", 8, 20.0))
    curve = float(solo_ms(FITTED, "resnet50", 8, 10.0)) / float(solo_ms(FITTED, "resnet50", 8, 20.0))
    assert less == pytest.approx(curve, rel=0.05)


@pytest.mark.parametrize(
    ("models", "known"),
    [
        (("resnet50", "ssd"), {"resnet50", "ssd"}),
        (("alexnet", "bert"), {"alexnet"}),
        (("bert",), set()),
    ],
)
def test_only_of_models_that_were_measured_and_have_figures(models: tuple[str, ...], known: set[str]) -> None:
    world = measured_model(measured(models), FIGURES)
    assert set(world.names) == known
    for model in known:
        assert np.isfinite(solo_ms(world, model, 1, 100.0))
    with pytest.raises(InputError, match="no profile of the model 'vgg19'"):
        solo_ms(world, "vgg19", 1, 100.0)


def test_pairs_of_models_without_uses_are_refused() -> None:
    data = measured(("resnet50", "ssd"))
    without = MeasuredServices(data.pairs, data.solo_ms, {"ssd": data.l2_pct["ssd"]})
    with pytest.raises(InputError, match="the measured pairs name resnet50: expected models that are profiled, ssd"):
        measured_model(without, FIGURES)


def test_tables_are_evened_out() -> None:
    noisy = {(1, 20.0): 9.0, (1, 50.0): 10.0, (8, 20.0): 8.0, (8, 50.0): 12.0}
    table = measured_tables(MeasuredServices((), {"m": noisy}))["m"]
    assert (np.diff(table.values, axis=0) >= 0).all()
    assert (np.diff(table.values, axis=1) <= 0).all()
