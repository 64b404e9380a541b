"""The agent inside an elastic job: it learns from what it ran on, and chooses within the limits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.goodput.agent import Agent, Fits
from gpuloom.perf.goodput.fit import fit_step_times
from gpuloom.perf.goodput.goodput import best_batch, split_batch
from gpuloom.perf.goodput.model import BatchLimits, Observation
from tests.perf.conftest import true_times

LIMITS = BatchLimits(init_batch=64, max_batch=1024, min_local=8, max_local=64)


def seen(nodes: int, replicas: int, samples: int) -> Observation:
    step_s, sync_s = true_times(nodes, replicas, samples)
    return Observation(nodes, replicas, samples, step_s - sync_s, step_s)


def agent() -> Agent:
    return Agent(LIMITS, 16, Fits())


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 16))
def test_before_anything_is_known_the_smallest_batch_is_chosen(replicas: int) -> None:
    new = agent()
    assert new.model is None
    local = new.choose(1, replicas)
    assert local == split_batch(max(64, 8 * replicas), replicas, LIMITS)
    assert LIMITS.init_batch <= local.total(replicas) <= LIMITS.max_batch


def test_what_was_seen_is_what_it_reports() -> None:
    job = agent()
    job.observe(seen(1, 1, 64), 2.0, 4.0, 64)
    assert job.model is not None
    assert (job.model.grad_sqr, job.model.grad_var, job.model.most_replicas, job.model.max_replicas) == (
        2.0,
        4.0,
        1,
        16,
    )
    job.observe(seen(1, 4, 32), 2.0, 8.0, 64)
    job.observe(seen(1, 2, 32), 2.0, 6.0, 64)
    assert job.model.most_replicas == 4, "the most it has ever been on"
    assert job.model.grad_var == 6.0, "gradients are the latest"
    assert job.model.times == fit_step_times(tuple(sorted([seen(1, 1, 64), seen(1, 4, 32), seen(1, 2, 32)])))
    assert job.choose(1, 4) == best_batch(job.model, False, 4)
    assert job.choose(2, 4) == best_batch(job.model, True, 4)


def test_the_first_measurement_of_a_configuration_counts() -> None:
    job = agent()
    job.observe(seen(1, 1, 64), 2.0, 4.0, 64)
    assert job.model is not None
    before = job.model.times
    job.observe(seen(1, 1, 64)._replace(step_s=99.0, compute_s=98.0), 3.0, 5.0, 64)
    assert job.model.times == before
    assert (job.model.grad_sqr, job.model.grad_var) == (3.0, 5.0)


def test_who_has_seen_the_same_concludes_the_same() -> None:
    fits = Fits()
    first, second = Agent(LIMITS, 16, fits), Agent(LIMITS, 4, fits)
    for configuration in ((1, 1, 64), (1, 2, 32)):
        first.observe(seen(*configuration), 2.0, 4.0, 64)
    for configuration in ((1, 2, 32), (1, 1, 64)):
        second.observe(seen(*configuration), 1.0, 1.0, 64)
    assert first.model is not None
    assert second.model is not None
    assert first.model.times is second.model.times, "in whatever order, and fitted once"
    assert second.model.max_replicas == 4
