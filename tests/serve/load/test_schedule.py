"""When requests are sent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.serve.load.schedule import replayed, schedule

RATES = st.floats(0.1, 1000.0)


def make(
    kind: str, rate: float, requests: int | None = None, duration_s: float | None = None, seed: int = 0
) -> list[float]:
    times: list[float] = schedule(kind, rate, requests, duration_s, np.random.default_rng(seed)).tolist()
    return times


@given(kind=st.sampled_from(["poisson", "regular"]), rate=RATES, requests=st.integers(0, 500), seed=st.integers(0, 9))
def test_so_many_as_were_asked_for_ascending(kind: str, rate: float, requests: int, seed: int) -> None:
    times = make(kind, rate, requests, seed=seed)
    assert len(times) == requests
    assert times == sorted(times)
    assert all(time >= 0 for time in times)
    assert times == make(kind, rate, requests, seed=seed)


@given(
    kind=st.sampled_from(["poisson", "regular"]), rate=RATES, duration_s=st.floats(0.01, 20.0), seed=st.integers(0, 9)
)
def test_all_of_the_duration_and_none_after_it(kind: str, rate: float, duration_s: float, seed: int) -> None:
    times = make(kind, rate, duration_s=duration_s, seed=seed)
    assert all(0 <= time < duration_s + 1e-9 for time in times)
    expected = rate * duration_s
    assert abs(len(times) - expected) <= 1 + (6 * expected**0.5 + 6 if kind == "poisson" else 0)


def test_poisson_gaps_vary_as_they_should() -> None:
    gaps = np.diff(make("poisson", 50.0, 20_000))
    assert gaps.mean() == pytest.approx(1 / 50.0, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)


RECORDED = st.lists(st.integers(0, 10**12), min_size=1, max_size=200).map(lambda us: np.sort(np.array(us)) / 1e6)


@settings(deadline=None, max_examples=50)
@given(recorded_s=RECORDED, requests=st.integers(1, 300))
def test_a_trace_is_sent_as_it_was_recorded(recorded_s: Floats, requests: int) -> None:
    times = replayed(recorded_s, 0.0, requests, None)
    assert times.tolist() == (recorded_s - recorded_s[0])[:requests].tolist()


@settings(deadline=None, max_examples=50)
@given(recorded_s=RECORDED, rate=RATES, duration_s=st.floats(0.01, 1e4))
def test_a_rate_changes_the_pace_of_a_trace_and_not_its_pattern(
    recorded_s: Floats, rate: float, duration_s: float
) -> None:
    own, scaled = (replayed(recorded_s, pace, None, None) for pace in (0.0, rate))
    assert (np.diff(scaled) >= 0.0).all()
    if own[-1] > 0:
        assert (len(scaled) - 1) / scaled[-1] == pytest.approx(rate)
        np.testing.assert_allclose(scaled / scaled[-1], own / own[-1], atol=1e-9)
    cut = replayed(recorded_s, rate, None, duration_s)
    assert cut.tolist() == [time for time in scaled.tolist() if time < duration_s]


@pytest.mark.parametrize(
    ("kind", "rate", "requests"), [("uniform", 1.0, 1), ("poisson", 0.0, 1), ("regular", 1.0, 10**9)]
)
def test_what_cannot_be_is_refused(kind: str, rate: float, requests: int) -> None:
    with pytest.raises(InputError, match=r"accepted are|above 0"):
        make(kind, rate, requests)
