"""A deployment as others see it."""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.serve.client import UnansweredError, ask_status, grpc_address, http_address, keeps_promises, rows_of
from gpuloom.serve.deployment import read_plan
from gpuloom.serve.fleet.fleet import Fleet
from gpuloom.serve.fleet.status import status_page
from gpuloom.serve.gateway.gateway import Gateway
from gpuloom.serve.options import Options
from gpuloom.serve.prepare import prepare
from gpuloom.serve.seats import NoDevices
from gpuloom.serve.state import Record, State
from gpuloom.serve.times import batch_times
from gpuloom.serve.triton.environment import Triton
from tests.serve.plans import row, write_plan


def record(host: str = "127.0.0.1", port: int = 8000, grpc_port: int | None = None) -> Record:
    return Record(os.getpid(), host, port, 1.0, True, (), grpc_port)


def test_addresses() -> None:
    assert http_address(record()) == "http://127.0.0.1:8000"
    assert http_address(record("::1")) == "http://[::1]:8000"
    assert grpc_address(record()) is None
    assert grpc_address(record("::1", grpc_port=1)) == "grpc://[::1]:1"


def test_one_that_does_not_answer_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnansweredError, match=rf"http://127\.0\.0\.1:{port} does not answer: "):
        ask_status(record(port=port))


def test_what_a_fleet_tells_is_what_is_read(tmp_path: Path) -> None:
    """Through its door: none of its servers has been started, so nobody serves."""
    deployment = read_plan(write_plan(tmp_path, row(), row("W9", share_pct=50)))

    async def work(fleet: Fleet) -> dict[str, Any]:
        gateway = Gateway({}, {"/gpuloom/status": lambda: status_page(fleet, standin=True)})
        port, _ = await gateway.open("127.0.0.1", 0, None)
        try:
            return await asyncio.to_thread(ask_status, record(port=port))
        finally:
            await gateway.close(0.0)

    with State(tmp_path / "s") as state:
        wish = prepare(deployment, batch_times(deployment, None), state, Options())
        fleet = Fleet(deployment.plan.replicas, wish, Triton(tmp_path / "none"), NoDevices(), state)
        status = asyncio.run(work(fleet))
    assert [(each["service"], each["grant"], each["servers_ready"], each["serving"]) for each in rows_of(status)] == [
        ("W6", "gpu0:30%", 0, None),
        ("W9", "gpu0:50%", 0, None),
    ]
    assert not keeps_promises(status)


REPLICAS = st.lists(st.none() | st.just("a-0-planned"), min_size=1, max_size=3)
SERVICES = st.lists(st.tuples(st.none() | st.floats(0.0, 100.0), st.floats(1.0, 50.0), REPLICAS), max_size=4)


@settings(deadline=None, max_examples=60)
@given(SERVICES)
def test_a_promise_is_kept_by_time_and_by_being_served(services: list[tuple[float | None, float, list[Any]]]) -> None:
    status = {
        "services": [
            {"p99_ms": p99_ms, "slo_ms": slo_ms, "replicas": [{"serving": server} for server in servers]}
            for p99_ms, slo_ms, servers in services
        ]
    }
    late = [p99_ms for p99_ms, slo_ms, _ in services if p99_ms is not None and p99_ms > slo_ms]
    unserved = [server for _, _, servers in services for server in servers if server is None]
    assert keeps_promises(json.loads(json.dumps(status))) is (not late and not unserved)
