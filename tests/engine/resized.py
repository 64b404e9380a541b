"""A log in which a job grows in place, loses a GPU, fails to grow again, and is started anew."""

from gpuloom.contract.plan import Plan
from gpuloom.engine.events import (
    Event,
    GpuLost,
    GpuRestored,
    JobArrived,
    JobCompleted,
    JobRescaled,
    JobStarted,
    JobStopped,
    RescaleFailed,
    Tick,
)
from gpuloom.engine.log import Header, Scribe, header_line
from gpuloom.engine.machine import Decision, Engine
from gpuloom.gpus.cluster import describe, parse_cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.work.model import Job, Kind
from tests.engine.conftest import Puppet


def tell_of_a_resize() -> list[str]:
    cluster = parse_cluster("2xV100")
    one, two = (Grant(0),), (Grant(0), Grant(1))
    header, scribe = Header("2xV100", "by hand", 0, cluster=describe(cluster), freezes=True), Scribe()
    lines, engine = [header_line(header)], Engine(cluster, Puppet())

    def turn(event: Event, grants: Grants | None = None) -> None:
        decision = None if grants is None else Decision(event.at_s, "round", Plan(grants={"a": grants}))
        engine.apply(event)
        engine.follow(decision)
        lines.append(scribe.line([event], decision))

    job = Job("a", kind=Kind.ELASTIC, max_gpus=2, in_place=True)
    turn(JobArrived(0.0, "submitted", job), one)
    turn(JobStarted(12.0, "up", "a"))
    turn(Tick(20.0, "round"), two)
    turn(JobRescaled(21.0, "goes on", "a"))
    turn(GpuLost(30.0, "fell off", 1))
    turn(JobRescaled(31.0, "goes on", "a"))
    turn(GpuRestored(35.0, "back", 1))
    turn(Tick(40.0, "round"), two)
    turn(RescaleFailed(50.0, "no room", "a"))
    turn(JobStopped(51.0, "checkpointed", "a"))
    turn(JobStarted(53.0, "up", "a"))
    turn(JobCompleted(62.0, "done", "a"))
    return lines
