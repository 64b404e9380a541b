"""Services of iGniter's experiment on real Triton servers, with stretched time: is the p99 kept, is nothing lost?

    python benchmarks/serve_triton.py --solo-and-pairs ../shared/data/igniter/solo_and_pairs_v100.jsonl
    python benchmarks/serve_triton.py --plan plan.json --services W2 W6 W9
    python benchmarks/serve_triton.py --plan plan.json --services W2 W6 W9 --grpc

Starts `gpuloom serve up` as a user would, sends Poisson arrivals to all services at once, and meanwhile
- makes one replica slower at run time (`slow`): its p99 breaks, its shadow's larger share must take over; later it is
  fast again, and the share must shrink back;
- kills the server of another service with SIGKILL (`killed`): another must take over, and a new one be started.

Of a --plan the GPUs of the services that are asked are deployed; the measured tables give the batch times. Without it,
a small plan is computed here for four of the services from the measured solo tables (with the neighbours' interference
by the shipped model) and the Poisson queueing model, with 15 % of the SLO to spare.

Nothing of this runs on a GPU: the servers are genuine Triton with dynamic batching, their models sleep the times of the
table, stretched by `dilate`. Latencies are the client's, from the moment each request was due, divided by `dilate`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import asyncio
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuloom.gpus.grant import Grant
from gpuloom.perf.queueing.batching import Batching, BatchTimes
from gpuloom.perf.queueing.latency import Poisson, latency_of
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.serve.deployment import Deployment, Promise, model_name, read_plan, slot_of
from gpuloom.serve.fleet.shadows import shadow_grants
from gpuloom.serve.gateway.http_client import Peer
from gpuloom.serve.gateway.http_message import get
from gpuloom.serve.gateway.kserve import INFER, infer_request
from gpuloom.serve.load.open_loop import STANDIN_BODY, Result, Target, drive
from gpuloom.serve.load.request import Body
from gpuloom.serve.load.schedule import schedule
from gpuloom.serve.prepare import SLOWDOWN
from gpuloom.serve.state import Record, State, read_events
from gpuloom.serve.times import BatchMs, batch_times
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import read_solo_and_pairs

PROMISES = (
    Promise("W2", 15.0, 400.0, "alexnet"),
    Promise("W4", 20.0, 400.0, "resnet50"),
    Promise("W6", 40.0, 200.0, "resnet50"),
    Promise("W9", 40.0, 200.0, "vgg19"),
)
WORKLOADS = {
    f"W{number}": workload
    for first, workload in ((1, "alexnet"), (4, "resnet50"), (7, "vgg19"), (10, "ssd"))
    for number in range(first, first + 3)
}
"""Of all twelve, for plans that do not name them."""
GPUS = {"W2": 0, "W4": 1, "W6": 1, "W9": 0}
SPARE, UNIT_PCT, MOST_BATCH = 0.85, 2.5, 16
"""Of the SLO, the p99 that is planned for: stand-ins, gateway and client on a small host add 5 to 10 %."""
BROKEN = (2.0, 1.6, 1.3)
"""So many times the SLO is the p99 of the replica that is made slower, as the queueing model has it: the first that a
shadow can save."""
SAVED = 0.95
"""Of the SLO, the p99 that its shadow must have then."""


def sharing_model(measured: Path | None) -> SharingModel:
    tables = {} if measured is None else read_solo_and_pairs(measured).solo_ms
    return SharingModel.from_figures(
        load_service_figures("V100"), {name: AloneTable.of(grid, monotone=True) for name, grid in tables.items()}
    )


def small_plan(model: SharingModel) -> Deployment:
    """Shares grow by a unit where the p99 is not kept yet, until none has to; who is where is given."""
    promises = {promise.name: promise for promise in PROMISES}
    replicas = [
        Replica(name, 0, Grant(GPUS[name], share_pct=UNIT_PCT, batch=1), 0.0, promise.rate_rps, float("inf"))
        for name, promise in promises.items()
    ]
    for _ in range(200):
        deployment = Deployment(ServicePlan("by hand", "V100", 2, 0.0, 0, tuple(replicas)), promises, {})
        chosen = [_with_batching(replica, deployment, model) for replica in replicas]
        short = [one.predicted_p99_ms > SPARE * promises[one.service].slo_ms for one in chosen]
        if chosen == replicas and not any(short):
            return deployment
        replicas = [
            replace(one, grant=one.grant._replace(share_pct=one.grant.share_pct + UNIT_PCT * lacks))
            for one, lacks in zip(chosen, short, strict=True)
        ]
    raise SystemExit("no plan was found: the shares do not settle")


def _with_batching(replica: Replica, deployment: Deployment, model: SharingModel) -> Replica:
    widest = replace(replica, grant=replica.grant._replace(batch=MOST_BATCH))
    times = BatchTimes.of(np.maximum.accumulate(batch_times(deployment, model)(widest)))
    arrivals = Poisson(replica.rate_rps)
    batches = range(1, len(times.busy_ms) + 1)
    p99_ms = [latency_of(times, Batching(batch), arrivals).percentile_ms(99) for batch in batches]
    best_ms = min(p99_ms)
    grant = replica.grant._replace(batch=batches[p99_ms.index(best_ms)])
    return replace(replica, grant=grant, queue_delay_ms=0.0, predicted_p99_ms=best_ms)


def plan_json(deployment: Deployment) -> dict[str, object]:
    rows = [
        {
            "name": one.service,
            "gpu": one.grant.gpu,
            "device": "whole" if one.grant.instance is None else str(one.grant.instance),
            "share_pct": one.grant.share_pct,
            "batch": one.grant.batch,
            "queue_delay_ms": one.queue_delay_ms,
            "replica": one.number,
            "rate_rps": one.rate_rps,
            "predicted_p99_ms": one.predicted_p99_ms if math.isfinite(one.predicted_p99_ms) else None,
            "slo_ms": deployment.promises[one.service].slo_ms,
            "workload": deployment.promises[one.service].workload,
            "batch_ms": [round(float(ms), 4) for ms in deployment.batch_ms[slot_of(one)]],
        }
        for one in deployment.plan.replicas
    ]
    plan = deployment.plan
    return {"strategy": plan.strategy, "gpu_type": plan.gpu_type, "gpus": plan.gpus, "services": rows}


def p99_ms(replica: Replica, batch_ms: BatchMs, factor: float = 1.0) -> float:
    times = BatchTimes.of(np.maximum.accumulate(np.array(batch_ms(replica)) * factor))
    batching = Batching(replica.grant.batch or 1, replica.queue_delay_ms)
    return latency_of(times, batching, Poisson(replica.rate_rps)).percentile_ms(99.0)


def disturbance(deployment: Deployment, asked: tuple[Replica, ...], batch_ms: BatchMs) -> tuple[Replica, float]:
    """A replica and a factor on its times that breaks its promise on the planned share, and not on its shadow's."""
    for broken in BROKEN:
        if (found := _disturbance(deployment, asked, batch_ms, broken)) is not None:
            return found
    raise SystemExit("no replica of this plan has a shadow that could save it: leave some share free")


