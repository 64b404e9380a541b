"""What jobs of one name have seen together: when it is fitted again, and what is left of the fit's error."""

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.goodput.evidence import GROWTH, MOST, SHRINK, Evidence, factors, times_of
from gpuloom.perf.goodput.fit import fit_step_times
from gpuloom.perf.goodput.goodput import step_s
from gpuloom.perf.goodput.model import Observation, StepTimes

TIMES = StepTimes(a_c=0.03, b_c=0.0008, a_n=0.15, b_n=0.006, a_r=0.02, b_r=0.001, gamma=1.6)


def seen(nodes: int, replicas: int, samples: int, times_slower: float = 1.0) -> Observation:
    compute_s = TIMES.a_c + TIMES.b_c * samples
    return Observation(nodes, replicas, samples, compute_s, step_s(TIMES, nodes > 1, replicas, samples) * times_slower)


def learn(evidence: Evidence, rows: list[Observation]) -> None:
    evidence.add(rows)
    if evidence.is_due():
        evidence.fit_all()


def test_the_fit_is_that_of_all_that_was_seen_in_whatever_order() -> None:
    rows = [seen(1, 1, 32), seen(1, 2, 32), seen(2, 8, 16)]
    one, other = Evidence(), Evidence()
    learn(one, rows)
    for row in reversed(rows):
        learn(other, [row])
    assert times_of(one.part()) == times_of(other.part()) == fit_step_times(sorted(rows), ring=True)
    assert one.most_replicas == 8


def test_the_first_time_that_a_configuration_was_seen_counts() -> None:
    evidence = Evidence()
    learn(evidence, [seen(1, 1, 32)])
    before = times_of(evidence.part())
    learn(evidence, [seen(1, 1, 32, times_slower=5.0)])
    assert times_of(evidence.part()) == before
    assert len(evidence.seen) == 1


def test_it_is_fitted_again_for_a_new_number_of_gpus_and_when_a_tenth_has_come() -> None:
    evidence = Evidence()
    learn(evidence, [seen(1, 1, samples) for samples in range(1, 31)])
    assert evidence.fitted == 30
    learn(evidence, [seen(1, 1, 31)])
    assert evidence.fitted == 30, "one more batch of the same kind changes little"
    learn(evidence, [seen(1, 1, samples) for samples in (32, 33, 34)])
    assert evidence.fitted == 34 > 30 * GROWTH
    learn(evidence, [seen(1, 2, 8)])
    assert evidence.fitted == 35, "nobody had been on two"
    learn(evidence, [seen(2, 2, 8)])
    assert evidence.fitted == 36, "nor on two of different nodes"


def test_what_is_not_in_the_fit_is_not_in_its_errors_either() -> None:
    evidence = Evidence()
    learn(evidence, [seen(1, 1, samples) for samples in range(1, 31)])
    before = factors(times_of(evidence.part()), evidence.part(), 4)
    learn(evidence, [seen(1, 1, 77, times_slower=9.0)])
    assert factors(times_of(evidence.part()), evidence.part(), 4) == before


def test_no_more_is_kept_than_helps() -> None:
    evidence = Evidence()
    learn(evidence, [seen(1, 1, samples) for samples in range(1, MOST + 50)])
    assert len(evidence.seen) == evidence.fitted == MOST


def test_its_fit_follows_from_what_is_remembered() -> None:
    evidence = Evidence()
    learn(evidence, [seen(1, 1, samples) for samples in range(1, 31)])
    learn(evidence, [seen(1, 1, 31)])
    heir = Evidence(dict(evidence.seen), evidence.fitted)
    assert (times_of(heir.part()), factors(times_of(heir.part()), heir.part(), 4)) == (
        times_of(evidence.part()),
        factors(times_of(evidence.part()), evidence.part(), 4),
    )


def test_errors_are_taken_out_where_a_number_was_seen_and_less_if_only_once() -> None:
    rows = (seen(1, 2, 32, 0.8), seen(1, 4, 32, 1.25), seen(1, 4, 16, 1.25), seen(1, 1, 32))
    found = factors(TIMES, rows, 4)
    assert found[2] == pytest.approx(exp(log(1 / 0.8) / (1 + SHRINK)))
    assert found[4] == pytest.approx(exp(2 * log(1 / 1.25) / (2 + SHRINK)))
    assert found[1] == pytest.approx(1.0)
    assert set(found) == {1, 2, 4}


def test_who_sat_on_more_nodes_than_necessary_says_nothing_about_those_who_do_not() -> None:
    rows = (seen(2, 2, 32, 3.0), seen(4, 8, 32, 3.0), seen(2, 8, 32, 2.0))
    assert factors(TIMES, rows, 4) == {8: pytest.approx(exp(log(1 / 2.0) / (1 + SHRINK)))}


@settings(max_examples=50)
@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=8))
def test_a_correction_never_goes_beyond_what_was_seen(slower: list[float]) -> None:
    rows = tuple(seen(1, 4, 8 + number, times) for number, times in enumerate(slower))
    (factor,) = factors(TIMES, rows, 4).values()
    fastest, slowest = max(1 / min(slower), 1.0), min(1 / max(slower), 1.0)
    assert slowest * (1 - 1e-9) <= factor <= fastest * (1 + 1e-9)
