"""A job as JSON: what a log of today, a log of yesterday and a run's description have of its host needs."""

import json
from dataclasses import asdict
from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gpuloom.work.model import NO_HOST_NEEDS, HostNeeds, Job

COUNTS = st.none() | st.integers(1, 10**6)
TIMES = st.none() | st.floats(0.01, 1e6)
NEEDS = st.builds(
    HostNeeds,
    user=st.none() | st.sampled_from(["alice", "b.c-d_e"]),
    cpus=TIMES,
    host_mem_mib=COUNTS,
    pids=COUNTS,
    log_max_mib=st.integers(1, 10**6),
    stall_s=TIMES,
    restart_stalled=st.booleans(),
)


@cache
def adapter() -> "TypeAdapter[Job]":
    return TypeAdapter(Job)


@given(NEEDS)
def test_host_needs_survive_a_log_and_a_run_description(needs: HostNeeds) -> None:
    job = Job("a", command=("true",), host=needs)
    for exclude_defaults in (False, True):
        assert adapter().validate_json(adapter().dump_json(job, exclude_defaults=exclude_defaults)) == job
    assert adapter().validate_json(json.dumps(asdict(job))) == job


NEWER = ("host", "in_place", "max_local_batch")


def test_a_job_without_any_is_written_as_before_there_were_any() -> None:
    written = json.loads(adapter().dump_json(Job("a")))
    assert list(written) == [name for name in asdict(Job("a")) if name not in NEWER]
    assert adapter().validate_python(written).host == NO_HOST_NEEDS
