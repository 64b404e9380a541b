"""A server whose batch times are a line, batchers with and without a delay, and arrivals to try them on."""

import numpy as np
from hypothesis import strategies as st

from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.latency import Poisson, QueueLatency, latency_of

AFFINE = BatchTimes.of(2.0 + 0.8 * np.arange(1, 33), 2.0 + 0.9 * np.arange(1, 33))
PERCENTS = (50.0, 99.0, 99.9)
loads = st.floats(0.02, 0.97)
batchings = st.builds(Batching, st.integers(1, 12), st.sampled_from([0.0, 0.5, 3.0, 40.0]))
gap_lists = st.lists(st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.5, 30.0]), min_size=1, max_size=60)


@st.composite
def choosy_batchings(draw: st.DrawFn) -> Batching:
    """With preferred sizes, and a delay in whole milliseconds, so that no rounding decides."""
    max_batch = draw(st.integers(1, 12))
    preferred = draw(st.sets(st.integers(1, max_batch), max_size=3))
    return Batching(max_batch, draw(st.sampled_from([0.0, 1.0, 4.0, 40.0])), tuple(preferred))


def at_load(load: float, batching: Batching, times: BatchTimes = AFFINE) -> QueueLatency:
    return latency_of(times, batching, Poisson(load * times.capacity_per_s(batching)))
