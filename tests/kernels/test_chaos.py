"""A few kills in every test run; `python -m tests.kernels.chaos 1000` for many."""

import pytest

from .chaos import chaos


@pytest.mark.xdist_group("opencl")
def test_the_rest_finish_with_right_results_when_others_are_killed(opencl: dict[str, str]) -> None:
    if "Intel" in opencl["GPULOOM_OPENCL_PLATFORM"]:
        pytest.skip("one runtime is enough for killing")
    assert chaos(12, 5, opencl).fine
