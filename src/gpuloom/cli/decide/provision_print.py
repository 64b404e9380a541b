"""What `gpuloom provision` prints: a plan, its check, who moves, and strategies side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from gpuloom.cli.output import Output, emit, print_json

if TYPE_CHECKING:
    from gpuloom.gpus.grant import Device
    from gpuloom.provision.check import Verdict
    from gpuloom.provision.demand import Demand
    from gpuloom.provision.plan import ServicePlan
    from gpuloom.provision.replan import Replanned
    from gpuloom.provision.supply import Supply


def print_plan(
    plan: "ServicePlan",
    demand: "Demand",
    supplies: "Sequence[Supply]",
    verdicts: "Sequence[Verdict] | None",
    again: "Replanned | None",
    output: Output,
) -> None:
    if output is Output.json:
        print_json(_as_json(plan, demand, supplies, verdicts, again))
    else:
        emit(_rows(plan, demand, verdicts), output, title_of(plan))
    for gone in plan.unplaced:
        typer.echo(f"not placed: {gone.service}: {gone.why}", err=True)
    if again is not None and output is not Output.json:
        for move in again.moves:
            where = f"{_place(move.was, 'new')} -> {_place(move.now, 'gone')}"
            typer.echo(f"moves: {move.service} replica {move.number}: {where}", err=True)
        typer.echo(f"{len(again.moves)} moved, {len(plan.replicas)} in all", err=True)


def title_of(plan: "ServicePlan") -> str:
    gpus = " + ".join(f"{count} x {name}" for name, count in plan.counts.items())
    cost = f", ${plan.cost_per_hour:,.2f} per hour" if plan.cost_per_hour or not plan.gpus else ""
    bound = "" if plan.lower_bound_gpus is None else f", none needs fewer than {plan.lower_bound_gpus}"
    if plan.lower_bound_cost is not None:
        bound = f", no plan on these types costs less than ${plan.lower_bound_cost:,.2f}"
    return f"{plan.strategy}: {gpus}{cost}{bound}"


def _as_json(
    plan: "ServicePlan",
    demand: "Demand",
    supplies: "Sequence[Supply]",
    verdicts: "Sequence[Verdict] | None",
    again: "Replanned | None",
) -> dict[str, object]:
    from gpuloom.provision.plan_file import as_json, needs_times
    from gpuloom.provision.supply import times_of

    times = times_of(plan, demand, supplies) if needs_times(plan) else {}
    printed = as_json(plan, demand.slo_ms, demand.workloads, times)
    if verdicts is not None:
        printed["verification"] = [_verdict(verdict) for verdict in verdicts]
    if again is not None:
        printed["moves"] = [
            {
                "service": move.service,
                "number": move.number,
                "from_gpu": None if move.was is None else move.was[0],
                "from_device": _device(move.was),
                "to_gpu": None if move.now is None else move.now[0],
                "to_device": _device(move.now),
            }
            for move in again.moves
        ]
        printed["renumbered"] = [{"from_gpu": old, "to_gpu": new} for old, new in again.renumbered]
    return printed


def _rows(plan: "ServicePlan", demand: "Demand", verdicts: "Sequence[Verdict] | None") -> list[dict[str, object]]:
    checks, slo_ms = {verdict.service: verdict for verdict in verdicts or ()}, demand.slo_ms
    cut = any(replica.grant.instance is not None for replica in plan.replicas)
    rows = []
    for replica in plan.replicas:
        row: dict[str, object] = {"service": replica.service, "replica": replica.number, "gpu": replica.grant.gpu}
        if plan.types:
            row["gpu_type"] = plan.type_of(replica.grant.gpu)
        if cut:
            row["instance"] = None if replica.grant.instance is None else str(replica.grant.instance)
        row |= {
            "share_pct": round(replica.grant.share_pct, 1),
            "batch": replica.grant.batch,
            "rate_rps": round(replica.rate_rps, 3),
            "predicted_p99_ms": round(replica.predicted_p99_ms, 2),
            "slo_ms": slo_ms[replica.service],
        }
        if verdicts is not None:
            verdict = checks[replica.service]
            row |= {"simulated_p99_ms": seen_ms(verdict), "within": verdict.held}
        rows.append(row)
    return rows


def seen_ms(verdict: "Verdict") -> str:
    """The p99 of the simulation; with its interval where there is one."""
    within = "" if verdict.p99_within_ms is None else f" ± {verdict.p99_within_ms:.2f}"
    return f"{verdict.p99_ms:.2f}{within}"


def _place(device: "Device | None", none: str) -> str:
    if device is None:
        return none
    return f"GPU {device[0]}" if device[1] is None else f"GPU {device[0]} {device[1]}"


def _device(device: "Device | None") -> str | None:
    if device is None:
        return None
    return "whole" if device[1] is None else str(device[1])


def _verdict(verdict: "Verdict") -> dict[str, object]:
    return {
        "name": verdict.service,
        "p99_ms": verdict.p99_ms,
        "p99_within_ms": verdict.p99_within_ms,
        "violations": verdict.violations,
        "violations_within": verdict.violations_within,
        "longest_ms": verdict.longest_ms,
        "requests": verdict.requests,
        "slo_ms": verdict.slo_ms,
        "held": verdict.held,
    }


def summary(
    plan: "ServicePlan", demand: "Demand", supplies: "Sequence[Supply]", verdicts: "Sequence[Verdict] | None"
) -> dict[str, object]:
    """A row of the comparison."""
    late = {replica.service for replica in plan.late(demand.slo_ms)}
    row: dict[str, object] = {
        "strategy": plan.strategy,
        "gpu_type": plan.gpu_type,
        "gpus": plan.gpus,
        "cost_per_hour": plan.cost_per_hour,
        "lower_bound_gpus": plan.lower_bound_gpus,
    }
    if len(supplies) > 1:
        row["lower_bound_cost"] = plan.lower_bound_cost
    row |= {"predicted_late": len(late), "gpus_over_memory": plan.gpus_over_memory, "unplaced": len(plan.unplaced)}
    if verdicts is not None:
        row |= {"simulated_within": sum(verdict.held for verdict in verdicts), "of": len(demand.services)}
    return row
