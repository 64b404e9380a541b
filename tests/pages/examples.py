"""One small page of each kind, with all that a user names passed through a function."""

from collections.abc import Callable

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run
from gpuloom.kernels.timeline import page as kernels_page
from gpuloom.perf.queueing.batching import BatchTimes
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


PAGES = {"simulation": simulation, "provisioning": provisioning, "kernels": kernels}
