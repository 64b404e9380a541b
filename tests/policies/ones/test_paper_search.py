"""Whatever the published evolution breeds can be carried out, and the best of it is no worse than its ancestors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Ints
from gpuloom.policies.ones.paper_search import (
    Problem,
    as_text,
    cross,
    evolve,
    fill,
    from_text,
    mutate,
    reorder,
    score,
    trim,
)


def dice(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any number of GPUs and jobs, any of them new, any limits and costs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gpus, jobs = draw(st.integers(1, 20)), draw(st.integers(1, 10))
    least = rng.integers(1, 4, size=jobs)
    limits = least + rng.integers(0, 8, size=jobs)
    new = rng.random(jobs) < 0.4
    limits[new] = least[new]
    costs = rng.random((jobs, gpus + 1)).cumsum(axis=1)
    costs[new] = costs[:, 0] = 0.0
    most = limits + np.where(new, 0, rng.integers(0, 4, size=jobs))
    return Problem(gpus, least, limits, most, np.flatnonzero(new), rng.permutation(np.flatnonzero(~new)), costs)


def check_feasible(problem: Problem, schedules: Ints) -> None:
    assert (schedules >= 0).all()
    assert (schedules.sum(axis=1) <= problem.gpus).all(), "no GPU is given twice"
    assert (schedules <= problem.most).all()
    assert ((schedules == 0) | (schedules >= problem.least)).all()


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_every_member_is_feasible_and_the_best_comes_first(problem: Problem, seed: int) -> None:
    ancestors = dice(seed).integers(0, 9, size=(problem.gpus, len(problem.limits)))
    begun = score(problem, fill(problem, trim(problem, ancestors)))
    population = evolve(problem, ancestors, dice(seed))
    assert len(population) == problem.gpus
    check_feasible(problem, population)
    scores = score(problem, population)
    assert (np.diff(scores) >= 0).all()
    assert scores[0] <= begun.min()


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_children_have_the_genes_of_their_parents(problem: Problem, seed: int) -> None:
    parents = trim(problem, dice(seed).integers(0, 9, size=(problem.gpus, len(problem.limits))))
    genes = reorder(problem, parents)
    assert (np.diff(genes, axis=1) >= 0).all(), "each job's lie side by side"
    assert [np.bincount(row, minlength=parents.shape[1] + 1)[:-1].tolist() for row in genes] == parents.tolist()
    children = cross(problem, parents, dice(seed))
    assert len(children) == problem.gpus // 2 * 2
    assert (children.sum(axis=1) <= problem.gpus).all()
    assert (children[:, parents.sum(axis=0) == 0] == 0).all(), "nobody comes from nowhere"


def test_mutation_takes_jobs_out_whole_but_no_new_ones() -> None:
    one = np.ones(3, dtype=int)
    problem = Problem(9, one, one, one, np.array([1]), np.array([0, 2]), np.zeros((3, 10)))
    mutants = mutate(problem, np.full((1000, 3), 3), dice(1))
    assert set(mutants.reshape(-1).tolist()) == {0, 3}
    assert (mutants[:, 1] == 3).all()
    assert (mutants[:, [0, 2]] == 0).mean() == pytest.approx(0.3, abs=0.03)


def test_idle_gpus_go_to_new_jobs_first_and_then_to_the_shortest() -> None:
    least, limits = np.array([1, 1, 1, 1]), np.array([4, 4, 1, 1])
    problem = Problem(8, least, limits, limits, np.array([3, 2]), np.array([1, 0]), np.zeros((4, 9)))
    assert fill(problem, np.array([[1, 1, 0, 0]])).tolist() == [[2, 4, 1, 1]]
    assert fill(problem, np.array([[4, 3, 0, 0]])).tolist() == [[4, 3, 0, 1]], "in order of arrival"


def test_who_is_scaled_down_has_what_nobody_else_fills() -> None:
    least, limits, most = np.array([1, 1]), np.array([2, 4]), np.array([8, 4])
    nobody, costs = np.empty(0, dtype=int), np.zeros((2, 11))
    for gpus, filled in ((10, [6, 4]), (6, [2, 4]), (4, [2, 2])):
        assert fill(
            Problem(gpus, least, limits, most, nobody, np.array([0, 1]), costs), np.array([[0, 0]])
        ).tolist() == [filled]


def test_of_two_jobs_that_do_not_both_fit_the_one_with_less_left_runs() -> None:
    costs = np.array([[0.0, 5, 5, 5, 5], [0.0, 9, 9, 9, 9]])
    four = np.array([4, 4])
    problem = Problem(4, np.ones(2, int), four, four, np.empty(0, int), np.array([0, 1]), costs)
    assert evolve(problem, np.tile([0, 4], (4, 1)), dice(1))[0].tolist() == [4, 0]


def test_numbers_survive_as_text() -> None:
    counts = np.array([0, 3, 70_000])
    assert from_text(as_text(counts)).tolist() == counts.tolist()
    with pytest.raises(ValueError, match="population"):
        from_text("bm9uc2Vuc2U=")
