"""`gpuloom provision`: how many GPUs services with promises need, and who gets which share of which."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.provision.demand import Demand
    from gpuloom.provision.plan import ServicePlan
    from gpuloom.provision.replan import Replanned
    from gpuloom.provision.supply import Supply
    from gpuloom.sim.service_world import Verdict
    from gpuloom.work.measured.service_pairs import MeasuredServices


def provision(
    services: Annotated[Path, typer.Argument(help="Work file (YAML) with `services:`.", show_default=False)],
    gpu_type: Annotated[
        str,
        typer.Option("--gpu-type", help="A type of GPU, or several with commas: services go where they cost least."),
    ] = "V100",
    arrivals: Annotated[str, typer.Option("--arrivals", help="poisson, regular, or trace:FILE (CSV).")] = "poisson",
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            help="gpuloom, igniter, gpulets, gslice or ffd; with --mig gpuloom, one-process or whole-gpus.",
        ),
    ] = "gpuloom",
    compare: Annotated[bool, typer.Option("--compare", help="All strategies side by side.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the plan by event simulation.")] = False,
    measured: Annotated[
        Path | None,
        typer.Option("--measured", help="Measured solo tables and pairs (JSON lines) that --verify simulates with."),
    ] = None,
    solo_tables: Annotated[
        bool, typer.Option("--solo-tables", help="Plan with the solo tables of --measured, not the fitted curves.")
    ] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile", help="FILE or TYPE=FILE: profiles of your models (JSON lines), in place of those shipped."
        ),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            "--margin", help="Error bars kept free: 1 is the upper end of the 90 % interval.", min=0.0, max=3.0
        ),
    ] = 1.0,
    mig: Annotated[
        list[str] | None,
        typer.Option(
            "--mig",
            help="FILE or TYPE=FILE: plan on MIG instances of that type, from points measured on them"
            " (CSV, docs/provision.md).",
        ),
    ] = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", help="USD or TYPE=USD: what one GPU costs an hour.")
    ] = None,
    replan: Annotated[
        Path | None, typer.Option("--replan", help="An earlier plan (JSON): stay near it, and tell who moves.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page.")] = None,
    requests: Annotated[
        int, typer.Option("--requests", min=1000, help="Simulated, of each service in each run, at least.")
    ] = 20_000,
    runs: Annotated[int, typer.Option("--runs", min=2, max=10, help="Independent simulations.")] = 8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the simulated arrivals.")] = 1,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the plan.")] = Output.table,
) -> None:
    """Find the cheapest GPUs on which every service keeps its p99, and each one's share, batch and replicas.

    Exit code 1: a service could not be placed, or missed its promise in the check.

    \b
    gpuloom provision services.yaml
    gpuloom provision services.yaml --arrivals regular --compare
    gpuloom provision services.yaml --verify --measured solo_and_pairs_v100.jsonl --report plan.html
    gpuloom provision services.yaml --output json > plan.json
    gpuloom provision services.yaml --replan plan.json
    gpuloom provision services.yaml --gpu-type A100-80GB --mig a100_mig_mps_profile.csv
    gpuloom provision services.yaml --gpu-type V100,A100-80GB --mig a100_mig_mps_profile.csv
    """
    from gpuloom.cli.decide.provision_inputs import Told, check_report, demand_of, measured_of, supplies_of
    from gpuloom.cli.decide.provision_print import print_plan, summary

    if compare and replan is not None:
        raise InputError("--compare and --replan: expected one of them, not both")
    told = Told(
        gpu_type, arrivals, strategy, measured, solo_tables, profile or (), mig or (), price or (), margin
    )  # fmt: skip
    check_report(report, [services, replan, *told.files()])
    data = measured_of(told)
    supplies = supplies_of(told, data)
    demand = demand_of(services, arrivals)
    check = (lambda plan: _check(plan, demand, supplies, data, requests, runs, seed)) if verify else lambda _: None
    again, rows = None, list[dict[str, object]]()
    if compare:
        plans = [plan for one in _contest(demand, supplies) if (plan := _cheapest(demand, one)) is not None]
        checked = [check(plan) for plan in plans]
        rows = [summary(plan, demand, supplies, seen) for plan, seen in zip(plans, checked, strict=True)]
        plan, verdicts = plans[0], checked[0]
        emit(rows, output, f"{len(demand.services)} services, {arrivals} arrivals")
    else:
        again = _replanned(demand, supplies, replan, strategy) if replan is not None else None
        plan = again.plan if again is not None else _planned(demand, supplies, strategy)
        verdicts = check(plan)
        print_plan(plan, demand, supplies, verdicts, again, output)
    if report is not None:
        _write_report(report, plan, demand, supplies, verdicts, rows)
    raise typer.Exit(_code(plan, demand, verdicts))


def _planned(demand: "Demand", supplies: "Sequence[Supply]", strategy: str) -> "ServicePlan":
    """Ours mixes types; the others know one, and take the cheapest."""
    from gpuloom.provision.spread import check_models

    check_models(demand, supplies)
    found = _cheapest(demand, [supplies] if strategy == "gpuloom" else [[one] for one in supplies])
    if found is None:
        raise InputError(f"--strategy {strategy}: knows all models on no single type: expected gpuloom")
    return found


def _cheapest(demand: "Demand", ways: "Sequence[Sequence[Supply]]") -> "ServicePlan | None":
    """Of those on whose GPUs all models are known; None if there are none."""
    from gpuloom.provision.spread import spread

    workloads = set(demand.workloads.values())
    known = [way for way in ways if workloads <= {name for supply in way for name in supply.models}]
    plans = [spread(demand, way) for way in known]
    return min(plans, key=lambda one: (len(one.unplaced), one.cost_per_hour or one.gpus), default=None)


def _contest(demand: "Demand", supplies: "Sequence[Supply]") -> "list[list[Sequence[Supply]]]":
    """Ours on all types, ours on each, the others on the cheapest: for each row of the comparison the ways to it."""
    from gpuloom.provision.spread import check_models
    from gpuloom.provision.strategies import STRATEGIES
    from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus, SharedGpus

    check_models(demand, supplies)
    shared = [replace(one, strategy="gpuloom") for one in supplies if isinstance(one, SharedGpus)]
    cut = [replace(one, strategy="gpuloom") for one in supplies if isinstance(one, MigGpus)]
    every: list[Supply] = [*shared, *cut]
    rows: list[list[Sequence[Supply]]] = [[every]]
    rows += [[[one]] for one in every if len(every) > 1]
    rows += [[[replace(one, strategy=name)] for one in shared] for name in list(STRATEGIES)[1:]]
    rows += [[[replace(one, strategy=name)] for one in cut] for name in list(MIG_STRATEGIES)[1:]]
    return rows


def _replanned(demand: "Demand", supplies: "Sequence[Supply]", path: Path, strategy: str) -> "Replanned":
    from gpuloom.provision.plan_file import EXPECTED, read_printed
    from gpuloom.provision.replan import replan
    from gpuloom.work.source import read_json

    if strategy != "gpuloom":
        raise InputError(f"--replan with --strategy {strategy}: expected gpuloom, the only one that stays near a plan")
    return replan(demand, supplies, read_printed(read_json(path, EXPECTED), str(path)).plan)


def _check(
    plan: "ServicePlan",
    demand: "Demand",
    supplies: "Sequence[Supply]",
    data: "MeasuredServices | None",
    requests: int,
    runs: int,
    seed: int,
) -> "list[Verdict]":
    import numpy as np

    from gpuloom.provision.supply import times_of
    from gpuloom.sim.service_world import verify

    world = [_world(supply, plan, demand, data) for supply in supplies if supply.name in plan.counts]
    times = times_of(plan, demand, world)
    return verify(plan, demand, times, np.random.default_rng(seed), requests, runs)


def _world(supply: "Supply", plan: "ServicePlan", demand: "Demand", data: "MeasuredServices | None") -> "Supply":
    """The GPUs of one type as they were measured, as far as they were; what is only assumed is said."""
    from gpuloom.provision.supply import SharedGpus
    from gpuloom.sim.service_world import measured_model
    from gpuloom.work.measured.service_figures import SHIPPED, load_service_figures

    if not isinstance(supply, SharedGpus):
        typer.echo(f"{supply.name}: the check simulates the measured points that the plan is made from", err=True)
        return supply
    if data is None or supply.name not in SHIPPED:
        why = "no --measured FILE" if data is None else f"{supply.name} is not what --measured was measured on"
        typer.echo(f"{why}: the check simulates the planner's own predictions", err=True)
        return supply
    here = {one.service for one in plan.replicas if plan.type_of(one.grant.gpu) == supply.name}
    unknown = {service.workload for service in demand.services if service.id in here} - set(data.solo_ms)
    if unknown:
        raise InputError(f"--measured has no solo table of {min(unknown)}: expected one of every model")
    return supply.in_world(measured_model(data, load_service_figures(supply.name)))


def _write_report(
    path: Path,
    plan: "ServicePlan",
    demand: "Demand",
    supplies: "Sequence[Supply]",
    verdicts: "Sequence[Verdict] | None",
    rows: list[dict[str, object]],
) -> None:
    from gpuloom.cli.decide.provision_print import seen_ms
    from gpuloom.provision.report import page
    from gpuloom.provision.supply import times_of

    seen = {one.service: (seen_ms(one), one.held) for one in verdicts or ()}
    text = page(plan, demand, times_of(plan, demand, supplies), rows, seen)
    path.write_text(text, encoding="utf-8", newline="\n")
    typer.echo(f"report: {path}", err=True)


def _code(plan: "ServicePlan", demand: "Demand", verdicts: "Sequence[Verdict] | None") -> int:
    slo_ms = demand.slo_ms
    late = [one for one in plan.replicas if one.predicted_p99_ms > slo_ms[one.service]]
    for one in late if plan.strategy == "gpuloom" else ():
        told = f"p99 {one.predicted_p99_ms:.2f} of {slo_ms[one.service]:g} ms with these arrivals"
        typer.echo(f"late: {one.service}: {told}", err=True)
    return int(bool(plan.unplaced or late) or any(not one.held for one in verdicts or ()))
