"""What a run's jobs have shown follows from its log alone, wherever it was interrupted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.view import JobView, Phase, Report
from gpuloom.engine.audit import audit
from gpuloom.engine.events import JobArrived, JobReported, SeenEarlier
from gpuloom.engine.log import read_turns
from gpuloom.engine.machine import Engine, IllegalEvent
from gpuloom.engine.recovery import recover
from gpuloom.engine.seen import SeenInRun, Shown
from gpuloom.engine.state import State
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.perf.slices.earlier import Earlier, Rate
from gpuloom.policies.registry import make_policy
from gpuloom.work.model import Job
from tests.engine.random_world import KNOWING, fresh, live

SLICE = Instance(4, "3g.20gb")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), part=st.floats(0, 1))
def test_whoever_goes_on_has_seen_what_it_would_have_seen(seed: int, part: float) -> None:
    lived = live("miso", seed, 80)
    whole, parted = SeenInRun(), SeenInRun()
    recover(lived.lines, "log", fresh, on_event=whole.hear)
    killed = 1 + int(part * (len(lived.lines) - 1))
    engine = recover(lived.lines[:killed], "log", fresh, on_event=parted.hear).engine
    for turn in list(read_turns(lived.lines, "log")[1])[killed - 1 :]:
        for event in turn.events:
            engine.apply(event)
            parted.hear(engine.state, event)
        engine.decide()
    assert (parted.rates, parted.at_s) == (whole.rates, whole.at_s)


def test_only_who_has_a_device_for_itself_shows_how_fast_it_is() -> None:
    seen, state = SeenInRun(), State(parse_cluster("2xA100-40GB"))
    for name, grants in {
        "slice": (Grant(0, SLICE),),
        "whole": (Grant(1),),
        "shared": (Grant(1, share_pct=50.0),),
        "several": (Grant(0), Grant(1)),
    }.items():
        job = Job(name, workload="w" if name != "whole" else None, command=("python", "x.py"))
        state.admit(JobView(job, Phase.RUNNING, held=grants))
        for rate in (2.0, 4.0):
            seen.hear(state, JobReported(1.0, "report", name, Report(1.0, batches_per_s=rate)))
        seen.hear(state, JobReported(2.0, "report", name, Report(2.0, progress=3.0)))
    assert seen.rates == {
        Shown("w", True, "A100-40GB"): {"3g.20gb": Rate(3.0, 2)},
        Shown("python x.py", False, "A100-40GB"): {"whole": Rate(3.0, 2)},
    }
    assert {*seen.at_s.values()} == {1.0}


# ---- what is handed in -------------------------------------------------------------------------------------------

KNOWN = Earlier("w", "A100-40GB", {"7g.40gb": 4.0, "3g.20gb": 2.0}, ran=True)


def engine() -> Engine:
    cluster = parse_cluster("1xA100-40GB")
    return Engine(cluster, make_policy("miso", cluster))


def test_it_is_told_once_and_before_the_first_job_of_its_kind() -> None:
    told = SeenEarlier(0.0, "kept", (KNOWN,))
    early = engine()
    assert early.turn([told]) == []
    assert not early.asked, "nobody is there yet"
    assert early.view("test").earlier == {("w", "A100-40GB"): KNOWN}
    with pytest.raises(IllegalEvent, match="SeenEarlier of w on A100-40GB, but that is told once"):
        early.turn([told])
    late = engine()
    late.turn([JobArrived(0.0, "submitted", Job("a", workload="w"))])
    with pytest.raises(IllegalEvent, match="before its first job"):
        late.turn([told])
    assert not late.state.earlier
    late.turn([SeenEarlier(0.0, "kept", (Earlier("v", "A100-40GB", {}, too_small_mib=4864),))])
    assert [*late.state.earlier] == [("v", "A100-40GB")]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_the_log_has_it_and_an_audit_needs_nothing_else(seed: int) -> None:
    lived = live(KNOWING, seed, 60)
    assert '"SeenEarlier"' in lived.lines[1]
    found = audit(lived.lines, "log", fresh)
    assert found.difference is None
    assert found.engine.state.earlier == lived.engine.state.earlier != {}
