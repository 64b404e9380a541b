"""A plan carried out on this machine, from the files that Triton reads to the moment when nothing is left running."""

import asyncio
import errno
import gc
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Deployment
from gpuloom.serve.devices import Devices
from gpuloom.serve.fleet.correct import RULES, Level, Rules
from gpuloom.serve.fleet.fleet import Fleet
from gpuloom.serve.fleet.place import TIMING, Timing, Wish
from gpuloom.serve.fleet.shadows import shadow_grants, slot_of
from gpuloom.serve.fleet.status import metrics_page, status_page
from gpuloom.serve.gateway.grpc_door import RpcGateway
from gpuloom.serve.gateway.http_door import Gateway
from gpuloom.serve.state import Endpoint, Record, State
from gpuloom.serve.times import BatchMs
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.repository import model_name, standin_text, write_own, write_standin
from gpuloom.serve.triton.server import ServerSpec

SLOWDOWN = "slowdown"
"""A file in a replica's folder: a factor on the stand-in's times, for rehearsals."""

NO_HOST = "--host {!r}: not an address of this host; 127.0.0.1 is the host itself, 0.0.0.0 all of its addresses"


@dataclass(frozen=True, slots=True)
class Options:
    dilate: float = 1.0
    """So many seconds pass for one of the plan's; only for stand-ins."""
    standby: bool = True
    models: Path | None = None
    """The user's own model repository, by workload or service; None: stand-ins."""
    host: str = "127.0.0.1"
    port: int = 0
    grpc_port: int | None = None
    """None: no gRPC."""
    rules: Rules = RULES
    timing: Timing = TIMING


def grants_of(deployment: Deployment) -> list[Grant]:
    """All that servers may be started with."""
    return [replica.grant for replica in deployment.plan.replicas] + list(
        shadow_grants(deployment.plan.replicas).values()
    )


def prepare(deployment: Deployment, batch_ms: BatchMs | None, state: State, options: Options) -> Wish:
    """Write the repository of every server. `batch_ms` is not needed with the user's own models."""
    shadows = shadow_grants(deployment.plan.replicas)
    specs, slower = {}, {}
    for replica in deployment.plan.replicas:
        slot = slot_of(replica)
        shadow = replace(replica, grant=shadows[slot])
        times = None if batch_ms is None else (batch_ms(replica), batch_ms(shadow))
        levels = ((replica, Level.PLANNED), (shadow, Level.SHADOW))
        pair = [_spec(one, level, state, options) for one, level in levels]
        for at, (one, spec) in enumerate(zip((replica, shadow), pair, strict=True)):
            _write(deployment, one, spec, None if times is None else times[at], options)
        specs[slot] = (pair[0], pair[1])
        slower[slot] = shadow.grant.share_pct / replica.grant.share_pct if times is None else _slower(*times)
    slo_ms = {name: promise.slo_ms for name, promise in deployment.promises.items()}
    return Wish(specs, slower, slo_ms, options.dilate, options.standby, options.rules, options.timing)


def _slower(planned: Sequence[float], shadow: Sequence[float]) -> float:
    return max(1.0, *(slow / fast for slow, fast in zip(planned, shadow, strict=False)))


def replica_folder(state: State, replica: Replica) -> Path:
    return state.servers_dir / f"{model_name(replica.service)}-{replica.number}"


def _spec(replica: Replica, level: Level, state: State, options: Options) -> ServerSpec:
    model = model_name(replica.service)
    folder = replica_folder(state, replica) / level.value
    return ServerSpec(
        name=f"{model}-{replica.number}-{level.value}",
        service=replica.service,
        model=model,
        level=level,
        grant=replica.grant,
        repository=folder / "repository",
        log=folder / "triton.log",
        weight=replica.rate_rps,
        standin=options.models is None,
        grpc=options.grpc_port is not None,
    )


