"""One run: a trace, some GPUs, a policy and a seed in, the figures out. The same inputs give the same bytes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter
from typing import TextIO

from gpuloom.contract.policy import Policy
from gpuloom.engine.events import Event
from gpuloom.engine.feasible import describe, why_too_large
from gpuloom.engine.log import Header, Scribe, header_line
from gpuloom.engine.machine import Decision, Engine
from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster, parse_cluster
from gpuloom.gpus.cluster import describe as describe_cluster
from gpuloom.policies.registry import make_policy
from gpuloom.sim.body import VirtualBody, Watcher
from gpuloom.sim.curves import Curves
from gpuloom.sim.metrics import Metrics, Outcomes, Summary
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.timeline import Timeline
from gpuloom.sim.worlds.slices import SliceWorld
from gpuloom.sim.worlds.world import World
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.model import Job, Kind, TraceJob


@dataclass(frozen=True, slots=True)
class Result:
    policy: str
    seed: int
    summary: Summary
    outcomes: Outcomes
    curves: Curves | None
    timeline: Timeline | None
    wall_s: float
    layout: str | None = None
    """The layout that best-static found."""


def simulate(
    scenario: Scenario,
    policy: str,
    seed: int = 0,
    *,
    log: TextIO | None = None,
    timeline: bool = False,
    on_progress: Callable[[float, int], None] | None = None,
) -> Result:
    """Run one policy. `best-static` runs every static layout and returns the one with the smallest mean JCT."""
    cluster = parse_cluster(scenario.gpus)
    check_fits(scenario.trace, cluster, has_tables=scenario.tables is not None)
    if policy == "best-static":
        return _best_static(scenario, cluster, seed, log=log, timeline=timeline, on_progress=on_progress)
    began = perf_counter()
    brain = build_policy(policy, cluster, seed, scenario.every_s)
    world = make_world(scenario, cluster, brain, seed)
    costs = scenario.told or scenario.costs.told()
    engine = Engine(cluster, brain, costs=costs)
    metrics = Metrics(engine, world)
    watchers: list[Watcher] = [metrics]
    lines = Timeline(cluster) if timeline else None
    if lines is not None:
        watchers.append(lines)
    if log is not None:
        header = Header(scenario.gpus, policy, seed, scenario.every_s, describe_cluster(cluster), costs, freezes=True)
        log.write(header_line(header))
        watchers.append(LogWriter(log))
    body = VirtualBody(engine, world, scenario.costs, watchers, scenario.faults)
    body.run(_counted(scenario.trace, metrics), on_progress, scenario.earlier)
    if body.jobs:
        raise InputError(_why_stuck(scenario, policy, engine, next(iter(body.jobs.values())).entry.job))
    wall_s = perf_counter() - began
    return Result(policy, seed, metrics.summary(), metrics.outcomes, metrics.curves, lines, wall_s)


def _why_stuck(scenario: Scenario, policy: str, engine: Engine, job: Job) -> str:
    lost = [str(gpu) for gpu, seen in engine.state.gpus.items() if seen.lost]
    if lost:
        return (
            f"job {job.id} ({describe(job)}) cannot go on: GPU {', '.join(lost)} of {scenario.gpus} did not come back"
        )
    refused = "" if engine.last_refusal is None else f"; its last refused plan: {engine.last_refusal}"
    return f"policy {policy} never places job {job.id} ({describe(job)}) on {scenario.gpus}{refused}"


def figures(result: Result) -> dict[str, object]:
    """A result as the flat row that commands print; its names are a contract with scripts."""
    row: dict[str, object] = {"policy": result.policy, "seed": result.seed, **asdict(result.summary)}
    if result.layout is not None:
        row["layout"] = result.layout
    return row | {"wall_s": result.wall_s}


def build_policy(name: str, cluster: Cluster, seed: int, every_s: float | None) -> Policy:
    policy = make_policy(name, cluster, seed)
    if every_s is not None:
        policy.when = replace(policy.when, every_s=every_s, only_if_changed=policy.when.every_s is None)
    return policy


def make_world(scenario: Scenario, cluster: Cluster, policy: Policy, seed: int) -> World:
    costs, figures = scenario.costs, scenario.figures or load_figures()
    slices = SliceWorld(figures, cluster, scenario.slice_costs or costs, partial(scenario.probers, seed))
    if scenario.tables is None:
        return slices
    from gpuloom.sim.worlds.elastic import ElasticWorld
    from gpuloom.sim.worlds.mixed import MixedWorld

    adaptive = getattr(policy, "adaptive", False)
    elastic = ElasticWorld(
        scenario.tables, cluster, adaptive=adaptive, start_s=costs.start_s, restart_s=costs.restart_s
    )
    others = any(entry.job.kind is not Kind.ELASTIC and entry.length_s is not None for entry in scenario.trace)
    return MixedWorld(elastic, slices) if others else elastic


class LogWriter(Watcher):
    """Every turn as a line, without what the policy remembers: nobody goes on with a simulation, and an audit asks."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._scribe = Scribe()

    def turn(self, events: Sequence[Event], decision: Decision | None) -> None:
        self.out.write(self._scribe.line(events, decision))


def _counted(trace: Sequence[TraceJob], metrics: Metrics) -> Iterator[TraceJob]:
    for entry in trace:
        metrics.arrival(entry)
        yield entry


def check_fits(trace: Sequence[TraceJob], cluster: Cluster, *, has_tables: bool) -> None:
    """Refuse a trace with a job that no policy could ever place."""
    if not trace:
        raise InputError("the trace has no jobs")
    for entry in trace:
        job = entry.job
        if entry.length_s is None and not has_tables:
            raise InputError(f"job {job.id} has no length: give one, or --profiles DIR with tables of its application")
    reason = why_too_large((entry.job for entry in trace), cluster)
    if reason is not None:
        raise InputError(reason)


def _best_static(
    scenario: Scenario,
    cluster: Cluster,
    seed: int,
    *,
    log: TextIO | None,
    timeline: bool,
    on_progress: Callable[[float, int], None] | None,
) -> Result:
    """Try every maximal multiset of slices that has room for every job."""
    began = perf_counter()
    models = {gpu.model.name: gpu.model for gpu in cluster.gpus}
    if len(models) != 1 or not all(model.mig for model in models.values()):
        raise InputError("best-static: needs GPUs of one model that has MIG")
    (model,) = models.values()
    largest_mib = max((entry.job.mem_mib or 0) for entry in scenario.trace)
    ranked: list[tuple[int, float, str]] = []
    for slices in layouts.multisets(model):
        layout = layouts.with_slices(model, slices)
        if layout is None or max(model.by_name[i.profile].mem_mib for i in layout) < largest_mib:
            continue
        name = "static:" + ",".join(map(str, slices))
        try:
            summary = simulate(scenario, name, seed, on_progress=on_progress).summary
        except InputError:
            continue  # somebody fits on none of its slices
        if summary.avg_jct_s is not None:
            ranked.append((summary.given_up, summary.avg_jct_s, name))
    if not ranked:
        raise InputError(f"best-static: no static layout of {scenario.gpus} has a slice for every job")
    best = simulate(scenario, min(ranked)[2], seed, log=log, timeline=timeline)
    wall_s = perf_counter() - began
    return replace(best, policy="best-static", layout=best.policy.removeprefix("static:"), wall_s=wall_s)
