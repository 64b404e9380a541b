"""Small traces: by hand, where every second can be worked out, and drawn at random with faults that pass."""

from hypothesis import strategies as st

from gpuloom.engine.events import GpuLost, GpuRestored, JobCrashed
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import Faults
from gpuloom.sim.run import Result, simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.work.model import Job, Kind, TraceJob

FREE = Costs(start_s=0, restart_s=0, cut_s=0, mps_start_s=0)
GPUS = "2xA100-40GB"
POLICIES = ("whole-fifo", "whole-sjf", "static:3,2,2", "mps-only", "oracle", "miso-paper", "miso")


def whole(job_id: str, submit_s: float, length_s: float, gpus: int = 1) -> TraceJob:
    return TraceJob(Job(job_id, submit_s, Kind.RIGID, gpus=gpus, min_gpus=gpus, max_gpus=gpus), length_s)


def sliced(job_id: str, submit_s: float, length_s: float, workload: str | None = None, mem_mib: int = 0) -> TraceJob:
    return TraceJob(Job(job_id, submit_s, Kind.SLICEABLE, workload, mem_mib=mem_mib), length_s)


def run(trace: list[TraceJob], policy: str, gpus: str = "1xA100-40GB", costs: Costs = FREE, **more: object) -> Result:
    return simulate(Scenario(trace, gpus, costs=costs, **more), policy)  # type: ignore[arg-type]


def jcts(result: Result) -> dict[str, float]:
    return dict(zip(result.outcomes.ids, result.outcomes.jct_s, strict=True))


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Up to eight jobs that fit on a 2g slice, close together, measured workloads and others."""
    rows = draw(
        st.lists(
            st.tuples(
                st.floats(0.0, 300.0),
                st.floats(1.0, 2000.0),
                st.sampled_from(["resnet 128", "mobilenet 64", "nobody's 1", None]),
                st.sampled_from([0, 4000, 9000]),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return [sliced(f"j{n}", *row) for n, row in enumerate(sorted(rows, key=lambda row: row[0]))]


@st.composite
def passing_faults(draw: st.DrawFn, jobs: int = 8, gpus: int = 2) -> Faults:
    """Crashes, GPUs that are lost and come back, cuts that fail; nothing so often that anybody gives up for it."""
    moments = st.floats(0.0, 3000.0)
    crashes = [
        JobCrashed(draw(moments), "test", f"j{n}")
        for n in draw(st.lists(st.integers(0, jobs - 1), max_size=3, unique=True))
    ]
    losses: list[GpuLost | GpuRestored] = []
    for gpu in draw(st.sets(st.integers(0, gpus - 1))):
        lost_s = draw(moments)
        losses += [GpuLost(lost_s, "test", gpu), GpuRestored(lost_s + draw(st.floats(1.0, 500.0)), "test", gpu)]
    cuts = draw(st.sets(st.integers(1, 12), max_size=2))
    return Faults(tuple(sorted([*crashes, *losses], key=lambda fault: fault.at_s)), frozenset(cuts))
