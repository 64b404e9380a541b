"""A deployment as others see it, who have its record: its addresses, its status, whether it keeps its promises.

What the status says is `fleet.status`'s to decide; here it is read.
"""

import json
import urllib.request
from typing import Any

from gpuloom.gpus.host.noise import Noise
from gpuloom.serve.gateway.grpc_client import address
from gpuloom.serve.state import Record

ANSWER_S = 10.0
Status = dict[str, Any]


class UnansweredError(Exception):
    """It should be there, and does not answer; the text says why."""


def http_address(record: Record) -> str:
    return f"http://{address(record.host, record.port)}"


def grpc_address(record: Record) -> str | None:
    return None if record.grpc_port is None else f"grpc://{address(record.host, record.grpc_port)}"


def ask_status(record: Record) -> Status:
    try:
        with urllib.request.urlopen(f"{http_address(record)}/gpuloom/status", timeout=ANSWER_S) as answer:
            status: Status = json.load(answer)
    except (OSError, ValueError) as error:
        raise UnansweredError(f"{http_address(record)} does not answer: {error}") from None
    return status


def rows_of(status: Status) -> list[dict[str, object]]:
    """One for each replica."""
    return [_row(service, replica) for service in status["services"] for replica in service["replicas"]]


def _row(service: dict[str, Any], replica: dict[str, Any]) -> dict[str, object]:
    ready = sum(server["phase"] == "ready" for server in replica["servers"])
    return {
        "service": service["name"],
        "replica": replica["replica"],
        "grant": replica["grant"],
        "level": replica["level"],
        "p99_ms": service["p99_ms"],
        "slo_ms": service["slo_ms"],
        "rate_rps": service["rate_rps"],
        "mean_batch": replica["mean_batch"],
        "requests": service["requests"],
        "above_slo": service["above_slo"],
        "servers_ready": ready,
        "serving": replica["serving"],
    }


def noise_of(status: Status) -> Noise | None:
    """Of the CPU devices that it runs on, beside which its latencies are to be read; None on others."""
    noise = status.get("noise")
    return None if noise is None else Noise(**noise)


def keeps_promises(status: Status) -> bool:
    """Now: every p99 within its SLO, and every replica served."""
    within = all((service["p99_ms"] or 0.0) <= service["slo_ms"] for service in status["services"])
    return within and all(
        replica["serving"] is not None for service in status["services"] for replica in service["replicas"]
    )
