"""Who was where, when: stretches that touch and never overlap, whatever the policy and whatever goes wrong."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.engine.events import GpuCut, GpuLost, JobCompleted, JobCrashed, JobStarted, JobStopped
from gpuloom.engine.instructions import Cut, Start, Stop
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Device, Grant
from gpuloom.sim.faults import Faults
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.timeline import Segment, Timeline
from gpuloom.work.model import TraceJob
from tests.sim.small_traces import GPUS, POLICIES, passing_faults, sliced, traces


def segments_of(result: Result) -> list[Segment]:
    assert result.timeline is not None
    return result.timeline.segments


@settings(deadline=None, max_examples=40)
@given(traces(), st.sampled_from(POLICIES), passing_faults())
def test_a_job_is_in_one_place_at_a_time(trace: list[TraceJob], policy: str, faults: Faults) -> None:
    result = simulate(Scenario(trace, GPUS, every_s=10.0, faults=faults), policy, timeline=True)
    by_job: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments_of(result):
        assert segment.begin_s < segment.end_s or not segment.job_id
        by_job[segment.job_id].append(segment)
    cuts = by_job.pop("", [])
    assert all(segment.phase == "cutting" and segment.grant.instance is None for segment in cuts)
    assert set(result.outcomes.ids) <= set(by_job)
    for stretches in by_job.values():
        stretches.sort()
        assert all(before.end_s <= after.begin_s for before, after in pairwise(stretches))
        assert stretches[0].phase in ("starting", "running")
        assert {segment.phase for segment in stretches} <= {"starting", "running", "stopping"}


@settings(deadline=None, max_examples=40)
@given(traces(), st.sampled_from(POLICIES), passing_faults())
def test_a_device_is_never_held_by_more_than_there_is_of_it(trace: list[TraceJob], policy: str, faults: Faults) -> None:
    result = simulate(Scenario(trace, GPUS, every_s=10.0, faults=faults), policy, timeline=True)
    by_device: dict[Device, list[Segment]] = defaultdict(list)
    for segment in segments_of(result):
        if segment.job_id:
            by_device[segment.grant.device].append(segment)
    for stretches in by_device.values():
        for moment in {segment.begin_s for segment in stretches}:
            held = [segment for segment in stretches if segment.begin_s <= moment < segment.end_s]
            assert sum(segment.grant.share_pct for segment in held) <= 100 + 1e-6


def test_phases_by_hand() -> None:
    lines, grants = Timeline(parse_cluster("1xA100-40GB")), (Grant(0),)
    lines.instruction(0.0, Cut(0, (), ()))
    lines.event(GpuCut(4.0, "cut", 0, ()))
    lines.instruction(4.0, Start("a", grants, resume=False))
    lines.event(JobStarted(14.0, "up", "a"))
    lines.instruction(50.0, Stop("a", save=True))
    lines.event(JobStarted(51.0, "late", "a"))
    lines.event(JobCompleted(53.0, "done", "a"))
    lines.event(JobCompleted(60.0, "who?", "b"))
    lines.instruction(61.0, Start("c", grants, resume=False))
    lines.event(JobStarted(62.0, "up", "c"))
    lines.event(JobCrashed(65.0, "test", "c"))
    lines.instruction(80.0, Start("c", grants, resume=True))
    lines.event(JobStopped(81.0, "killed", "c"))
    lines.event(GpuLost(70.0, "test", 0))
    assert [(segment.begin_s, segment.end_s, segment.job_id, segment.phase) for segment in lines.segments] == [
        (0.0, 4.0, "", "cutting"),
        (4.0, 14.0, "a", "starting"),
        (14.0, 50.0, "a", "running"),
        (50.0, 53.0, "a", "stopping"),
        (61.0, 62.0, "c", "starting"),
        (62.0, 65.0, "c", "running"),
        (80.0, 81.0, "c", "starting"),
    ]


def test_it_is_kept_on_request_only() -> None:
    assert simulate(Scenario([sliced("a", 0, 100), sliced("b", 5, 50)], GPUS), "mps-only:3").timeline is None