def _write(
    deployment: Deployment, replica: Replica, spec: ServerSpec, times_ms: Sequence[float] | None, options: Options
) -> None:
    batch = replica.grant.batch or 1
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.unlink(missing_ok=True)
    if times_ms is None:
        source = _own_model(deployment, replica.service, options.models)
        write_own(spec.repository, spec.model, source, batch, replica.queue_delay_ms * options.dilate)
        return
    slowdown = spec.log.parent.parent / SLOWDOWN
    slowdown.unlink(missing_ok=True)
    dilated = [ms * options.dilate for ms in times_ms]
    text = standin_text(dilated, batch, replica.queue_delay_ms * options.dilate, slowdown)
    write_standin(spec.repository, spec.model, text)


def _own_model(deployment: Deployment, service: str, models: Path | None) -> Path:
    assert models is not None
    names = [name for name in (service, deployment.promises[service].workload) if name is not None]
    for name in names:
        if "/" not in name and (models / name).is_dir():
            return models / name
    raise InputError(
        f"{models} has no model {' or '.join(names)}: expected a folder with a config.pbtxt for each service"
    )


async def serve(
    deployment: Deployment,
    wish: Wish,
    triton: Triton,
    devices: Devices,
    state: State,
    options: Options,
    on_event: Callable[[dict[str, object]], None] = lambda _: None,
    on_up: Callable[[Record], None] = lambda _: None,
) -> None:
    """Until SIGINT or SIGTERM; then what was asked is answered, and everything is ended. A second one: at once."""
    stopping, at_once = asyncio.Event(), asyncio.Event()

    def ask_to_stop() -> None:
        (at_once if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask_to_stop)
    fleet = Fleet(deployment.plan.replicas, wish, triton, devices, state, on_event)
    pools = {model_name(name): pool for name, pool in fleet.pools.items()}
    standin = options.models is None
    gateway = Gateway(
        pools, {"/gpuloom/status": lambda: status_page(fleet, standin), "/metrics": lambda: metrics_page(fleet)}
    )
    doors: list[Gateway | RpcGateway] = [gateway]

    async def take_down() -> None:
        await stopping.wait()
        await _first(_stop(doors, options.timing.grace_s), at_once.wait())

    try:
        port, grpc_port = await _listen("--port", gateway, options.host, options.port), None
        if options.grpc_port is not None:
            doors.append(rpc := RpcGateway(pools))
            grpc_port = await _listen("--grpc-port", rpc, options.host, options.grpc_port)
        gc.freeze()  # what is here now stays: the collector need not look at it in the middle of a request
        if not await _first(fleet.until_ready(), stopping.wait()):
            return
        services = tuple(
            Endpoint(name, f"/v2/models/{model_name(name)}/infer", promise.slo_ms, promise.rate_rps)
            for name, promise in deployment.promises.items()
        )
        record = Record(os.getpid(), options.host, port, options.dilate, standin, services, grpc_port)
        state.publish(record)
        on_up(record)
        await _first(fleet.run(), take_down())  # servers are minded until the last request is answered
    finally:
        await _stop(doors, 0.0)
        fleet.end()


async def _listen(option: str, door: Gateway | RpcGateway, host: str, port: int) -> int:
    try:
        if not host:
            raise UnicodeError  # asyncio takes it for all addresses, which is not for a slip to decide
        return await door.start(host, port)
    except (socket.gaierror, UnicodeError):
        raise InputError(NO_HOST.format(host)) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            told = f"{option} {port}: something else listens on {host}:{port}; name another, or 0 for a free one"
        elif error.errno == errno.EACCES:
            told = f"{option} {port}: only an administrator may listen there; name one above 1023, or 0 for a free one"
        else:
            told = NO_HOST.format(host)
        raise InputError(told) from None


async def _stop(doors: Sequence[Gateway | RpcGateway], grace_s: float) -> None:
    await asyncio.gather(*(door.stop(grace_s) for door in doors))


async def _first(work: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object]) -> bool:
    """Do the work unless the other is done first; whether it was done. What either raises is raised."""
    task, waiter = asyncio.ensure_future(work), asyncio.ensure_future(other)
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        for each in (task, waiter):
            if each.done():
                each.result()
        return task.done()
    finally:
        for each in (task, waiter):
            each.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)
