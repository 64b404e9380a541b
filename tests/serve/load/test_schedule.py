"""When requests are sent."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.serve.load.schedule import read_arrivals, schedule

RATES = st.floats(0.1, 1000.0)


def make(
    kind: str, rate: float, requests: int | None = None, duration_s: float | None = None, seed: int = 0
) -> list[float]:
    return schedule(kind, rate, requests, duration_s, np.random.default_rng(seed)).tolist()


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


def test_a_trace_is_sent_as_recorded_or_at_another_pace(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("service,arrival_s\n*,7.0\nother,1.0\n*,5.0\n*,5.5\n")
    assert read_arrivals(path, "other").tolist() == [1.0]
    assert make(f"trace:{path}", 0.0, 10) == [0.0, 0.5, 2.0]
    assert make(f"trace:{path}", 0.0, 2) == [0.0, 0.5]
    assert make(f"trace:{path}", 0.0, duration_s=1.0) == [0.0, 0.5]
    assert make(f"trace:{path}", 2.0, 10) == [0.0, 0.25, 1.0]


@pytest.mark.parametrize("text", ["a,1\n", "*,one\n", "*,nan\n", "*,-1\n", "", "*,inf\n"])
def test_a_broken_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(f"service,arrival_s\n{text}")
    with pytest.raises(InputError, match=r"trace\.txt"):
        read_arrivals(path, "W6")


@pytest.mark.parametrize(
    ("kind", "rate", "requests"), [("uniform", 1.0, 1), ("poisson", 0.0, 1), ("regular", 1.0, 10**9)]
)
def test_what_cannot_be_is_refused(kind: str, rate: float, requests: int) -> None:
    with pytest.raises(InputError, match=r"accepted are|above 0"):
        make(kind, rate, requests)
