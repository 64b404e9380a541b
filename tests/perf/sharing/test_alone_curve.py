"""The curve of a service alone: what must hold for any parameters, and that a fit finds them."""

from dataclasses import astuple
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.alone_curve import AloneCurve, active_ms, fit_curve

parameters = st.tuples(st.floats(0.1, 5.0), st.floats(1.0, 300.0), st.floats(0.0, 50.0), st.floats(0.0, 0.5))
sharpnesses = st.floats(1.0, 2.0)
batches, shares = st.floats(1.0, 64.0), st.floats(2.5, 100.0)
BATCH, SHARE_PCT = (axis.ravel() for axis in np.meshgrid([1.0, 16.0, 32.0], [10.0, 50.0, 100.0], indexing="ij"))


def active(curve: tuple[float, ...], sharpness: float, batch: float, share_pct: float, memory: float = 1.0) -> float:
    return float(active_ms(np.array(curve), sharpness, np.array(batch), np.array(share_pct), memory))


def test_a_curve_finds_its_own_parameters() -> None:
    truth = np.array([1.8, 55.0, 8.0, 0.08])
    curve, residue = fit_curve(BATCH, SHARE_PCT, active_ms(truth, 1.2, BATCH, SHARE_PCT), 1.2)
    assert (curve.floor_ms, curve.work_ms, curve.weights_ms, curve.stream_ms) == pytest.approx(truth, rel=1e-3)
    assert residue < 1e-10


@settings(deadline=None, max_examples=20)
@given(parameters, sharpnesses)
def test_a_fit_explains_whatever_obeys_the_law(curve: tuple[float, ...], sharpness: float) -> None:
    """The parameters themselves may be hidden: a floor far below the work, weights that look like work."""
    truth = active_ms(np.array(curve), sharpness, BATCH, SHARE_PCT)
    fitted, residue = fit_curve(BATCH, SHARE_PCT, truth, sharpness)
    again = active_ms(np.array(astuple(fitted)), sharpness, BATCH, SHARE_PCT)
    assert again == pytest.approx(truth, rel=0.02)
    assert residue == pytest.approx(float((np.log(again / truth) ** 2).sum()), rel=1e-6, abs=1e-15)
    assert min(astuple(fitted)) >= 0.0


@settings(deadline=None, max_examples=60)
@given(parameters, sharpnesses, batches, shares, st.floats(1.01, 3.0))
def test_more_items_take_longer_and_more_sms_never_do(
    curve: tuple[float, ...], sharpness: float, batch: float, share_pct: float, factor: float
) -> None:
    now = active(curve, sharpness, batch, share_pct)
    assert active(curve, sharpness, batch * factor, share_pct) >= now
    assert active(curve, sharpness, batch, share_pct * factor) <= now
    assert active(curve, sharpness, batch, share_pct, memory=1.0 / factor) >= now


@settings(deadline=None, max_examples=60)
@given(parameters, batches, shares)
def test_the_sharper_the_less_floor_and_work_add_up(curve: tuple[float, ...], batch: float, share_pct: float) -> None:
    floor, work, weights, stream = curve
    beside = weights / share_pct + stream * batch
    alone = floor, work * batch / share_pct
    soft = [active(curve, sharpness, batch, share_pct) - beside for sharpness in (1.0, 1.3, 2.0, 40.0)]
    assert all(sharper <= blunter + 1e-9 for blunter, sharper in pairwise(soft))
    assert soft[0] == pytest.approx(sum(alone)), "iGniter's sum"
    assert soft[-1] == pytest.approx(max(alone), rel=0.02), "nearly the larger of the two"


def test_one_row_of_parameters_for_each_seat() -> None:
    """Broadcast: a column of parameters for each service, in any shape."""
    curves = np.array([[1.0, 2.0], [10.0, 20.0], [3.0, 0.0], [0.1, 0.2]])
    batch: Floats = np.array([4.0, 8.0])
    share_pct: Floats = np.array([20.0, 80.0])
    both = active_ms(curves, 1.5, batch, share_pct)
    each = [active(tuple(curves[:, i]), 1.5, batch[i], share_pct[i]) for i in (0, 1)]
    assert both == pytest.approx(each)
    assert AloneCurve(*curves[:, 0]).stream_ms == 0.1
