"""What a load says of the promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.serve.load.open_loop import PERCENTS, Result

LATENCIES = st.lists(st.floats(0.0, 200.0), max_size=300).map(lambda times: tuple(sorted(times)))


def result(latencies_ms: tuple[float, ...], failed: int = 0, lost: int = 0, slo_ms: float | None = 40.0) -> Result:
    requests = len(latencies_ms) + failed + lost
    return Result("a", slo_ms, requests, failed, lost, latencies_ms, (0.0,) * requests, 1.0)


@settings(deadline=None, max_examples=100)
@given(
    latencies_ms=LATENCIES, failed=st.integers(0, 2), lost=st.integers(0, 2), slo_ms=st.none() | st.floats(1.0, 300.0)
)
def test_a_promise_is_kept_if_99_of_100_are_within_it_and_none_is_lost(
    latencies_ms: tuple[float, ...], failed: int, lost: int, slo_ms: float | None
) -> None:
    told = result(latencies_ms, failed, lost, slo_ms)
    late = 0 if slo_ms is None else sum(latency_ms > slo_ms for latency_ms in latencies_ms)
    assert told.above == late + failed + lost
    assert told.kept is (failed + lost == 0 and late * 100 <= len(latencies_ms))
    assert told.row()["above_slo"] == (None if slo_ms is None else told.above)


@settings(deadline=None, max_examples=60)
@given(LATENCIES.filter(bool))
def test_percentiles_of_a_row_ascend_and_are_numpys(latencies_ms: tuple[float, ...]) -> None:
    row = result(latencies_ms).row()
    figures = [row[f"p{percent:g}_ms"] for percent in PERCENTS] + [row["max_ms"]]
    assert figures == sorted(figures)  # type: ignore[type-var]
    assert row["p50_ms"] == np.percentile(latencies_ms, 50, method="inverted_cdf")
    assert row["p99_ms"] == result(latencies_ms).p99_ms == np.percentile(latencies_ms, 99, method="inverted_cdf")


def test_nothing_answered_has_no_percentile() -> None:
    row = result((), lost=3).row()
    assert [row[name] for name in ("p50_ms", "p99_ms", "max_ms", "lost", "kept")] == [None, None, None, 3, False]


@pytest.mark.parametrize(("late", "kept"), [(1, True), (2, False)])
def test_the_hundredth_may_be_late(late: int, kept: bool) -> None:
    assert result((20.0,) * (100 - late) + (90.0,) * late).kept is kept
