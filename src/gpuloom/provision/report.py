"""A plan as one page that needs nothing but a browser: GPUs as lanes, each service's latency budget, the cost.

Pure: from data to text. The same plan gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from math import isinf

from gpuloom.gpus.catalogue import known
from gpuloom.gpus.layouts import part_of
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.pages import page as pages
from gpuloom.pages.cards import Card, cards
from gpuloom.pages.chart import colour, frame, legend, piece, row, stack
from gpuloom.pages.html import Html, tag
from gpuloom.pages.table import Column, number_column, records, table
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Replica, ServicePlan, on_gpus

MOST_GPUS = 400
"""More lanes than that nobody reads."""
MOST_REPLICAS = 10 * MOST_GPUS
BUDGET = (
    Column("service"), Column("GPU"), number_column("share"), number_column("batch"), number_column("req/s"),
    Column("budget", style="grows"), number_column("p99", "ms"), number_column("SLO", "ms"),
    number_column("simulated p99", "ms"),
)  # fmt: skip
BUDGET_KEY = (
    ("batch", "a full batch"),
    ("waiting", "waiting"),
    ("over", "too long"),
    ("lane", "what is left of the bar is free"),
)


Models = Mapping[str, GpuModel | None]


def page(
    plan: ServicePlan,
    demand: Demand,
    times: Mapping[Replica, BatchTimes],
    comparison: Sequence[Mapping[str, object]] = (),
    verified: Mapping[str, tuple[str, bool]] | None = None,
    devices: Mapping[str, GpuModel] | None = None,
) -> str:
    """`times` of batches beside neighbours; `verified`: p99 in the simulation and whether it holds, by service.

    `devices`: types that may not be in the catalogue.
    """
    models = {name: (devices or {}).get(name) or known(name) for name in plan.counts}
    gpus = " + ".join(f"{count} {name}" for name, count in plan.counts.items())
    sections = [
        cards(_figures(plan, demand, models)),
        pages.section("gpus", "Who has which share", *_gpus(plan, demand, models), note="of the SMs"),
        pages.section("budgets", "Latency budgets", *_budgets(plan, demand, times, verified or {})),
    ]
    if comparison:
        title = "Strategies side by side"
        sections.append(pages.section("strategies", title, records(title, comparison)))
    if plan.unplaced:
        reasons = [(missing.service, missing.why) for missing in plan.unplaced]
        heads = (Column("service"), Column("why", style="prose"))
        sections.append(pages.section("unplaced", "Not placed", table("Not placed", heads, reasons)))
    facts = (f"strategy {plan.strategy}", f"{demand.pattern} arrivals")
    return pages.page(f"{len(demand.services)} services on {gpus}", "provisioning", facts, *sections)


def _figures(plan: ServicePlan, demand: Demand, models: Models) -> list[Card]:
    used_pct = sum(
        replica.grant.share_pct * _part(models[plan.type_of(replica.grant.gpu)], replica.grant.instance)
        for replica in plan.replicas
    )
    bound = Card("no plan needs fewer than", "–" if plan.lower_bound_gpus is None else f"{plan.lower_bound_gpus:,}")
    if plan.lower_bound_cost is not None:
        bound = Card("no plan costs less than", f"${plan.lower_bound_cost:,.2f}")
    placed = len({replica.service for replica in plan.replicas})
    return [
        Card("GPUs", f"{plan.gpus:,}"),
        Card("cost per hour", f"${plan.cost_per_hour:,.2f}" if plan.cost_per_hour or not plan.gpus else "not known"),
        bound,
        Card("SMs given away", f"{used_pct / max(plan.gpus, 1):.0f} %"),
        Card("services placed", f"{placed:,} of {len(demand.services):,}"),
    ]


def _part(model: GpuModel | None, instance: Instance | None) -> float:
    """None, and cut: nobody knows."""
    return 1.0 if model is None else part_of(model, instance)


def _gpus(plan: ServicePlan, demand: Demand, models: Models) -> list[Html]:
    """A lane for each GPU. Services have their colours in the order of the demand: neighbours there differ."""
    styles = {service.id: colour(place) for place, service in enumerate(demand.services)}
    residents = on_gpus(plan.replicas)
    lanes = []
    for gpu in range(min(plan.gpus, MOST_GPUS)):
        model = plan.type_of(gpu)
        name = f"GPU {gpu} {model}" if plan.types else f"GPU {gpu}"
        here = residents.get(gpu, ())
        held = ", ".join(f"{replica.service} {replica.grant.share_pct:g} %" for replica in here)
        lane = row(f"{name}: {held or 'nobody'}", _lane(here, models[model], styles))
        lanes.append(tag("div", tag("span", name), lane))
    shown = [tag("div", *lanes, class_="gpus typed" if plan.types else "gpus")]
    if plan.gpus > MOST_GPUS:
        shown.append(pages.remark(f"The first {MOST_GPUS} of {plan.gpus:,} GPUs."))
    return shown


def _lane(residents: Sequence[Replica], model: GpuModel | None, styles: Mapping[str, str]) -> list[Html]:
    """Shares side by side; on a GPU that is cut, in the instances, which lie where they are in its memory."""
    devices: dict[Instance | None, list[Replica]] = {}
    for replica in residents:
        devices.setdefault(replica.grant.instance, []).append(replica)
    drawn = []
    for instance, sharers in devices.items():
        pieces = _pieces(sharers, styles)
        if instance is None or model is None:
            drawn += pieces
        else:
            left_pct, width_pct = (
                100.0 * units / model.units for units in (instance.start, model.by_name[instance.profile].size)
            )
            drawn.append(frame(str(instance), left_pct, width_pct, pieces))
    return drawn


def _pieces(sharers: Sequence[Replica], styles: Mapping[str, str]) -> list[Html]:
    pieces, left_pct = [], 0.0
    for replica in sharers:
        share_pct, batch = replica.grant.share_pct, replica.grant.batch
        about = f"{replica.service}: {share_pct:g} %, max batch {batch}, {replica.rate_rps:g} requests per second"
        words = replica.service if replica.grant.instance is not None else f"{replica.service} {share_pct:g}%"
        pieces.append(piece(styles[replica.service], words, left_pct, share_pct, about))
        left_pct += share_pct
    return pieces


def _budgets(
    plan: ServicePlan,
    demand: Demand,
    times: Mapping[Replica, BatchTimes],
    verified: Mapping[str, tuple[str, bool]],
) -> list[Html]:
    slo_ms = demand.slo_ms
    rows = [
        _budget(replica, slo_ms[replica.service], times[replica], verified.get(replica.service))
        for replica in plan.replicas[:MOST_REPLICAS]
    ]
    shown = [legend("Parts of a budget", BUDGET_KEY), table("Latency budgets", BUDGET, rows)]
    if len(plan.replicas) > MOST_REPLICAS:
        shown.append(pages.remark(f"The first {MOST_REPLICAS:,} of {len(plan.replicas):,} replicas."))
    return shown


def _budget(replica: Replica, slo_ms: float, times: BatchTimes, verdict: tuple[str, bool] | None) -> list[str]:
    grant, p99_ms = replica.grant, replica.predicted_p99_ms
    batch_ms = min(float(times.latency_ms[(grant.batch or 1) - 1]), p99_ms)
    simulated, held = verdict or ("", True)
    return [
        replica.service,
        f"{grant.gpu}" if grant.instance is None else f"{grant.gpu} {grant.instance}",
        f"{grant.share_pct:.3g} %",
        f"{grant.batch}",
        f"{replica.rate_rps:g}",
        stack(f"{p99_ms:.1f} of {slo_ms:g} ms", _parts(batch_ms, p99_ms, slo_ms)),
        f"{p99_ms:.1f}",
        f"{slo_ms:g}",
        simulated if held else tag("span", simulated, class_="bad"),
    ]


def _parts(batch_ms: float, p99_ms: float, slo_ms: float) -> tuple[tuple[str, float], ...]:
    """Percent of the bar, which is as long as the promise or, if that is broken, as the p99."""
    if isinf(p99_ms):  # the replica cannot keep up: it waits for ever
        return (("over", 100.0),)
    scale = 100.0 / max(p99_ms, slo_ms)
    return ("batch", batch_ms * scale), ("over" if p99_ms > slo_ms else "waiting", (p99_ms - batch_ms) * scale)