def _disturbance(
    deployment: Deployment, asked: tuple[Replica, ...], batch_ms: BatchMs, broken: float
) -> tuple[Replica, float] | None:
    """Of a service with one replica; the one with the highest rate: noticing takes a few batches, whatever the rate."""
    shadows = shadow_grants(deployment.plan.replicas)
    found: list[tuple[float, float, Replica, float]] = []
    for one in asked:
        shadow, slo_ms = replace(one, grant=shadows[slot_of(one)]), deployment.promises[one.service].slo_ms
        factors = (float(factor) for factor in np.arange(1.05, 3.0, 0.05))
        factor = next((each for each in factors if p99_ms(one, batch_ms, each) >= broken * slo_ms), None)
        if factor is None or sum(other.service == one.service for other in deployment.plan.replicas) > 1:
            continue
        left = p99_ms(shadow, batch_ms, factor) / slo_ms
        if left <= SAVED:
            found.append((-one.rate_rps, left, one, round(factor, 2)))
    if not found:
        return None
    _, _, slow, factor = min(found, key=lambda each: each[:2])
    return slow, factor


async def story(
    state: State, slow: Replica, factor: float, victim: str, targets: list[Target], seconds: float
) -> tuple[list[Result], dict[str, Any]]:
    """Drive everything; in the meantime, slow one down, kill one, and let the slow one recover."""
    slowdown = state.servers_dir / f"{model_name(slow.service)}-{slow.number}" / SLOWDOWN
    moments: dict[str, Any] = {"slowed": math.inf, "killed": math.inf, "healed": math.inf, "server": None}

    async def until_serving(level: str, limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        while not _serving(state, slow.service)[0].endswith(level) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.1)

    async def disturb() -> None:
        await asyncio.sleep(0.1 * seconds)
        await until_serving("planned", 0.4 * seconds)  # a busy host may have made it grow already
        draft = slowdown.with_suffix(".draft")
        draft.write_text(str(factor), encoding="utf-8")
        draft.replace(slowdown)
        moments["slowed"] = time.time()
        await until_serving("shadow", 0.2 * seconds)
        await asyncio.sleep(0.05 * seconds)
        server, pid = _serving(state, victim)
        os.kill(pid, signal.SIGKILL)
        moments.update(killed=time.time(), server=server)
        await asyncio.sleep(0.05 * seconds)
        slowdown.unlink()
        moments["healed"] = time.time()

    results, _ = await asyncio.gather(drive(targets), disturb())
    return results, moments


