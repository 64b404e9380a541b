"""The predictor with the weights that ship, and mixes to ask it about."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st

from gpuloom.perf.arrays import Floats
from gpuloom.perf.slices.mix import MpsSpeeds
from gpuloom.perf.slices.predictor import SlicePredictor, SliceSpeeds
from gpuloom.work.measured.predictor_weights import load_weights


@lru_cache
def shipped(without_family: str | None = None) -> SlicePredictor:
    return SlicePredictor.from_arrays(load_weights(without_family=without_family).arrays)


speeds = st.floats(0.05, 5.0)
families = st.sampled_from([None, "resnet", "bert", "never heard of"])
jobs = st.builds(MpsSpeeds, speeds, speeds, speeds, st.none(), families)
mixes = st.lists(jobs, min_size=1, max_size=7)
gauges = st.lists(st.builds(MpsSpeeds, speeds, speeds, speeds), max_size=3)


def values(answers: Sequence[SliceSpeeds]) -> Floats:
    """Speed and interval of each job on each slice."""
    return np.array([[answer[slices] for slices in (7, 4, 3, 2, 1)] for answer in answers])
