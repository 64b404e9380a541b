"""Whatever the search finds can be carried out, and is never worse than what is held."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats
from gpuloom.policies.pollux.search import Bytes, Dice, Problem, Search, best_first, padded


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any cluster of small nodes, any jobs, any costs, a feasible allocation held now."""
    nodes, jobs = draw(st.integers(1, 20)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    capacity = np.zeros(padded(nodes), dtype=np.uint8)
    capacity[:nodes] = rng.integers(0, 9, size=nodes)
    limits = rng.integers(1, 12, size=jobs)
    sizes = int(max(limits.max(), 8)) + 1
    costs = rng.random((jobs, 2, 2, sizes)) + 0.01
    costs[..., 0] = 100.0
    now = np.zeros((jobs, len(capacity)), dtype=np.uint8)
    free = capacity.copy()
    for row, limit in zip(now, limits, strict=True):
        node = int(rng.integers(nodes))
        row[node] = min(free[node], limit, int(rng.integers(4)))
        free[node] -= row[node]
    return Problem(now, capacity, limits, costs, rng.random((jobs, 2, sizes)))


def check_feasible(problem: Problem, schedule: Bytes) -> None:
    assert (schedule.sum(axis=0, dtype=int) <= problem.capacity).all(), "no node is over-committed"
    assert (schedule.sum(axis=1, dtype=int) <= problem.max_replicas).all(), "no job has more than it may"
    spanning = np.count_nonzero(schedule, axis=1) > 1
    assert ((schedule[spanning] > 0).sum(axis=0) <= 1).all(), "no two jobs that span nodes share one"


def cost(problem: Problem, schedule: Bytes) -> float:
    """By the definition, one job at a time."""
    total = 0.0
    for row, held, costs in zip(schedule, problem.now, problem.costs, strict=True):
        total += costs[int((row != held).any()), int(np.count_nonzero(row) > 1), int(row.sum())]
    return total


def run(problem: Problem, seed: int, generations: int = 12, ancestors: Bytes | None = None) -> Search:
    nobody = np.zeros((len(problem.now), 0, problem.now.shape[1]), dtype=np.uint8)
    search = Search(problem, nobody if ancestors is None else ancestors, np.random.Generator(np.random.SFC64(seed)))
    search.run(generations)
    return search


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_every_member_is_feasible_and_costs_what_it_says(problem: Problem, seed: int) -> None:
    found = run(problem, seed)
    for member, said in zip(found.population.transpose(1, 0, 2), found.costs, strict=True):
        check_feasible(problem, member)
        assert said == pytest.approx(cost(problem, member))


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_the_best_is_no_worse_than_staying(problem: Problem, seed: int) -> None:
    found = run(problem, seed)
    assert cost(problem, found.best) == pytest.approx(found.costs.min())
    assert found.costs.min() <= cost(problem, problem.now) + 1e-12


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_ancestors_that_no_longer_fit_are_repaired(problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ancestors = rng.integers(0, 9, size=(len(problem.now), 30, problem.now.shape[1]), dtype=np.uint8)
    ancestors = np.minimum(ancestors, problem.capacity)
    for member in run(problem, seed, 2, ancestors).population.transpose(1, 0, 2):
        check_feasible(problem, member)


def fronts(values: Floats) -> list[set[int]]:
    """By the definition: take away, again and again, those that nobody else beats in both."""
    left, found = set(range(values.shape[1])), []
    while left:
        best = {
            i
            for i in left
            if not any((values[:, j] <= values[:, i]).all() and (values[:, j] < values[:, i]).any() for j in left)
        }
        found.append(best)
        left -= best
    return found


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_members_are_ordered_by_front(members: int, seed: int) -> None:
    values = np.random.default_rng(seed).random((2, members))
    order = best_first(values).tolist()
    assert sorted(order) == list(range(members))
    for front in fronts(values):
        assert set(order[: len(front)]) == front
        del order[: len(front)]


def test_the_ends_of_a_front_come_first_and_the_crowded_last() -> None:
    values = np.array([[0.0, 1.0, 2.0, 2.1, 4.0, 6.0], [6.0, 4.0, 3.0, 2.9, 2.0, 0.0]])
    order = best_first(values).tolist()
    assert set(order[:2]) == {0, 5}
    assert set(order[-2:]) == {2, 3}


def test_equals_are_not_all_kept_ahead_of_others() -> None:
    values = np.array([[1.0, 1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 0.5]])
    assert set(best_first(values)[:2].tolist()) == {0, 3}


def simple(jobs: int, nodes: int, most: int = 64) -> Problem:
    """Every GPU helps, but crossing nodes halves what it is worth; nobody holds anything."""
    capacity = np.zeros(padded(nodes), dtype=np.uint8)
    capacity[:nodes] = 4
    speed = np.stack([np.arange(most + 1.0), np.arange(most + 1.0) / 2])
    costs = np.broadcast_to(1 / (speed + 1e-3), (jobs, 2, 2, most + 1))
    now = np.zeros((jobs, len(capacity)), dtype=np.uint8)
    speedups = np.broadcast_to(speed, (jobs, 2, most + 1))
    return Problem(now, capacity, np.full(jobs, most), np.ascontiguousarray(costs), speedups)


def test_finds_the_obvious_optimum() -> None:
    found = run(simple(jobs=4, nodes=4), seed=1, generations=100)
    assert sorted(map(sorted, found.best.tolist())) == [[0] * 7 + [4]] * 4, "a node each"


def test_the_same_seed_finds_the_same() -> None:
    problem = simple(jobs=6, nodes=16)
    one, same, other = run(problem, 7), run(problem, 7), run(problem, 8)
    assert np.array_equal(one.population, same.population)
    assert not np.array_equal(one.population, other.population)


def test_clusters_of_more_than_255_gpus_are_counted_right() -> None:
    problem = simple(jobs=3, nodes=80, most=300)
    found = run(problem, seed=3, generations=5)
    for member, said in zip(found.population.transpose(1, 0, 2), found.costs, strict=True):
        check_feasible(problem, member)
        assert said == pytest.approx(cost(problem, member))


def test_a_search_that_stands_still_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = simple(jobs=1, nodes=1)
    search = Search(problem, problem.now[:, None], np.random.Generator(np.random.SFC64(0)))
    bred, breed = 0, search._breed

    def counted(dice: Dice) -> Bytes:
        nonlocal bred
        bred += 1
        return breed(dice)

    monkeypatch.setattr(search, "_breed", counted)
    search.run(generations=100, patience=10)
    assert 10 <= bred < 20