def _serving(state: State, service: str) -> tuple[str, int]:
    """Name and process of the server that the last switch of the service went to."""
    switches = [one for one in read_events(state.folder) if one["event"] == "switched" and one["service"] == service]
    return switches[-1]["server"], int(switches[-1]["pid"])


def after(events: list[dict[str, Any]], since: float, what: str, service: str, **more: str) -> float | None:
    """Seconds on the clock until something happened."""
    wanted = {"event": what, "service": service, **more}
    for event in events:
        if event["at_unix_s"] >= since and all(event[key] == value for key, value in wanted.items()):
            return round(float(event["at_unix_s"]) - since, 3)
    return None


def settled(events: list[dict[str, Any]], moments: dict[str, Any], slow: str, victim: str) -> dict[str, object]:
    """All in seconds on the clock."""
    return {
        "switch": {
            "service": slow,
            "noticed_after_s": after(events, moments["slowed"], "grow", slow),
            "switched_after_s": after(events, moments["slowed"], "switched", slow, level="shadow"),
            "shrunk_after_healing_s": after(events, moments["healed"], "switched", slow, level="planned"),
        },
        "grown_otherwise": sum(
            event["event"] == "grow" and not (event["service"] == slow and event["at_unix_s"] >= moments["slowed"])
            for event in events
        ),
        "kill": {
            "service": victim,
            "taken_over_after_s": after(events, moments["killed"], "switched", victim),
            "replaced_after_s": after(events, moments["killed"], "ready", victim, server=moments["server"]),
        },
    }


