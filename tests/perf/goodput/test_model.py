"""The nouns of goodput: a split is what it multiplies to."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.goodput.model import LocalBatch


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 512), st.integers(0, 20), st.integers(1, 64))
def test_a_global_batch_is_every_pass_of_every_replica(samples: int, accumulation: int, replicas: int) -> None:
    local = LocalBatch(samples, accumulation)
    assert local.total(replicas) == sum(samples for _ in range(replicas) for _ in range(accumulation + 1))
    assert local.total(2 * replicas) == 2 * local.total(replicas)
