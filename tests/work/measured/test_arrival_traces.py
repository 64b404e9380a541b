"""Recorded arrivals: one reader, times for a load and gaps for a planner."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.work.measured.arrival_traces import ALL, FEWEST, read_arrival_times, read_gaps, times_of

HEADER = "service,arrival_s\n"
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", ALL]), st.floats(0.0, 1e6)), max_size=300)


def write(folder: Path, rows: list[tuple[str, float]]) -> Path:
    path = folder / "trace.csv"
    path.write_text(HEADER + "".join(f"{service},{arrival_s!r}\n" for service, arrival_s in rows))
    return path


@settings(deadline=None, max_examples=50)
@given(rows=ROWS)
def test_nothing_is_lost_and_times_ascend(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float]]
) -> None:
    times = read_arrival_times(write(tmp_path_factory.mktemp("t"), rows))
    assert sorted((service, arrival_s) for service, own in times.items() for arrival_s in own) == sorted(rows)
    assert all((np.diff(own) >= 0.0).all() for own in times.values())
    assert list(times) == list(dict.fromkeys(service for service, _ in rows))


@settings(deadline=None, max_examples=30)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99), extra=st.integers(0, 50))
def test_gaps_have_mean_one_and_forget_the_rate(
    tmp_path_factory: pytest.TempPathFactory, scale: float, seed: int, extra: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    arrivals_s = np.cumsum(np.random.default_rng(seed).exponential(1.0, FEWEST + extra))
    shuffled = np.random.default_rng(seed).permutation(arrivals_s)
    gaps = read_gaps(write(folder, [(ALL, arrival_s) for arrival_s in arrivals_s.tolist()]))
    faster = read_gaps(write(folder, [(ALL, arrival_s * scale) for arrival_s in shuffled.tolist()]))
    assert list(gaps) == [""]
    assert gaps[""].mean() == pytest.approx(1.0)
    assert len(gaps[""]) == len(arrivals_s) - 1
    np.testing.assert_allclose(faster[""], gaps[""], rtol=1e-6, atol=1e-9)


def test_a_service_that_is_not_named_has_the_times_of_all_others(tmp_path: Path) -> None:
    path = write(tmp_path, [(ALL, 7.0), ("a", 1.0), (ALL, 5.0)])
    times = read_arrival_times(path)
    assert times_of("a", times, path).tolist() == [1.0]
    assert times_of("b", times, path).tolist() == [5.0, 7.0]
    with pytest.raises(InputError, match=r"trace\.csv has no arrivals of 'b': expected rows of it, or of \*"):
        times_of("b", read_arrival_times(write(tmp_path, [("a", 1.0)])), path)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "has no rows"),
        ([(ALL, float(second)) for second in range(FEWEST - 1)], r"\* has 99 arrivals: expected 100 or more"),
        ([("a", 3.0)] * FEWEST, "a has 100 arrivals: expected 100 or more, not all at one time"),
    ],
)
def test_what_is_too_little_for_a_pattern(tmp_path: Path, rows: list[tuple[str, float]], why: str) -> None:
    path = write(tmp_path, rows)
    with pytest.raises(InputError, match=rf"trace\.csv:? {why}"):
        read_gaps(path)
    assert sum(map(len, read_arrival_times(path).values())) == len(rows)  # enough to be sent


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEADER + "a,1\n*,one\n", "line 3, column 'arrival_s' is 'one', but must be a number of seconds, 0 or more"),
        (HEADER + "*,nan\n", "line 2, column 'arrival_s' is 'nan'"),
        (HEADER + "*,-1\n", "line 2, column 'arrival_s' is '-1'"),
        (HEADER + "*,inf\n", "line 2, column 'arrival_s' is 'inf'"),
        (HEADER + "*,1e12\n", "line 2, column 'arrival_s' is '1e12'"),
        (HEADER + "*\n", "line 2 has 1 field where the header has 2"),
        ("service,arrival_ms\n*,1\n", "line 1 has no column 'arrival_s'"),
        ("", "is empty: expected recorded arrivals"),
    ],
)
def test_a_wrong_file_is_the_same_sentence_for_both(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    sentences = []
    for read in (read_arrival_times, read_gaps):
        with pytest.raises(InputError) as refused:
            read(path)
        sentences.append(str(refused.value))
    assert sentences[0] == sentences[1]
    assert why in sentences[0]
