"""`gpuloom provision`: how many GPUs services with promises need, and who gets which share of which."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli import inputs
from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.provision.plan import ServicePlan
    from gpuloom.provision.problem import Offer, Problem
    from gpuloom.provision.replan import Replanned
    from gpuloom.sim.service_world import Verdict
    from gpuloom.work.service_pairs import MeasuredServices

TRACE = "trace:"


def provision(
    services: Annotated[Path, typer.Argument(help="Work file (YAML) with `services:`.", show_default=False)],
    gpu_type: Annotated[
        str, typer.Option("--gpu-type", help="A type of GPU, or several with commas: the cheapest plan wins.")
    ] = "V100",
    arrivals: Annotated[str, typer.Option("--arrivals", help="poisson, regular, or trace:FILE (CSV).")] = "poisson",
    strategy: Annotated[str, typer.Option("--strategy", help="gpuloom, igniter, gpulets, gslice or ffd.")] = "gpuloom",
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
        Path | None, typer.Option("--profile", help="Profiles of your models (JSON lines), in place of those shipped.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin", help="Error bars kept free: 1 is the upper end of the 90 % interval.", min=0.0, max=3.0
        ),
    ] = None,
    mig: Annotated[
        Path | None,
        typer.Option(
            "--mig", help="Plan on MIG instances of --gpu-type, from points measured on them (CSV, docs/provision.md)."
        ),
    ] = None,
    replan: Annotated[
        Path | None, typer.Option("--replan", help="An earlier plan (JSON): stay near it, and tell who moves.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page.")] = None,
    requests: Annotated[
        int, typer.Option("--requests", min=1000, help="Simulated, of each service in each run.")
    ] = 20_000,
    runs: Annotated[int, typer.Option("--runs", min=2, max=10, help="Independent simulations.")] = 8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the simulated arrivals.")] = 1,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the plan.")] = Output.table,
) -> None:
    """Find the fewest GPUs on which every service keeps its p99, and each one's share, batch and replicas.

    Exit code 1: a service could not be placed, or missed its promise in the check.

    \b
    gpuloom provision services.yaml
    gpuloom provision services.yaml --arrivals regular --compare
    gpuloom provision services.yaml --verify --measured solo_and_pairs_v100.jsonl --report plan.html
    gpuloom provision services.yaml --output json > plan.json
    gpuloom provision services.yaml --replan plan.json
    gpuloom provision services.yaml --gpu-type A100-80GB --mig a100_mig_mps_profile.csv
    """
    from gpuloom.provision.registry import STRATEGIES
    from gpuloom.provision.registry import strategy as find_strategy

    inputs.check_writable(report, read=services)
    if mig is not None:
        if compare or verify or replan is not None or report is not None or strategy != "gpuloom":
            raise InputError("--mig: is not for --compare, --verify, --replan, --report or another --strategy yet")
        from gpuloom.cli.provision_mig import provision_mig

        raise typer.Exit(provision_mig(services, gpu_type, arrivals, mig, output))
    if compare and replan is not None:
        raise InputError("--compare and --replan: expected one of them, not both")
    find_strategy(strategy)
    data = _measured(measured, solo_tables)
    problems = [
        _problem(services, _offer(name.strip(), data if solo_tables else None, profile), arrivals, margin)
        for name in gpu_type.split(",")
    ]
    if compare:
        planned = [_cheapest(problems, name) for name in STRATEGIES]
        checked = [_check(*one, data, requests, runs, seed) if verify else None for one in planned]
        rows = [_summary(*one, verdicts) for one, verdicts in zip(planned, checked, strict=True)]
        emit(rows, output, f"{len(problems[0].services)} services, {arrivals} arrivals")
        if report is not None:
            _write_report(report, *planned[0], checked[0], rows)
        raise typer.Exit(_code(*planned[0], checked[0]))
    again = _replanned(problems[0], replan, strategy) if replan is not None else None
    plan, problem = (again.plan, problems[0]) if again is not None else _cheapest(problems, strategy)
    verdicts = _check(plan, problem, data, requests, runs, seed) if verify else None
    _print(plan, problem, verdicts, again, output)
    if report is not None:
        _write_report(report, plan, problem, verdicts, [])
    raise typer.Exit(_code(plan, problem, verdicts))


def _measured(path: Path | None, tables: bool) -> "MeasuredServices | None":
    from gpuloom.work.service_pairs import read_solo_and_pairs

    if path is None:
        if tables:
            raise InputError("--solo-tables needs --measured FILE, from which it takes the tables")
        return None
    found = read_solo_and_pairs(path)
    if not found.solo_ms:
        raise InputError(f"{path} has pairs only: expected solo tables of the models too")
    return found


def _offer(gpu: str, measured: "MeasuredServices | None", profile: Path | None) -> "Offer":
    from gpuloom.provision.problem import shipped_offer
    from gpuloom.sim.service_world import measured_tables

    offer = shipped_offer(gpu, measured_tables(measured) if measured is not None else None)
    if profile is None:
        return offer
    from gpuloom.perf.igniter_fit import fit_hardware, fit_igniter
    from gpuloom.perf.sharing_fit import fit_services
    from gpuloom.perf.sharing_model import SharingModel
    from gpuloom.work.service_profiles import read_service_profiles

    profiles = read_service_profiles(profile)
    hardware = fit_hardware(profiles.gpu)
    shipped = offer.model
    assert isinstance(shipped, SharingModel)
    fitted = fit_services(profiles, hardware, shipped.constants.sharpness)
    tables = {name: table for name, table in shipped.tables.items() if name in fitted}
    return replace(
        offer, model=SharingModel(hardware, fitted, shipped.constants, tables), igniter=fit_igniter(profiles)
    )


def _problem(path: Path, offer: "Offer", arrivals: str, margin: float | None) -> "Problem":
    from gpuloom.provision.problem import Pattern, Problem
    from gpuloom.work.arrival_traces import read_arrivals
    from gpuloom.work.files import read_work

    _, services = read_work(path)
    kept = 1.0 if margin is None else margin
    if arrivals.startswith(TRACE):
        gaps = read_arrivals(Path(arrivals.removeprefix(TRACE)))
        missing = [service.id for service in services if service.id not in gaps] if "" not in gaps else []
        if missing:
            raise InputError(f"{arrivals}: has no arrivals of {missing[0]}: expected some, or a service called *")
        return Problem(tuple(services), offer, Pattern.TRACE, gaps, kept)
    if arrivals not in (Pattern.POISSON, Pattern.REGULAR):
        raise InputError(f"--arrivals {arrivals}: expected poisson, regular or trace:FILE")
    return Problem(tuple(services), offer, Pattern(arrivals), margin=kept)


def _cheapest(problems: "list[Problem]", strategy: str) -> "tuple[ServicePlan, Problem]":
    from gpuloom.provision.registry import strategy as find_strategy

    plans = [(find_strategy(strategy)(problem), problem) for problem in problems]
    return min(plans, key=lambda one: (len(one[0].unplaced), one[0].cost_per_hour))


def _replanned(problem: "Problem", path: Path, strategy: str) -> "Replanned":
    from gpuloom.provision.plan import from_json
    from gpuloom.provision.replan import replan
    from gpuloom.work.source import read_json

    if strategy != "gpuloom":
        raise InputError(f"--replan with --strategy {strategy}: expected gpuloom, the only one that stays near a plan")
    return replan(problem, from_json(read_json(path, "a plan (JSON)"), str(path)))


def _check(
    plan: "ServicePlan", problem: "Problem", data: "MeasuredServices | None", requests: int, runs: int, seed: int
) -> "list[Verdict]":
    import numpy as np

    from gpuloom.sim.service_world import measured_model, verify
    from gpuloom.work.service_figures import load_service_figures

    if data is None:
        typer.echo("no --measured FILE: the check simulates the planner's own predictions", err=True)
        model = problem.offer.model
    else:
        model = measured_model(data, load_service_figures(problem.offer.name))
        unknown = {service.workload for service in problem.services} - set(data.solo_ms)
        if unknown:
            raise InputError(f"--measured has no solo table of {min(unknown)}: expected one of every model")
    return verify(plan, problem, model, np.random.default_rng(seed), requests, runs)


def _summary(plan: "ServicePlan", problem: "Problem", verdicts: "list[Verdict] | None") -> dict[str, object]:
    slo_ms = problem.slo_ms
    late = {one.service for one in plan.replicas if one.predicted_p99_ms > slo_ms[one.service]}
    row: dict[str, object] = {
        "strategy": plan.strategy,
        "gpu_type": plan.gpu_type,
        "gpus": plan.gpus,
        "cost_per_hour": plan.cost_per_hour,
        "lower_bound_gpus": plan.lower_bound_gpus,
        "predicted_late": len(late),
        "gpus_over_memory": _over_memory(plan, problem),
        "unplaced": len(plan.unplaced),
    }
    if verdicts is not None:
        row |= {"simulated_within": sum(one.held for one in verdicts), "of": len(problem.services)}
    return row


def _over_memory(plan: "ServicePlan", problem: "Problem") -> int:
    """GPUs on which the services state more memory than there is: the peers do not look at it."""
    stated_mib = dict.fromkeys(range(plan.gpus), 0)
    for replica in plan.replicas:
        stated_mib[replica.grant.gpu] += replica.grant.mem_mib or 0
    return sum(mib > problem.offer.mem_mib for mib in stated_mib.values())


def _print(
    plan: "ServicePlan", problem: "Problem", verdicts: "list[Verdict] | None", again: "Replanned | None", output: Output
) -> None:
    from gpuloom.provision.plan import as_json

    printed = as_json(plan, problem.slo_ms, {one.id: one.workload for one in problem.services})
    checks = {one.service: one for one in verdicts or ()}
    if output is Output.json:
        if verdicts is not None:
            printed["verification"] = [_verdict(one) for one in verdicts]
        if again is not None:
            names = ("service", "number", "from_gpu", "to_gpu")
            printed["moves"] = [{name: getattr(move, name) for name in names} for move in again.moves]
            printed["renumbered"] = [{"from_gpu": old, "to_gpu": new} for old, new in again.renumbered]
        print_json(printed)
        return
    rows: list[dict[str, object]] = []
    for replica in plan.replicas:
        row: dict[str, object] = {
            "service": replica.service,
            "replica": replica.number,
            "gpu": replica.grant.gpu,
            "share_pct": replica.grant.share_pct,
            "batch": replica.grant.batch,
            "rate_rps": round(replica.rate_rps, 3),
            "predicted_p99_ms": round(replica.predicted_p99_ms, 2),
            "slo_ms": problem.slo_ms[replica.service],
        }
        if verdicts is not None:
            one = checks[replica.service]
            row |= {"simulated_p99_ms": f"{one.p99_ms:.2f} ± {one.p99_within_ms:.2f}", "within": one.held}
        rows.append(row)
    bound = "" if plan.lower_bound_gpus is None else f", none needs fewer than {plan.lower_bound_gpus}"
    title = f"{plan.strategy}: {plan.gpus} x {plan.gpu_type}, ${plan.cost_per_hour:,.2f} per hour{bound}"
    emit(rows, output, title)
    for gone in plan.unplaced:
        typer.echo(f"not placed: {gone.service}: {gone.why}", err=True)
    if again is not None:
        for move in again.moves:
            where = f"{_gpu(move.from_gpu, 'new')} -> {_gpu(move.to_gpu, 'gone')}"
            typer.echo(f"moves: {move.service} replica {move.number}: {where}", err=True)
        typer.echo(f"{len(again.moves)} moved, {len(plan.replicas)} in all", err=True)


def _gpu(number: int | None, none: str) -> str:
    return none if number is None else f"GPU {number}"


def _verdict(one: "Verdict") -> dict[str, object]:
    return {
        "name": one.service,
        "p99_ms": one.p99_ms,
        "p99_within_ms": one.p99_within_ms,
        "violations": one.violations,
        "violations_within": one.violations_within,
        "longest_ms": one.longest_ms,
        "requests": one.requests,
        "slo_ms": one.slo_ms,
        "held": one.held,
    }


def _write_report(
    path: Path, plan: "ServicePlan", problem: "Problem", verdicts: "list[Verdict] | None", rows: list[dict[str, object]]
) -> None:
    from gpuloom.provision.report import page

    seen = {one.service: (one.p99_ms, one.p99_within_ms, one.held) for one in verdicts or ()}
    path.write_text(page(plan, problem, rows, seen), encoding="utf-8", newline="\n")
    typer.echo(f"report: {path}", err=True)


def _code(plan: "ServicePlan", problem: "Problem", verdicts: "list[Verdict] | None") -> int:
    late = [one for one in plan.replicas if one.predicted_p99_ms > problem.slo_ms[one.service]]
    for one in late if plan.strategy == "gpuloom" else ():
        slo_ms = problem.slo_ms[one.service]
        typer.echo(
            f"late: {one.service}: p99 {one.predicted_p99_ms:.2f} of {slo_ms:g} ms with these arrivals", err=True
        )
    return int(bool(plan.unplaced or late) or any(not one.held for one in verdicts or ()))
