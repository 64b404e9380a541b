"""A plan as one page that needs nothing but a browser: GPUs as bars, each service's latency budget, the cost.

Pure: from data to text. The same plan gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from html import escape
from zlib import crc32

from gpuloom.perf.interference import Placed, predict
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.provision.problem import Problem

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
.bar { display:flex; flex:1; height:34px; background:var(--lane); border-radius:6px; overflow:hidden }
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
    problem: Problem,
    comparison: Sequence[Mapping[str, object]] = (),
    verified: Mapping[str, tuple[float, float, bool]] | None = None,
) -> str:
    """`verified`: p99 in the simulation, half of its interval, and whether it holds, by service."""
    title = f"{len(problem.services)} services on {plan.gpus} {plan.gpu_type}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f'<p class="facts">strategy {escape(plan.strategy)} · {problem.pattern} arrivals</p>',
        _cards(plan, problem),
        _gpus(plan),
        _budgets(plan, problem, verified or {}),
        _rows("Strategies side by side", comparison),
        _rows("Not placed", [{"service": one.service, "why": one.why} for one in plan.unplaced]),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _cards(plan: ServicePlan, problem: Problem) -> str:
    used = sum(replica.grant.share_pct for replica in plan.replicas)
    figures = {
        "GPUs": f"{plan.gpus:,}",
        "cost per hour": f"${plan.cost_per_hour:,.2f}",
        "no plan needs fewer than": "–" if plan.lower_bound_gpus is None else f"{plan.lower_bound_gpus:,}",
        "SMs given away": f"{used / max(plan.gpus, 1):.0f} %",
        "services placed": f"{len({one.service for one in plan.replicas}):,} of {len(problem.services):,}",
    }
    return f'<div class="cards">{"".join(f"<div>{name}<b>{value}</b></div>" for name, value in figures.items())}</div>'


def _gpus(plan: ServicePlan) -> str:
    rows = []
    for gpu in range(min(plan.gpus, MOST_GPUS)):
        bars = "".join(_bar(one) for one in plan.replicas if one.grant.gpu == gpu)
        rows.append(f'<div class="gpu"><span>GPU {gpu}</span><div class="bar">{bars}</div></div>')
    if plan.gpus > MOST_GPUS:
        rows.append(f'<p class="soft">The first {MOST_GPUS} of {plan.gpus:,} GPUs.</p>')
    return f"<h2>Who has which share <small>of the SMs</small></h2>{''.join(rows)}"


def _bar(replica: Replica) -> str:
    share, colour = replica.grant.share_pct, crc32(replica.service.encode()) % COLOURS
    about = f"{replica.service}: {share:g} %, max batch {replica.grant.batch}, {replica.rate_rps:g} requests per second"
    text = f"{replica.service} {share:g}%"
    return f'<i style="width:{share:g}%;background:var(--c{colour})" title="{escape(about)}">{escape(text)}</i>'


def _budgets(plan: ServicePlan, problem: Problem, verified: Mapping[str, tuple[float, float, bool]]) -> str:
    slo_ms, batch_ms = problem.slo_ms, _batch_ms(plan, problem)
    rows = []
    for replica in plan.replicas[: 10 * MOST_GPUS]:
        slo, p99 = slo_ms[replica.service], replica.predicted_p99_ms
        batch = min(batch_ms[replica], p99)
        colour = "over" if p99 > slo else "wait"
        scale = 100.0 / max(p99, slo)
        budget = (
            f'<div class="budget" title="{p99:.1f} of {slo:g} ms">'
            f'<i class="batch" style="width:{batch * scale:.1f}%"></i>'
            f'<i class="{colour}" style="width:{(p99 - batch) * scale:.1f}%"></i></div>'
        )
        seen = verified.get(replica.service)
        told = "" if seen is None else f'<span class="{"" if seen[2] else "bad"}">{seen[0]:.1f} ± {seen[1]:.1f}</span>'
        cells = [
            escape(replica.service), f"{replica.grant.gpu}", f"{replica.grant.share_pct:g} %", f"{replica.grant.batch}",
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


def _batch_ms(plan: ServicePlan, problem: Problem) -> dict[Replica, float]:
    """How long a full batch takes beside its neighbours."""
    workload = {service.id: service.workload for service in problem.services}
    on: dict[int, list[Replica]] = {}
    for replica in plan.replicas:
        on.setdefault(replica.grant.gpu, []).append(replica)
    found: dict[Replica, float] = {}
    for residents in on.values():
        placed = [Placed(workload[one.service], one.grant.batch or 1, one.grant.share_pct) for one in residents]
        latencies = predict(problem.offer.model, placed)
        found |= {one: latency.total_ms for one, latency in zip(residents, latencies, strict=True)}
    return found


def _rows(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row.values())}</tr>" for row in rows)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"
