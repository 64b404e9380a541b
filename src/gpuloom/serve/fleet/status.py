"""What a fleet looks like now: as JSON for `gpuloom serve status`, as text for Prometheus."""

import json
from dataclasses import asdict
from typing import Any

from gpuloom.serve.fleet.fleet import Fleet
from gpuloom.serve.fleet.place import Place
from gpuloom.serve.latencies import percentile
from gpuloom.serve.seats import Kind
from gpuloom.serve.triton.server import Phase, Server


def status_of(fleet: Fleet, standin: bool) -> dict[str, Any]:
    return {
        "dilate": fleet.wish.dilate,
        "standin": standin,
        "gpu": fleet.devices.kind is Kind.GPU,
        "device": fleet.devices.kind.value,
        "noise": None if fleet.devices.noise is None else asdict(fleet.devices.noise),
        "standby": fleet.wish.standby,
        "uptime_s": round(fleet.observer.plan_s() * fleet.wish.dilate, 1),
        "restarts": fleet.keeper.restarts,
        "services": [_service(fleet, name) for name in fleet.observer.tallies],
        "events": list(fleet.journal.events)[-20:],
    }


def _service(fleet: Fleet, name: str) -> dict[str, Any]:
    tally, pool, now_s = fleet.observer.tallies[name], fleet.pools[name], fleet.observer.plan_s()
    recent = tally.window.latencies_ms(now_s)
    span_s = min(tally.window.span_s, max(now_s, 1e-9))
    return {
        "name": name,
        "slo_ms": fleet.wish.slo_ms[name],
        "p99_ms": percentile(recent, 99.0),
        "rate_rps": len(recent) / span_s,
        "requests": tally.requests,
        "above_slo": tally.above,
        "failed": tally.failed,
        "waiting": pool.waiting,
        "retried": pool.retried,
        "refused": pool.refused,
        "replicas": [_replica(fleet, place) for place in fleet.places.values() if place.replica.service == name],
    }


def _replica(fleet: Fleet, place: Place) -> dict[str, Any]:
    active = place.active
    counters = None if active is None else active.recent
    mean_queue_ms = None if counters is None else counters.mean_queue_ms
    return {
        "replica": place.replica.number,
        "level": place.health.level.value,
        "verdict": place.verdict.value,
        "grant": str(place.grant),
        "share_pct": place.grant.share_pct,
        "p99_ms": percentile(place.window.latencies_ms(fleet.observer.plan_s()), 99.0),
        "mean_batch": None if counters is None else counters.mean_batch,
        "queue_ms": None if mean_queue_ms is None else mean_queue_ms / fleet.wish.dilate,
        "serving": None if active is None else active.spec.name,
        "servers": [_server(server) for server in place.servers.values()],
    }


def _server(server: Server) -> dict[str, Any]:
    return {
        "name": server.spec.name,
        "phase": server.phase.value,
        "pid": server.pid,
        "port": None if server.backend is None else server.backend.peer.port,
        "grant": str(server.spec.grant),
    }


def status_page(fleet: Fleet, standin: bool) -> tuple[str, bytes]:
    return "application/json", json.dumps(status_of(fleet, standin)).encode()


def metrics_page(fleet: Fleet) -> tuple[str, bytes]:
    """Of the whole deployment; times are the plan's. Each server has Triton's own at its own port."""
    lines = []
    status = status_of(fleet, standin=False)
    for metric, kind, key in (
        ("requests_total", "counter", "requests"),
        ("requests_above_slo_total", "counter", "above_slo"),
        ("requests_failed_total", "counter", "failed"),
        ("requests_retried_total", "counter", "retried"),
        ("requests_refused_total", "counter", "refused"),
        ("requests_waiting", "gauge", "waiting"),
        ("latency_p99_ms", "gauge", "p99_ms"),
        ("latency_slo_ms", "gauge", "slo_ms"),
    ):
        lines.append(f"# TYPE gpuloom_serve_{metric} {kind}")
        lines += [
            f"gpuloom_serve_{metric}{{service={json.dumps(service['name'])}}} {service[key]}"
            for service in status["services"]
            if service[key] is not None
        ]
    lines.append("# TYPE gpuloom_serve_server_ready gauge")
    for place in fleet.places.values():
        for server in place.servers.values():
            label = f"service={json.dumps(server.spec.service)},server={json.dumps(server.spec.name)}"
            lines.append(f"gpuloom_serve_server_ready{{{label}}} {int(server.phase is Phase.READY)}")
    lines.append("# TYPE gpuloom_serve_server_restarts_total counter")
    lines.append(f"gpuloom_serve_server_restarts_total {fleet.keeper.restarts}")
    return "text/plain; version=0.0.4", ("\n".join(lines) + "\n").encode()
