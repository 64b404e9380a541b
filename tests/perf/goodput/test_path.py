"""What is left by the path of a metric: learned from others, whatever its scale, and remembered to the digit."""

import json
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.perf.goodput.path import APART, Paths, flatness

SETTLING = [(float(n), 1.0 - exp(-n / 20.0)) for n in range(1, 101)]
"""A metric that is flat in the end."""


def walk(paths: Paths, job_id: str, upto: int, unit: float = 1.0, scale: float = 1.0, shift: float = 0.0) -> None:
    for done, metric in SETTLING[:upto]:
        paths.see(job_id, done * unit, shift + scale * metric)


def taught(*units: float) -> Paths:
    paths = Paths()
    for number, unit in enumerate(units):
        walk(paths, f"old{number}", 100, unit)
        paths.finish(f"old{number}", 100 * unit)
    return paths


def test_before_anybody_has_finished_nothing_is_said() -> None:
    paths = Paths()
    walk(paths, "a", 50)
    assert paths.left("a", 50.0) is None
    assert taught(1.0).left("nobody", 50.0) is None


@pytest.mark.parametrize(("unit", "scale", "shift"), [(1.0, 1.0, 0.0), (1e-6, 100.0, -3.0), (1e9, -1e-3, 7.0)])
def test_jobs_with_paths_of_the_same_shape_are_told_apart_by_it_whatever_their_units(
    unit: float, scale: float, shift: float
) -> None:
    paths = taught(*[1.0] * 10)
    part: dict[int, float] = {}
    for upto in (15, 90):
        walk(paths, f"new{upto}", upto, unit, scale, shift)
        left = paths.left(f"new{upto}", upto * unit)
        assert left is not None
        assert (np.diff(left) > 0).all()
        part[upto] = float(np.median(left)) / (upto * unit)
    assert part[15] > 1.0 > part[90], "as much as was done is left of who is half-way"


def test_the_more_it_has_seen_the_surer_it_is() -> None:
    def spread(paths: Paths) -> float:
        walk(paths, "new", 50)
        left = paths.left("new", 50.0)
        assert left is not None
        return log(left[-2] / left[1])

    assert spread(taught(*[1.0] * 40)) < spread(taught(1.0))


def test_points_are_few_however_often_is_reported() -> None:
    paths = Paths()
    for number in range(1, 20_001):
        paths.see("a", float(number), 1.0 / number)
    (points,) = paths.remember()["points"].values()
    assert len(points) <= log(20_000) / log(APART) + 20


def test_who_is_gone_is_forgotten_and_the_rest_is_remembered() -> None:
    paths = taught(1.0, 2.0, 5.0)
    for job_id in ("stays", "goes"):
        walk(paths, job_id, 50)
    paths.keep({"stays"})
    assert paths.left("goes", 50.0) is None
    heir = Paths()
    heir.restore(json.loads(json.dumps(paths.remember())))
    for one in (paths, heir):
        walk(one, "stays", 80)
    ours, theirs = paths.left("stays", 80.0), heir.left("stays", 80.0)
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours, theirs)
    assert heir.remember() == paths.remember()


@pytest.mark.parametrize("memory", [{}, {"points": {}, "sums": [1.0]}, {"points": {"a": [1]}, "sums": [0.0] * 6}])
def test_nonsense_is_no_memory(memory: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Paths().restore(memory)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.floats(1e-300, 1e300), st.floats(-1e300, 1e300)), max_size=30), st.floats(1e-300, 1e300))
def test_whatever_is_reported_what_follows_is_finite(reports: list[tuple[float, float]], done: float) -> None:
    paths = Paths()
    for job_id in "ab":
        for at, metric in sorted(reports):
            paths.see(job_id, at, metric)
    paths.finish("a", done)
    left = paths.left("b", done)
    assert left is None or np.isfinite(left).all()
    x = flatness(sorted(reports), done)
    assert x is None or np.isfinite(x)
