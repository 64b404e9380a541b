"""The fit explains what was seen, and is hopeful about what was not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.goodput.fit import LEAST, _evidence, _loss, fit_step_times
from gpuloom.perf.goodput.model import Observation, StepTimes
from tests.perf.goodput.step_time import step_s

TRUTH = StepTimes(a_c=0.03, b_c=0.0008, a_n=0.15, b_n=0.006, a_r=0.02, b_r=0.001, gamma=1.6)
EVERYTHING = [
    (1, 1, 32),
    (1, 1, 64),
    (1, 2, 64),
    (1, 4, 32),
    (2, 2, 64),
    (2, 4, 32),
    (2, 8, 16),
    (4, 16, 32),
    (4, 12, 64),
]


def observe(nodes: int, replicas: int, samples: int) -> Observation:
    return Observation(
        nodes, replicas, samples, TRUTH.a_c + TRUTH.b_c * samples, step_s(TRUTH, nodes > 1, replicas, samples)
    )


def test_explains_what_a_job_of_that_law_has_seen() -> None:
    seen = [observe(*configuration) for configuration in EVERYTHING]
    fitted = fit_step_times(seen)
    for one in seen:
        predicted = step_s(fitted, one.nodes > 1, one.replicas, one.samples)
        assert predicted == pytest.approx(one.step_s, rel=0.05)


def test_the_order_of_what_was_seen_may_only_matter_in_the_last_digits() -> None:
    seen = [observe(*configuration) for configuration in EVERYTHING]
    assert fit_step_times(seen) == fit_step_times(tuple(seen))


@settings(deadline=None, max_examples=15)
@given(st.permutations(EVERYTHING))
def test_evidence_in_any_order_says_the_same(order: list[tuple[int, int, int]]) -> None:
    seen = [observe(*configuration) for configuration in EVERYTHING]
    first, second = fit_step_times(seen), fit_step_times([observe(*configuration) for configuration in order])
    for nodes, replicas, samples in EVERYTHING:
        straight, permuted = (step_s(law, nodes > 1, replicas, samples) for law in (first, second))
        assert permuted == pytest.approx(straight, rel=0.02)


@settings(deadline=None, max_examples=15)
@given(st.floats(0.005, 0.1), st.floats(1e-4, 0.005), st.floats(0.05, 0.5), st.floats(0.001, 0.02), st.floats(1.0, 3.0))
def test_made_up_laws_are_explained(a_c: float, b_c: float, a_n: float, b_n: float, gamma: float) -> None:
    law = StepTimes(a_c, b_c, a_n, b_n, a_n / 5, b_n / 5, gamma)
    seen = [
        Observation(nodes, replicas, samples, a_c + b_c * samples, step_s(law, nodes > 1, replicas, samples))
        for nodes, replicas, samples in EVERYTHING
    ]
    fitted = fit_step_times(seen)
    errors = [abs(np.log(step_s(fitted, row.nodes > 1, row.replicas, row.samples) / row.step_s)) for row in seen]
    assert np.mean(errors) < 0.05
    for row in seen:
        assert fitted.a_c + fitted.b_c * row.samples == pytest.approx(row.compute_s, rel=0.1)


def test_one_gpu_seen_makes_any_network_look_free() -> None:
    fitted = fit_step_times([observe(1, 1, 64)])
    assert max(fitted.a_r, fitted.b_r) == LEAST
    assert max(fitted.a_n, fitted.b_n) <= 1.2 * LEAST
    assert fitted.a_c == pytest.approx((TRUTH.a_c + TRUTH.b_c * 64) / 2), "half of it, with a single local batch seen"
    assert step_s(fitted, True, 64, 64) == pytest.approx(step_s(fitted, False, 1, 64), rel=1e-3)


def test_across_nodes_is_thought_no_faster_than_within_one() -> None:
    fitted = fit_step_times([observe(1, 1, 32), observe(1, 2, 64), observe(1, 4, 64)])
    assert fitted.a_n >= 1.1 * fitted.a_r * 0.999
    assert fitted.b_n >= 1.1 * fitted.b_r * 0.999


def test_two_replicas_say_nothing_of_more() -> None:
    fitted = fit_step_times([observe(1, 1, 32), observe(2, 2, 64)])
    assert fitted.b_n == LEAST
    assert fitted.a_n > 0.01


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(EVERYTHING), min_size=1, max_size=9, unique=True))
def test_parameters_stay_within_their_bounds(configurations: list[tuple[int, int, int]]) -> None:
    fitted = fit_step_times([observe(*configuration) for configuration in configurations])
    assert min(fitted[:6]) >= LEAST * 0.999
    assert 1.0 <= fitted.gamma <= 10.0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0.01, 0.5), min_size=6, max_size=6), st.floats(1.0, 4.0))
def test_the_gradient_is_the_slope_of_the_loss(times: list[float], gamma: float) -> None:
    evidence = _evidence([observe(*configuration) for configuration in EVERYTHING])
    at, gradient = np.array([*times, gamma]), _loss(np.array([*times, gamma]), evidence)[1]
    for i in range(7):
        step = np.zeros(7)
        step[i] = 1e-6
        slope = (_loss(at + step, evidence)[0] - _loss(at - step, evidence)[0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def within_a_node(*counts: int, law: StepTimes) -> list[Observation]:
    return [
        Observation(1, replicas, samples, law.a_c + law.b_c * samples, step_s(law, False, replicas, samples))
        for replicas in counts
        for samples in (16, 32, 64)
    ]


def test_what_grows_within_a_node_is_not_taken_to_grow_across_nodes_where_gradients_go_round_in_a_ring() -> None:
    crowded = TRUTH._replace(a_r=0.02, b_r=0.05)
    seen = within_a_node(1, 2, 4, law=crowded)
    ring, paper = fit_step_times(seen, ring=True), fit_step_times(seen)
    assert step_s(ring, True, 32, 32) == pytest.approx(step_s(ring, True, 8, 32), rel=1e-3)
    assert step_s(paper, True, 32, 32) > 2 * step_s(paper, True, 8, 32)
    assert step_s(ring, True, 8, 32) > step_s(ring, False, 4, 32), "but a network between nodes is slower than none"


def test_one_number_of_gpus_across_nodes_does_not_say_that_more_are_slower() -> None:
    seen = [observe(*configuration) for configuration in EVERYTHING if configuration[0] == 1 or configuration[1] == 8]
    ring = fit_step_times(seen, ring=True)
    assert step_s(ring, True, 64, 32) == pytest.approx(step_s(ring, True, 8, 32), rel=1e-3)


def test_two_numbers_of_gpus_across_nodes_do() -> None:
    steep = TRUTH._replace(b_n=0.03)
    seen = within_a_node(1, 2, 4, law=steep) + [
        Observation(nodes, replicas, 32, steep.a_c + steep.b_c * 32, step_s(steep, True, replicas, 32))
        for nodes, replicas in ((2, 8), (4, 16), (8, 32))
    ]
    ring = fit_step_times(seen, ring=True)
    assert step_s(ring, True, 64, 32) == pytest.approx(step_s(steep, True, 64, 32), rel=0.1)
