"""The fleet and the gateway together: from the first server that is started to the last request that is answered."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from gpuloom.serve.deployment import Deployment, model_name
from gpuloom.serve.fleet.fleet import Fleet
from gpuloom.serve.fleet.status import metrics_page, status_page
from gpuloom.serve.gateway.gateway import Gateway
from gpuloom.serve.options import Options
from gpuloom.serve.state import Endpoint, Record, State


async def serve(
    deployment: Deployment, fleet: Fleet, state: State, options: Options, on_up: Callable[[Record], None]
) -> None:
    """Until SIGINT or SIGTERM; then what was asked is answered, and everything is ended. A second one: at once."""
    stop, stop_now = _signalled()
    pools = {model_name(service): pool for service, pool in fleet.pools.items()}
    gateway = Gateway(
        pools, {"/gpuloom/status": lambda: status_page(fleet, options.standin), "/metrics": lambda: metrics_page(fleet)}
    )

    async def take_down() -> None:
        await stop.wait()
        await _first(gateway.close(options.timing.grace_s), stop_now.wait())

    try:
        port, grpc_port = await gateway.open(options.host, options.port, options.grpc_port)
        gc.freeze()  # what is here now stays: the collector need not look at it in the middle of a request
        if not await _first(fleet.until_ready(), stop.wait()):
            return
        endpoints = _endpoints(deployment)
        noise = fleet.devices.noise
        record = Record(os.getpid(), options.host, port, options.dilate, options.standin, endpoints, grpc_port, noise)
        state.publish(record)
        on_up(record)
        await _first(fleet.run(), take_down())  # servers are minded until the last request is answered
    finally:
        await gateway.close(0.0)
        fleet.end()


def _endpoints(deployment: Deployment) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(name, f"/v2/models/{model_name(name)}/infer", promise.slo_ms, promise.rate_rps)
        for name, promise in deployment.promises.items()
    )


def _signalled() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first SIGINT or SIGTERM, and by the second."""
    first, second = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: (second if first.is_set() else first).set())
    return first, second


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
