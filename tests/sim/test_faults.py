"""Faults as the command line spells them: what is meant, in order of time, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.engine.events import GpuLost, GpuRestored, JobCrashed
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.sim.faults import NO_FAULTS, Faults, check_crashes, parse_faults

CLUSTER = parse_cluster("4xA100-40GB")
moments = st.floats(0.0, 1e6)
names = st.text("ab1@:-", min_size=1, max_size=6)
events = st.one_of(
    st.builds(GpuLost, moments, st.just("injected"), st.integers(0, 3)),
    st.builds(GpuRestored, moments, st.just("injected"), st.integers(0, 3)),
    st.builds(JobCrashed, moments, st.just("injected"), names),
)


def spelled(event: GpuLost | GpuRestored | JobCrashed) -> str:
    if isinstance(event, JobCrashed):
        return f"crash:{event.job_id}@{event.at_s!r}"
    return f"gpu-{'lost' if isinstance(event, GpuLost) else 'restored'}:{event.gpu}@{event.at_s!r}"


@settings(deadline=None, max_examples=60)
@given(st.lists(events, max_size=8), st.sets(st.integers(1, 20), max_size=4))
def test_what_is_spelled_is_what_happens(told: list[GpuLost | GpuRestored | JobCrashed], cuts: set[int]) -> None:
    """Names of jobs may hold an @ or a colon themselves."""
    faults = parse_faults([*map(spelled, told), *(f"cut-fails:{nth}" for nth in cuts)], CLUSTER)
    assert faults.failing_cuts == cuts
    assert list(faults.events) == sorted(told, key=lambda event: event.at_s)


def test_nothing_is_to_go_wrong() -> None:
    assert parse_faults([], CLUSTER) == NO_FAULTS == Faults()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu-lost",
        "gpu-lost:1",
        "gpu-lost:@5",
        "gpu-lost:one@5",
        "gpu-lost:-1@5",
        "gpu-lost:1@-5",
        "gpu-lost:1@nan",
        "gpu-lost:1@inf",
        "gpu-lost:1@soon",
        "gpu-found:1@5",
        "crash:a",
        "crash:@5",
        "crash:a@",
        "cut-fails:0",
        "cut-fails:-1",
        "cut-fails:1.5",
        "cut-fails:2@300",
        "cut-fails:",
        "Crash:a@5",
    ],
)
def test_what_is_not_spelled_so_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected gpu-lost:GPU@SECONDS, gpu-restored:GPU@SECONDS") as raised:
        parse_faults([text], CLUSTER)
    assert str(raised.value).startswith(f"--fault {text}:")


def test_a_gpu_that_is_not_there_and_a_job_that_never_comes() -> None:
    with pytest.raises(InputError, match="--fault gpu-lost:4@5: there are GPUs 0 to 3"):
        parse_faults(["gpu-lost:4@5"], CLUSTER)
    texts = ["crash:a@1", "gpu-lost:0@2", "crash:b@c@3"]
    check_crashes(texts, {"a", "b@c"})
    with pytest.raises(InputError, match="there is no job 'b@c' in the trace"):
        check_crashes(texts, {"a", "b"})