def row(result: Result, replicas: list[Replica]) -> dict[str, object]:
    assert result.slo_ms is not None
    return {
        "service": result.name,
        "requests": result.requests,
        "lost": result.lost + result.failed,
        "p50_ms": round(result.latencies_ms[len(result.latencies_ms) // 2], 3),
        "p99_ms": round(result.p99_ms or float("nan"), 3),
        "slo_ms": result.slo_ms,
        "predicted_p99_ms": round(max(one.predicted_p99_ms for one in replicas), 3),
        "above_slo_pct": round(100.0 * result.above / result.requests, 3),
        "within_slo": result.kept,
        "shares_pct": [one.grant.share_pct for one in replicas],
        "batches": [one.grant.batch for one in replicas],
    }


def run(arguments: argparse.Namespace) -> dict[str, object]:
    model = sharing_model(arguments.solo_and_pairs)
    deployment = small_plan(model) if arguments.plan is None else read_plan(arguments.plan, WORKLOADS)
    batch_ms = batch_times(deployment, model)
    tables = {slot_of(one): tuple(np.maximum.accumulate(batch_ms(one))) for one in deployment.plan.replicas}
    deployment = replace(deployment, batch_ms=tables)
    names = [name for name in deployment.promises if not arguments.services or name in arguments.services]
    deployment = _beside(deployment, names)
    kept = tuple(one for one in deployment.plan.replicas if one.service in names)
    slow, factor = disturbance(deployment, kept, batch_ms)
    victim = next(name for name in reversed(names) if name != slow.service)
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        plan.write_text(json.dumps(plan_json(deployment)), encoding="utf-8")
        state = State(Path(folder) / "state")
        command = [sys.executable, "-c", "from gpuloom.cli.main import main; main()", "serve", "up", str(plan)]
        command += ["--state", str(state.folder), "--dilate", str(arguments.dilate), "--calm-s", str(arguments.calm_s)]
        server = subprocess.Popen(command, stdout=sys.stderr)
        try:
            record = _up(server, state)
            slowest = min(deployment.promises[name].rate_rps for name in names)
            seconds = arguments.requests * 1.03 / slowest * arguments.dilate
            added = asyncio.run(gateway_ms(record))
            targets = _targets(record, names, arguments, seconds)
            load_before = os.getloadavg()[0]
            results, moments = asyncio.run(story(state, slow, factor, victim, targets, seconds))
            events = read_events(state.folder)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
    rows = [row(result, [one for one in kept if one.service == result.name]) for result in results]
    return {
        "protocol": "grpc" if arguments.grpc else "http",
        "dilate": arguments.dilate,
        "seconds": round(max(result.seconds for result in results), 1),
        "host_load": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        "cores": os.cpu_count(),
        "slowed_by": factor,
        "services": rows,
        "lost": sum(result.lost + result.failed for result in results),
        "all_within_slo": all(result.kept for result in results),
        **settled(events, moments, slow.service, victim),
        "gateway_adds": added,
        "sent_late_p99_ms": round(max(np.percentile(result.sent_late_ms, 99) for result in results), 3),
    }


async def gateway_ms(record: Record, asked: int = 1000) -> dict[str, float]:
    """What the gateway adds over HTTP, on the clock: the same question to a server directly and through it, in turn."""
    gateway = Peer(record.host, record.port)
    status = json.loads((await gateway.ask(get("/gpuloom/status"))).body)
    service = status["services"][0]
    port = next(one["port"] for one in service["replicas"][0]["servers"] if one["phase"] == "ready")
    question = get(f"/v2/models/{model_name(service['name'])}/ready")
    took: dict[Peer, list[float]] = {Peer(record.host, port): [], gateway: []}
    for _ in range(asked):
        for endpoint, found in took.items():
            began_s = time.perf_counter()
            await endpoint.ask(question)
            found.append(1000.0 * (time.perf_counter() - began_s))
    direct, through = (np.percentile(found, (50, 99)) for found in took.values())
    for endpoint in took:
        endpoint.close()
    return {"median_ms": round(through[0] - direct[0], 3), "p99_ms": round(through[1] - direct[1], 3)}


def _beside(deployment: Deployment, names: list[str]) -> Deployment:
    """Only the GPUs that these services are on, with all that is on them."""
    gpus = {one.grant.gpu for one in deployment.plan.replicas if one.service in names}
    replicas = tuple(one for one in deployment.plan.replicas if one.grant.gpu in gpus)
    return replace(deployment, plan=replace(deployment.plan, replicas=replicas))


def _up(server: "subprocess.Popen[bytes]", state: State) -> Record:
    while server.poll() is None:
        if (state.folder / "deployment.json").exists():
            return state.record()
        time.sleep(0.05)
    raise SystemExit(f"gpuloom serve up ended with {server.returncode}")


def _targets(record: Record, names: list[str], arguments: argparse.Namespace, seconds: float) -> list[Target]:
    found = []
    for number, one in enumerate(record.services):
        if one.name not in names:
            continue
        generator = np.random.default_rng(arguments.seed + number)
        due_s = schedule("poisson", one.rate_rps / record.dilate, None, seconds, generator)
        port, path, body = record.port, one.path, STANDIN_BODY
        if arguments.grpc:
            assert record.grpc_port is not None, "grpcio is not installed"
            port, path, body = record.grpc_port, INFER, Body(infer_request(model_name(one.name), STANDIN_BODY.content))
        found.append(Target(one.name, record.host, port, path, due_s, body, one.slo_ms, record.dilate, arguments.grpc))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, help="what `gpuloom provision --output json` printed")
    parser.add_argument("--services", nargs="*", help="only these of the plan's services are asked")
    parser.add_argument("--solo-and-pairs", type=Path, help="measured solo tables; without: the shipped model alone")
    parser.add_argument("--requests", type=int, default=6000, help="at least so many of each service")
    parser.add_argument("--dilate", type=float, default=10.0)
    parser.add_argument("--calm-s", type=float, default=3.0, help="the plan's seconds before a share shrinks back")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grpc", action="store_true", help="send over gRPC instead of HTTP")
    print(json.dumps(run(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
