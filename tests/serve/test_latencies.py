"""The latest latencies."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.serve.latencies import BUCKET_S, MOST, Window, percentile

LATENCIES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=200)


@given(LATENCIES, st.floats(0.1, 99.9))
def test_a_percentile_is_the_shortest_time_within_which_so_many_were_answered(
    found: list[float], percent: float
) -> None:
    ascending = sorted(found)
    value = percentile(ascending, percent)
    assert value is not None
    assert value in ascending
    within = sum(latency <= value for latency in ascending) / len(ascending)
    below = sum(latency < value for latency in ascending) / len(ascending)
    assert within >= percent / 100 - 1e-9
    assert below < percent / 100 + 1e-9


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 99.0) is None


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 100.0)), max_size=100), st.floats(0.1, 10.0))
def test_only_the_last_seconds_count(entries: list[tuple[float, float]], span_s: float) -> None:
    window = Window(10.0, limit_ms=50.0)
    for at_s, latency_ms in sorted(entries):
        window.add(at_s, latency_ms)
    assert window.latencies_ms(100.0) == sorted(latency_ms for at_s, latency_ms in entries if at_s >= 90.0)
    inside, around = (
        [latency_ms for at_s, latency_ms in entries if at_s >= 100.0 - reach_s]
        for reach_s in (span_s, span_s + BUCKET_S + 1e-9)
    )
    total, above = window.counts(100.0, span_s)
    assert len(inside) <= total <= len(around)
    assert sum(latency_ms > 50.0 for latency_ms in inside) <= above <= sum(latency_ms > 50.0 for latency_ms in around)


def test_it_is_bounded_and_can_be_emptied() -> None:
    window = Window(1e9, limit_ms=0.5)
    for at in range(MOST + 10):
        window.add(float(at), 1.0)
    assert len(window.latencies_ms(float(MOST))) == MOST
    assert window.counts(float(MOST), 1e9) == (MOST + 10, MOST + 10)
    window.clear()
    assert window.counts(0.0, 1e9) == (0, 0)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=MOST // 10), st.integers(1, 100))
def test_percentiles_are_numpys(latencies_ms: list[float], percent: int) -> None:
    """Nearest rank: the smallest that the share does not exceed."""
    window = Window(10.0, limit_ms=1.0)
    for latency_ms in latencies_ms:
        window.add(1.0, latency_ms)
    expected = np.percentile(latencies_ms, percent, method="inverted_cdf")
    assert percentile(window.latencies_ms(1.0), percent) == expected


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 100.0)), max_size=100), st.floats(0.1, 3.0))
def test_counts_of_shorter_spans_are_within_those_of_longer_ones(
    entries: list[tuple[float, float]], span_s: float
) -> None:
    window, now_s = Window(20.0, limit_ms=50.0), 0.0
    for gap_s, latency_ms in entries:
        now_s += gap_s
        window.add(now_s, latency_ms)
        short, long = window.counts(now_s, span_s), window.counts(now_s, 2.0 * span_s)
        assert 1 <= short[0] <= long[0]  # the one just added is there
        assert short[1] <= long[1] <= long[0]
    assert window.counts(now_s + 20.0 + 2.0 * BUCKET_S, 20.0) == (0, 0)
