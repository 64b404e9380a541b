"""The measured world of slices: measured speeds where there are some, and what is derived where there are none."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import find
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.sim.costs import Costs
from gpuloom.sim.worlds.probes import AuthorsError, Prober
from gpuloom.sim.worlds.slices import NEIGHBOUR_PENALTY, SliceWorld, SpeedCurve, speed_at
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import Job, Kind, TraceJob

FIGURES = load_figures()
CLUSTER = parse_cluster("1xA100-40GB,1xA100-80GB,1xV100,1xT4")
WHOLE = Grant(0)
SMALL = Grant(0, Instance(0, "1g.5gb"))
workloads = st.sampled_from([*sorted(FIGURES.workloads), "nobody's 1", None])


def world(costs: Costs = Costs()) -> SliceWorld:  # noqa: B008 - frozen
    return SliceWorld(FIGURES, CLUSTER, costs, lambda: AuthorsError(1))


def entry(workload: str | None = "resnet 128", mem_mib: int | None = None, gpus: int = 1) -> TraceJob:
    return TraceJob(Job("a", 0.0, Kind.SLICEABLE, workload, gpus=gpus, mem_mib=mem_mib), 100.0)


@settings(deadline=None, max_examples=60)
@given(workloads, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_part_of_the_sms_is_never_much_slower(workload: str | None, one: float, other: float) -> None:
    """Speeds are as measured: a 4g that was slower than a 3g, by 5 % at most, stays so."""
    curve = world().curve(entry(workload))
    small, large = sorted((one, other))
    assert 0 <= speed_at(curve, small) <= speed_at(curve, large) + 0.05
    assert speed_at(curve, large) <= 1.01


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=6, unique_by=lambda p: p[0]),
    st.floats(0.0, 1.5),
)
def test_a_curve_is_straight_between_its_points(points: list[tuple[float, float]], share: float) -> None:
    curve: SpeedCurve = ((0.0, 0.0), *sorted(points))
    for x, y in curve:
        assert speed_at(curve, x) == y
    speed = speed_at(curve, share)
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x0 <= share <= x1:
            assert speed == pytest.approx(y0 + (y1 - y0) * (share - x0) / (x1 - x0), abs=1e-9)
    if share > curve[-1][0]:
        assert speed == curve[-1][1]


@pytest.mark.parametrize("workload", sorted(FIGURES.workloads)[:6])
def test_on_the_measured_gpu_it_is_what_was_measured(workload: str) -> None:
    measured = FIGURES.workloads[workload]
    assert world().speeds(entry(workload), find("A100-40GB")) == measured.speeds
    run = world().admit(entry(workload))
    for profile, speed in measured.speeds.items():
        assert run.rate((Grant(0, Instance(0, profile)),), ()) == pytest.approx(speed)
    assert run.rate((WHOLE,), ()) == 1.0
    assert run.mark() == 100.0
    assert run.reach_mark(0.0, (WHOLE,)) == (True, None)


def test_a_slice_without_the_memory_stands_still() -> None:
    large = next(name for name, row in FIGURES.workloads.items() if "1g.5gb" not in row.speeds)
    assert world().admit(entry(large)).rate((SMALL,), ()) == 0.0
    asked = world().speeds(entry("resnet 128", mem_mib=6000), find("A100-40GB"))
    assert set(asked) <= {"1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
    heavy = max(FIGURES.workloads.values(), key=lambda row: row.mem_mib)
    assert heavy.mem_mib > CLUSTER.gpus[3].model.mem_mib
    assert world().admit(entry(heavy.name)).rate((Grant(3),), ()) == 0.0, "too large for a whole T4"


@settings(deadline=None, max_examples=40)
@given(workloads, st.integers(0, 6), st.floats(5.0, 95.0))
def test_each_neighbour_costs_the_authors_penalty(workload: str | None, neighbours: int, share_pct: float) -> None:
    run, grant = world().admit(entry(workload)), Grant(0, None, share_pct)
    alone = run.rate((grant,), ())
    assert run.rate((grant,), [WHOLE] * neighbours) == pytest.approx(alone * NEIGHBOUR_PENALTY**neighbours)
    assert alone == pytest.approx(speed_at(world().curve(entry(workload)), share_pct / 100))


def test_several_gpus_go_as_the_slowest_of_them() -> None:
    run = world().admit(entry(None, gpus=2))
    assert run.rate((WHOLE, Grant(1)), ()) == 1.0
    assert run.rate((WHOLE,), ()) == 0.5, "half of what it asked for"
    shared = Grant(1, None, 50.0)
    assert run.rate((WHOLE, shared), ()) == pytest.approx(world().admit(entry(None)).rate((shared,), ()))


def test_a_workload_that_nobody_measured_is_the_mean_of_the_others() -> None:
    profile = Grant(0, Instance(4, "3g.20gb"))
    others = [row.speeds["3g.20gb"] for row in FIGURES.workloads.values() if "3g.20gb" in row.speeds]
    speed = world().admit(entry("nobody's 1")).rate((profile,), ())
    assert speed == pytest.approx(sum(others) / len(others), abs=0.02)
    assert set(world().speeds(entry("nobody's 1"), find("A100-80GB"))) == set(find("A100-80GB").by_name)


def test_a_start_costs_what_it_is_said_to() -> None:
    measured = FIGURES.workloads["resnet 128"].restart_s
    assert world().start_s(entry(), resumed=False) == Costs().start_s
    assert world().start_s(entry(), resumed=True) == measured
    assert world().start_s(entry(None), resumed=True) == Costs().start_s
    assert world(Costs(restart_s=2.0)).start_s(entry(), resumed=True) == 2.0


def test_a_job_alone_on_a_device_reports_its_batches() -> None:
    run, measured = world().admit(entry()), FIGURES.workloads["resnet 128"]
    report = run.start(5.0, (SMALL,))
    assert report is not None
    assert report.batches_per_s == pytest.approx(measured.speeds["1g.5gb"] / measured.batch_s)
    assert run.start(5.0, (Grant(0, None, 50.0),)) is None, "beside others it says nothing about the slice"
    assert run.start(5.0, (WHOLE, Grant(1))) is None
    assert world().admit(entry(None)).start(5.0, (WHOLE,)) is None


def test_hints_are_the_whole_truth_about_a_job() -> None:
    hints = world().hints(entry())
    assert hints.length_s == 100.0
    assert hints.speeds is not None
    assert set(hints.speeds) == {"A100-40GB", "A100-80GB"}, "of GPUs that can be cut"
    assert hints.speeds["A100-40GB"] == FIGURES.workloads["resnet 128"].speeds
    rigid = TraceJob(Job("r", kind=Kind.RIGID, gpus=2), 50.0)
    assert world().hints(rigid).speeds is None
    assert (world().alone_s(rigid), world().single_gpu_s(rigid)) == (50.0, 100.0)


def test_a_prober_is_made_when_the_first_probe_is() -> None:
    made: list[Prober] = []

    def make() -> Prober:
        made.append(AuthorsError(1))
        return made[-1]

    lazy = SliceWorld(FIGURES, CLUSTER, Costs(), make)
    lazy.admit(entry())
    assert not made
    answers = lazy.probe([entry(), entry()], find("A100-40GB"))
    lazy.probe([entry()], find("A100-40GB"))
    assert len(made) == 1
    assert set(answers) == {"a"}
    assert set(answers["a"]) == set(FIGURES.workloads["resnet 128"].speeds)
