"""`gpuloom provision --mig FILE`: services on MIG instances, with several processes inside, from measured points."""

from pathlib import Path

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

USD_PER_HOUR = {"A100-40GB": 4.10, "A100-80GB": 5.12}
"""On demand, one of the eight GPUs of AWS's p4d.24xlarge and p4de.24xlarge; for other types the cost is not known."""


def provision_mig(services: Path, gpu_type: str, arrivals: str, profiles: Path, output: Output) -> int:
    """Plan and print; the exit code."""
    from gpuloom.gpus.catalogue import find
    from gpuloom.provision.mig import plan_mig
    from gpuloom.provision.mig_options import batch_times, by_latency, by_queue, fitting
    from gpuloom.provision.plan import as_json
    from gpuloom.work.files import read_work
    from gpuloom.work.mig_services import read_mig_services

    rules = {"poisson": by_queue, "regular": by_latency}
    if arrivals not in rules:
        raise InputError(f"--arrivals {arrivals} with --mig: expected poisson or regular")
    model = find(gpu_type)
    if not model.mig:
        raise InputError(f"--gpu-type {gpu_type} with --mig: that GPU has no MIG")
    points = read_mig_services(profiles)
    _, wanted = read_work(services)
    if not wanted:
        raise InputError(f"{services} has no services: expected one or more under 'services:'")
    for service in wanted:
        if service.workload not in points:
            known = ", ".join(sorted(points))
            raise InputError(
                f"service {service.id}: {profiles} has no model {service.workload!r}: expected one of {known}"
            )
    options = {one.id: rules[arrivals](fitting(points[one.workload], one, model), one.slo_p99_ms) for one in wanted}
    plan = plan_mig(wanted, options, model, USD_PER_HOUR.get(model.name, 0.0))
    slo_ms = {one.id: one.slo_p99_ms for one in wanted}
    if output is Output.json:
        printed = as_json(plan, slo_ms, {one.id: one.workload for one in wanted})
        for row, replica in zip(printed["services"], plan.replicas, strict=True):
            assert replica.grant.instance is not None
            slices = model.by_name[replica.grant.instance.profile].slices
            times = batch_times(points[row["workload"]], slices, round(100 / replica.grant.share_pct))
            row["batch_ms"] = [round(float(ms), 4) for ms in times.busy_ms[: row["batch"]]]
        print_json(printed)
    else:
        rows: list[dict[str, object]] = [
            {
                "service": one.service,
                "replica": one.number,
                "gpu": one.grant.gpu,
                "instance": str(one.grant.instance),
                "share_pct": round(one.grant.share_pct, 1),
                "batch": one.grant.batch,
                "rate_rps": round(one.rate_rps, 3),
                "predicted_p99_ms": round(one.predicted_p99_ms, 2),
                "slo_ms": slo_ms[one.service],
            }
            for one in plan.replicas
        ]
        cost = f", ${plan.cost_per_hour:,.2f} per hour" if plan.cost_per_hour else ""
        emit(rows, output, f"{plan.gpus} x {plan.gpu_type}{cost}, none needs fewer than {plan.lower_bound_gpus}")
    for gone in plan.unplaced:
        typer.echo(f"not placed: {gone.service}: {gone.why}", err=True)
    return int(bool(plan.unplaced))
