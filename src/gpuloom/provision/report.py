"""A plan as one page that needs nothing but a browser: GPUs as bars, each service's latency budget, the cost.

Pure: from data to text. The same plan gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from html import escape
from zlib import crc32

from gpuloom.gpus.catalogue import find
from gpuloom.gpus.layouts import total_slices
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Replica, ServicePlan, on_gpus

MOST_GPUS = 400
"""More bars than that nobody reads."""
COLOURS = 12
STYLE = """
:root { --paper:#fbfaf8; --surface:#fff; --lane:#f3f1ed; --ink:#1d1c1a; --soft:#5f5b55; --line:#e4e0d9; --bad:#9a4a12;
 --c0:#3b5fa8; --c1:#7fb8dd; --c2:#3f9c8c; --c3:#2c6e3f; --c4:#9a9a3c; --c5:#c9a74a; --c6:#cf6f7c; --c7:#8c2f5c;
 --c8:#b06bb3; --c9:#e08a4b; --c10:#6a5fb5; --c11:#8a847b; }
@media (prefers-color-scheme: dark) { :root { --paper:#151618; --surface:#1c1e21; --lane:#26292d; --ink:#ecebe8;
 --soft:#a3a099; --line:#33363b; --bad:#e8a36b; } }
* { box-sizing:border-box } body { margin:0 auto; max-width:1100px; padding:36px 28px 56px; background:var(--paper);
 color:var(--ink); font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;
 font-variant-numeric:tabular-nums }
h1 { margin:0; font-size:28px } h2 { margin:36px 0 12px; font-size:17px } .facts,.soft,small { color:var(--soft) }
.cards { display:flex; flex-wrap:wrap; gap:12px; margin:20px 0 } .cards div { background:var(--surface);
 border:1px solid var(--line); border-radius:10px; padding:12px 18px } .cards b { display:block; font-size:24px }
.gpu { display:flex; align-items:center; gap:12px; margin:6px 0 } .gpu > span { width:64px; color:var(--soft) }
.typed > span { width:190px }
.bar { display:flex; flex:1; height:34px; background:var(--lane); border-radius:6px; overflow:hidden;
 position:relative }
.cut { position:absolute; top:0; height:100%; padding:13px 2px 0; border-right:3px solid var(--paper) }
.cut > small { position:absolute; top:0; left:4px; font-size:10px; line-height:13px; white-space:nowrap }
.cut > div { display:flex; height:100% }
.bar i { display:flex; align-items:center; justify-content:center; overflow:hidden; white-space:nowrap;
 font-style:normal; font-size:12px; color:#fff; border-right:2px solid var(--paper) }
.budget { flex:1; height:14px; background:var(--lane); border-radius:4px; display:flex; overflow:hidden;
 min-width:220px }
.budget i { height:100% } .batch { background:var(--c0) } .wait { background:var(--c1) } .over { background:var(--bad) }
table { border-collapse:collapse; width:100% } th,td { text-align:left; padding:5px 12px 5px 0; border-bottom:1px solid
 var(--line) } th { color:var(--soft); font-weight:500 } .bad { color:var(--bad); font-weight:600 }
.key i { display:inline-block; width:10px; height:10px; border-radius:3px; margin:0 6px 0 14px }
"""


def page(
    plan: ServicePlan,
    demand: Demand,
    times: Mapping[Replica, BatchTimes],
    comparison: Sequence[Mapping[str, object]] = (),
    verified: Mapping[str, tuple[str, bool]] | None = None,
) -> str:
    """`times` of batches beside neighbours; `verified`: p99 in the simulation and whether it holds, by service."""
    gpus = " + ".join(f"{count} {name}" for name, count in plan.counts.items())
    title = f"{len(demand.services)} services on {gpus}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f'<p class="facts">strategy {escape(plan.strategy)} · {demand.pattern} arrivals</p>',
        _cards(plan, demand),
        _gpus(plan),
        _budgets(plan, demand, times, verified or {}),
        _rows("Strategies side by side", comparison),
        _rows("Not placed", [{"service": one.service, "why": one.why} for one in plan.unplaced]),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _cards(plan: ServicePlan, demand: Demand) -> str:
    models = {name: find(name) for name in plan.counts}
    used = sum(
        one.grant.share_pct * _part(models[plan.type_of(one.grant.gpu)], one.grant.instance) for one in plan.replicas
    )
    bound = ("no plan needs fewer than", "–" if plan.lower_bound_gpus is None else f"{plan.lower_bound_gpus:,}")
    if plan.lower_bound_cost is not None:
        bound = ("no plan costs less than", f"${plan.lower_bound_cost:,.2f}")
    figures = {
        "GPUs": f"{plan.gpus:,}",
        "cost per hour": f"${plan.cost_per_hour:,.2f}" if plan.cost_per_hour or not plan.gpus else "not known",
        bound[0]: bound[1],
        "SMs given away": f"{used / max(plan.gpus, 1):.0f} %",
        "services placed": f"{len({one.service for one in plan.replicas}):,} of {len(demand.services):,}",
    }
    return f'<div class="cards">{"".join(f"<div>{name}<b>{value}</b></div>" for name, value in figures.items())}</div>'


def _part(model: GpuModel, instance: Instance | None) -> float:
    """Of the GPU's compute."""
    return 1.0 if instance is None else model.by_name[instance.profile].slices / total_slices(model)


def _gpus(plan: ServicePlan) -> str:
    rows, on = [], on_gpus(plan.replicas)
    for gpu in range(min(plan.gpus, MOST_GPUS)):
        name = plan.type_of(gpu)
        about, kind = (f"GPU {gpu} {escape(name)}", "gpu typed") if plan.types else (f"GPU {gpu}", "gpu")
        rows.append(f'<div class="{kind}"><span>{about}</span><div class="bar">{_bars(on[gpu], name)}</div></div>')
    if plan.gpus > MOST_GPUS:
        rows.append(f'<p class="soft">The first {MOST_GPUS} of {plan.gpus:,} GPUs.</p>')
    return f"<h2>Who has which share <small>of the SMs</small></h2>{''.join(rows)}"


def _bars(residents: Sequence[Replica], gpu_type: str) -> str:
    """Shares side by side; on a GPU that is cut, in the instances, which lie where they are in its memory."""
    devices: dict[Instance | None, list[Replica]] = {}
    for one in residents:
        devices.setdefault(one.grant.instance, []).append(one)
    parts = []
    for instance, mine in devices.items():
        bars = "".join(_bar(one) for one in mine)
        if instance is not None:
            model = find(gpu_type)
            left, width = (
                100.0 * part / model.units for part in (instance.start, model.by_name[instance.profile].size)
            )
            bars = (
                f'<div class="cut" style="left:{left:g}%;width:{width:g}%"><small>{escape(str(instance))}</small>'
                f"<div>{bars}</div></div>"
            )
        parts.append(bars)
    return "".join(parts)


def _bar(replica: Replica) -> str:
    share, colour = replica.grant.share_pct, crc32(replica.service.encode()) % COLOURS
    about = f"{replica.service}: {share:g} %, max batch {replica.grant.batch}, {replica.rate_rps:g} requests per second"
    text = replica.service if replica.grant.instance is not None else f"{replica.service} {share:g}%"
    return f'<i style="width:{share:g}%;background:var(--c{colour})" title="{escape(about)}">{escape(text)}</i>'


def _budgets(
    plan: ServicePlan,
    demand: Demand,
    times: Mapping[Replica, BatchTimes],
    verified: Mapping[str, tuple[str, bool]],
) -> str:
    slo_ms = demand.slo_ms
    rows = []
    for replica in plan.replicas[: 10 * MOST_GPUS]:
        slo, p99 = slo_ms[replica.service], replica.predicted_p99_ms
        batch = min(float(times[replica].latency_ms[(replica.grant.batch or 1) - 1]), p99)
        colour = "over" if p99 > slo else "wait"
        scale = 100.0 / max(p99, slo)
        budget = (
            f'<div class="budget" title="{p99:.1f} of {slo:g} ms">'
            f'<i class="batch" style="width:{batch * scale:.1f}%"></i>'
            f'<i class="{colour}" style="width:{(p99 - batch) * scale:.1f}%"></i></div>'
        )
        seen = verified.get(replica.service)
        told = "" if seen is None else f'<span class="{"" if seen[1] else "bad"}">{seen[0]}</span>'
        place = (
            f"{replica.grant.gpu}"
            if replica.grant.instance is None
            else f"{replica.grant.gpu} {replica.grant.instance}"
        )
        cells = [
            escape(replica.service), escape(place), f"{replica.grant.share_pct:.3g} %", f"{replica.grant.batch}",
            f"{replica.rate_rps:g}", budget, f"{p99:.1f}", f"{slo:g}", told,
        ]  # fmt: skip
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    names = ("service", "GPU", "share", "batch", "req/s", "budget", "p99 ms", "SLO ms", "simulated p99 ms")
    head = "".join(f"<th>{name}</th>" for name in names)
    key = (
        '<p class="key soft"><i class="batch"></i>a full batch<i class="wait"></i>waiting<i class="over"></i>too long;'
        " what is left of the bar is free</p>"
    )
    return f"<h2>Latency budgets</h2>{key}<table><tr>{head}</tr>{''.join(rows)}</table>"


def _rows(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row.values())}</tr>" for row in rows)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"
