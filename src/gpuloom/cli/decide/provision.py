"""`gpuloom provision`: how many GPUs services with promises need, and who gets which share of which."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.provision.check import Verdict
    from gpuloom.provision.demand import Demand
    from gpuloom.provision.plan import ServicePlan
    from gpuloom.provision.replan import Replanned
    from gpuloom.provision.supply import Supply
    from gpuloom.work.measured.service_pairs import MeasuredServices

Services = Annotated[Path, typer.Argument(help="Work file (YAML) with `services:`.", show_default=False)]
GpuTypes = Annotated[
    str | None,
    typer.Option(
        "--gpu-type",
        help="A type of GPU, or several with commas: services go where they cost least. Or this machine's cpu.",
        show_default="what the profile was measured on, else V100",
    ),
]
Arrivals = Annotated[str, typer.Option("--arrivals", help="poisson, regular, or trace:FILE (CSV).")]
StrategyName = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="gpuloom, igniter, gpulets, gslice, ffd or alone; with --mig gpuloom, one-process or whole-gpus.",
    ),
]
Compare = Annotated[bool, typer.Option("--compare", help="All strategies side by side.")]
Verify = Annotated[bool, typer.Option("--verify", help="Check the plan by event simulation.")]
Measured = Annotated[
    Path | None,
    typer.Option("--measured", help="Measured solo tables and pairs (JSON lines) that --verify simulates with."),
]
AloneTables = Annotated[
    bool, typer.Option("--solo-tables", help="Plan with the solo tables of --measured, not the fitted curves.")
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        help="FILE or TYPE=FILE: profiles of your models, in place of those shipped: what gpuloom measure service"
        " writes, or iGniter's 11 runs (JSON lines).",
    ),
]
Margin = Annotated[
    float,
    typer.Option("--margin", help="Error bars kept free: 1 is the upper end of the 90 % interval.", min=0.0, max=3.0),
]
Migs = Annotated[
    list[str] | None,
    typer.Option(
        "--mig",
        help="FILE or TYPE=FILE: plan on MIG instances of that type, from points measured on them"
        " (CSV, docs/provision.md).",
    ),
]
Prices = Annotated[list[str] | None, typer.Option("--price", help="USD or TYPE=USD: what one GPU costs an hour.")]
OldPlan = Annotated[
    Path | None, typer.Option("--replan", help="An earlier plan (JSON): stay near it, and tell who moves.")
]
Report = Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page.")]
Requests = Annotated[
    int, typer.Option("--requests", min=1000, help="Simulated, of each service in each run, at least.")
]
Runs = Annotated[int, typer.Option("--runs", min=2, max=10, help="Independent simulations.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the simulated arrivals.")]


def provision(
    services: Services,
    gpu_type: GpuTypes = None,
    arrivals: Arrivals = "poisson",
    strategy: StrategyName = "gpuloom",
    compare: Compare = False,
    verify: Verify = False,
    measured: Measured = None,
    solo_tables: AloneTables = False,
    profile: Profiles = None,
    margin: Margin = 1.0,
    mig: Migs = None,
    price: Prices = None,
    replan: OldPlan = None,
    report: Report = None,
    requests: Requests = 20_000,
    runs: Runs = 8,
    seed: Seed = 1,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the plan.")] = Output.table,
) -> None:
    """Find the cheapest GPUs on which every service keeps its p99, and each one's share, batch and replicas.

    Exit code 1: a service could not be placed, or missed its promise in the check.

    \b
    gpuloom provision services.yaml
    gpuloom provision services.yaml --arrivals regular --compare
    gpuloom provision services.yaml --verify --measured solo_and_pairs_v100.jsonl --report plan.html
    gpuloom provision services.yaml --output json > plan.json
    gpuloom provision services.yaml --profile gpuloom-measure-service/profile.json
    gpuloom provision services.yaml --gpu-type V100,A100-80GB --mig a100_mig_mps_profile.csv
    """
    from gpuloom.cli.decide import provision_inputs as inputs
    from gpuloom.cli.decide.provision_print import print_plan, summary
    from gpuloom.provision.contest import best_plan, contest

    if compare and replan is not None:
        raise InputError("--compare and --replan: expected one of them, not both")
    options = inputs.PlanOptions(gpu_type, arrivals, strategy, measured, solo_tables, profile, mig, price, margin)
    inputs.check_report(report, [services, replan, *options.files()])
    data = inputs.measured_of(options)
    demand = inputs.demand_of(services, arrivals)
    supplies = inputs.supplies_of(options, data, demand)
    check = (lambda plan: _check(plan, demand, supplies, data, requests, runs, seed)) if verify else lambda _: None
    again, rows = None, list[dict[str, object]]()
    if compare:
        plans = contest(demand, supplies)
        checked = [check(plan) for plan in plans]
        rows = [summary(plan, demand, supplies, seen) for plan, seen in zip(plans, checked, strict=True)]
        plan, verdicts = plans[0], checked[0]
        emit(rows, output, f"{len(demand.services)} services, {arrivals} arrivals")
    else:
        again = _replanned(demand, supplies, replan, strategy) if replan is not None else None
        plan = again.plan if again is not None else best_plan(demand, supplies, strategy)
        verdicts = check(plan)
        print_plan(plan, demand, supplies, verdicts, again, output)
    inputs.say_unmeasured(plan, demand, supplies)
    _write_report(report, plan, demand, supplies, verdicts, rows)
    raise typer.Exit(_code(plan, demand, verdicts))


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
    """In the world as it was measured; what is only assumed is said."""
    import numpy as np

    from gpuloom.provision.check import verify, world_of
    from gpuloom.provision.supply import times_of
    from gpuloom.work.measured.service_figures import SHIPPED, load_service_figures

    figures = {name: load_service_figures(name) for name in SHIPPED}
    world: list[Supply] = []
    for supply, assumed in world_of(plan, demand, supplies, data, figures):
        world.append(supply)
        if assumed is not None:
            typer.echo(assumed, err=True)
    return verify(plan, demand, times_of(plan, demand, world), np.random.default_rng(seed), requests, runs)


def _write_report(
    path: Path | None,
    plan: "ServicePlan",
    demand: "Demand",
    supplies: "Sequence[Supply]",
    verdicts: "Sequence[Verdict] | None",
    rows: list[dict[str, object]],
) -> None:
    if path is None:
        return
    from gpuloom.cli.decide.provision_print import seen_ms
    from gpuloom.provision.report import page
    from gpuloom.provision.supply import MigGpus, times_of

    seen = {verdict.service: (seen_ms(verdict), verdict.held) for verdict in verdicts or ()}
    devices = {supply.name: supply.gpu for supply in supplies if isinstance(supply, MigGpus)}
    text = page(plan, demand, times_of(plan, demand, supplies), rows, seen, devices)
    path.write_text(text, encoding="utf-8", newline="\n")
    typer.echo(f"report: {path}", err=True)


def _code(plan: "ServicePlan", demand: "Demand", verdicts: "Sequence[Verdict] | None") -> int:
    """1 where a promise is broken or not made; whom our own plan predicts to be late is said."""
    slo_ms = demand.slo_ms
    late = plan.late(slo_ms)
    for replica in late if plan.strategy == "gpuloom" else ():
        p99 = f"p99 {replica.predicted_p99_ms:.2f} of {slo_ms[replica.service]:g} ms with these arrivals"
        typer.echo(f"late: {replica.service}: {p99}", err=True)
    return int(bool(plan.unplaced or late) or any(not verdict.held for verdict in verdicts or ()))
