"""The latest latencies."""

from hypothesis import given
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
