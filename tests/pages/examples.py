"""One small page of each kind, with all that a user names passed through a function."""

from collections.abc import Callable
from dataclasses import replace

from gpuloom.contract.plan import Reason
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.model import Instance
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run
from gpuloom.kernels.timeline import page as kernels_page
from gpuloom.live.report.page import run_page
from gpuloom.live.report.replay import Condition, Doing, LayoutSpan
from gpuloom.live.report.replay import Segment as Stretch
from gpuloom.live.report.story import (
    Decided,
    DeviceStory,
    JobStory,
    Prediction,
    ProbeStory,
    RunStory,
    SeenSpeed,
)
from gpuloom.measure.arrangement import Seat, Way
from gpuloom.measure.page import measured_page
from gpuloom.measure.results import Copy, Outcome
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.perf.speed import Estimate
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Replica, ServicePlan, Unplaced
from gpuloom.provision.report import page as provision_page
from gpuloom.sim.report.data import RunData
from gpuloom.sim.report.page import page as report_page
from gpuloom.sim.timeline import Segment
from gpuloom.work.model import Service

Naming = Callable[[str], str]


def simulation(name: Naming) -> str:
    def run(policy: str, seed: int) -> RunData:
        segments = [
            Segment(0.0, 9.0, "", Grant(0), "cutting"),
            Segment(9.0, 90.0, name("job-a"), Grant(0, Instance(0, "3g.20gb")), "starting"),
            Segment(10.0, 99.0, name("job-b"), Grant(1, share_pct=40.0), "running"),
        ]
        curve = [(0.0, 1.0), (50.0, 0.5)]
        figures = {"jobs": 2, "avg_jct_s": 50.0 + seed, "makespan_s": 99.0}
        return RunData(name(policy), seed, "2xA100-40GB", figures, segments, curve, curve, curve)

    runs = [run("first", 1), run("second", 2)]
    table = [
        {"policy": run.policy, "avg_jct_s": 50.0 + run.seed, "stderr_s": 1.0, "remark": name("remark"), "held": None}
        for run in runs
    ]
    return report_page(name("title"), runs, table, [name("note")])


def provisioning(name: Naming) -> str:
    services = tuple(Service(name(f"service-{at}"), "net", 10.0, 20.0) for at in range(4))
    grants = (
        Grant(0, share_pct=40.0, batch=1),
        Grant(0, share_pct=60.0, batch=2),
        Grant(1, Instance(0, "3g.20gb"), batch=1),
    )
    replicas = tuple(
        Replica(service.id, 0, grant, 0.0, 10.0, 15.0 + 5 * at)
        for at, (service, grant) in enumerate(zip(services, grants, strict=False))
    )
    plan = ServicePlan(
        name("strategy"), "V100+A100-40GB", 2, 7.5, 1, replicas, (Unplaced(services[3].id, name("too much")),),
        ("V100", "A100-40GB"),
    )  # fmt: skip
    times = {replica: BatchTimes.of([4.0, 6.0]) for replica in replicas}
    rows = [{"strategy": name("strategy"), "gpus": 2, "lower_bound_gpus": None}]
    verified = {services[0].id: ("9.0 ± 0.1", True), services[1].id: ("30.0 ± 0.1", False)}
    return provision_page(plan, Demand(services), times, rows, verified)


def kernels(name: Naming) -> str:
    known = {at: Kernel(at, name(f"kernel-{at}"), name("64 1 1"), name("8 1 1")) for at in (1, 2, 3)}
    request = (
        Launch(1, 20_000, 26_000, 30_000, True, 5_000),
        Launch(2, 40_000, 41_000, 12_000, False, 0),
        Launch(3, 9_000, 9_000, 3_000, False, 30_000),
    )
    return kernels_page(Profile(name("program"), known, (Run(request * 5),), name("device"), (name("note"),)))


def live(name: Naming) -> str:
    first, second = name("training-0"), name("training-1")
    large, small = Instance(4, "3g.20gb"), Instance(0, "2g.10gb")
    parts = [
        Stretch(0.0, 20.0, (Grant(0, share_pct=50.0),), Doing.STARTING),
        Stretch(20.0, 90.0, (Grant(0, share_pct=50.0),), Doing.PROBING),
        Stretch(90.0, 100.0, (Grant(0, share_pct=50.0),), Doing.STOPPING),
    ]
    jobs = (
        JobStory(
            first, "completed", 0.0, 400.0, 10.0, 360.0, 2, 3, 0, name("done"),
            (*parts, Stretch(110.0, 400.0, (Grant(0, large),), Doing.RUNNING)),
        ),
        JobStory(
            second, "given up", 0.0, 300.0, 10.0, 260.0, 2, 0, 1, name("exit code 1"),
            (*parts, Stretch(110.0, 300.0, (Grant(0, small),), Doing.RUNNING)),
        ),
    )  # fmt: skip
    spans = (
        LayoutSpan(0.0, 100.0, (), Condition.THERE),
        LayoutSpan(100.0, 110.0, (), Condition.CUTTING),
        LayoutSpan(110.0, 380.0, (small, large), Condition.THERE),
        LayoutSpan(380.0, 400.0, (), Condition.LOST),
    )
    speeds = (
        SeenSpeed(first, "A100-40GB", "whole", 3, 4.0, 1.0),
        SeenSpeed(second, "A100-40GB", "2g.10gb", 1, 2, None),
    )
    predictions = (
        Prediction(first, "3g.20gb", Estimate(0.6, 0.5, 0.7), 2.2, 0.55),
        Prediction(second, "2g.10gb", Estimate(0.4, 0.3, 0.5), None, None),
    )
    reason = Reason(first, name("gpu0/3g.20gb@4"), name("it is fastest there"), 1.0, ((name("wait"), None),))
    decided = (Decided(90.0, name("probed"), reason, None), Decided(95.0, name("probed"), reason, name("no room")))
    story = RunStory(
        name("policy"), "1xA100-40GB", 10.0, 400.0, jobs, (DeviceStory(0, MODELS["A100-40GB"], spans),), speeds,
        (ProbeStory(90.0, 0, predictions),), decided,
    )  # fmt: skip
    return run_page(story, (name("fact"),), Noise(12.5, 3.25, 40))


def measured(name: Naming) -> str:
    """Twice on each of three slices and once in parallel, out of memory on the smallest; with energy and memory."""
    seats = (("1g.5gb", 1), ("3g.20gb", 1), ("3g.20gb", 2), ("7g.40gb", 1))
    rows = [
        Copy(
            run, "", Way.CUT, copies, copy, repetition, Seat(name("training-0"), profile),
            Outcome.OUT_OF_MEMORY if profile == "1g.5gb" else Outcome.OK,
            name("it was ended") if profile == "1g.5gb" else None,
            steps=100, seconds=2.0, step_ms=None if profile == "1g.5gb" else 20.0 + repetition / 10,
            mem_peak_mib=8_000.0, host_cpus=0.9, power_w=300.0, energy_j=600.0, gract=0.5,
        )
        for repetition in range(2)
        for run, (profile, copies) in enumerate(seats, len(seats) * repetition)
        for copy in range(copies)
    ]  # fmt: skip
    named = [replace(row, arrangement=f"{row.copies} x {row.seat.profile}") for row in rows]
    return measured_page(named, MODELS["A100-40GB"], (name("driver"),), 8)


PAGES = {
    "simulation": simulation, "provisioning": provisioning, "kernels": kernels, "live": live, "measured": measured,
}  # fmt: skip
