"""What a probe says of each job: ratios of its own speeds, its neighbours', the gauge's, in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.slices.mix import MOST_JOBS, MpsSpeeds, as_mix, neighbours, net_inputs, ridge_inputs
from tests.perf.slices.shipped_weights import gauges, jobs, mixes, speeds


@settings(deadline=None, max_examples=60)
@given(speeds, speeds, speeds, st.floats(0.001, 1000.0))
def test_slowdowns_are_ratios(at_100: float, at_50: float, at_14: float, unit: float) -> None:
    job = MpsSpeeds(at_100, at_50, at_14)
    assert np.exp(job.slowdowns) == pytest.approx((at_14 / at_100, at_14 / at_50))
    assert MpsSpeeds(at_100 * unit, at_50 * unit, at_14 * unit).slowdowns == pytest.approx(job.slowdowns, abs=1e-9)
    timed = MpsSpeeds.from_latencies((1 / at_100, 1 / at_50, 1 / at_14), 4000, "ant")
    assert timed.slowdowns == pytest.approx(job.slowdowns, abs=1e-9)
    assert (timed.mem_mib, timed.family) == (4000, "ant")


@settings(deadline=None, max_examples=60)
@given(mixes.flatmap(lambda mix: st.tuples(st.just(mix), st.permutations(range(len(mix))))), gauges)
def test_permuting_the_jobs_permutes_the_rows(case: tuple[list[MpsSpeeds], list[int]], beside: list[MpsSpeeds]) -> None:
    straight, permuted = as_mix(case[0], beside), as_mix([case[0][seat] for seat in case[1]], beside[::-1])
    assert (straight.size, straight.bare) == (permuted.size, permuted.bare) == (len(case[0]), not beside)
    for inputs in (net_inputs, neighbours, ridge_inputs):
        assert inputs(permuted) == pytest.approx(inputs(straight)[case[1]], nan_ok=True)


@settings(deadline=None, max_examples=60)
@given(st.lists(jobs, min_size=2, max_size=7))
def test_neighbours_are_all_but_oneself(mix: list[MpsSpeeds]) -> None:
    for row, found in enumerate(neighbours(as_mix(mix))):
        others = np.array([job.slowdowns for seat, job in enumerate(mix) if seat != row])
        assert found == pytest.approx([*others.mean(axis=0), *others.min(axis=0), *others.max(axis=0)])


@settings(deadline=None, max_examples=40)
@given(mixes, st.lists(st.builds(MpsSpeeds, speeds, speeds, speeds), min_size=1, max_size=3))
def test_several_gauges_are_their_mean_and_without_them_nobody_knows(
    mix: list[MpsSpeeds], beside: list[MpsSpeeds]
) -> None:
    gauged = as_mix(mix, beside)
    mean = np.mean([gauge.slowdowns for gauge in beside], axis=0)
    assert gauged.gauge == pytest.approx(mean)
    assert ridge_inputs(gauged)[:, -2:] == pytest.approx(np.tile(mean, (len(mix), 1)))
    bare = gauged.without_gauge()
    assert bare.bare
    assert ridge_inputs(bare).shape[1] == ridge_inputs(gauged).shape[1] - 2
    assert net_inputs(bare)[:, 2:].tolist() == [[0.0, 0.0, len(mix) / MOST_JOBS, 1.0]] * len(mix)
    assert net_inputs(gauged)[:, -1].tolist() == [0.0] * len(mix)


def test_one_alone_has_no_neighbours() -> None:
    assert np.isnan(neighbours(as_mix([MpsSpeeds(1.0, 0.8, 0.4)]))).all()


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none(speed: float) -> None:
    for at_100, at_50, at_14 in ((speed, 0.9, 0.5), (1.0, speed, 0.5), (1.0, 0.9, speed)):
        with pytest.raises(ValueError, match="must be a number above 0"):
            MpsSpeeds(at_100, at_50, at_14)


@pytest.mark.parametrize("count", [0, 8])
def test_a_mix_has_one_to_seven_jobs(count: int) -> None:
    with pytest.raises(ValueError, match=f"a mix has {count} jobs, but must have 1 to 7"):
        as_mix([MpsSpeeds(1, 1, 1)] * count)
