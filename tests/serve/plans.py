"""Plans for the tests, as `gpuloom provision` prints them."""

import json
from pathlib import Path
from typing import Any

from gpuloom.gpus.grant import Grant
from gpuloom.provision.plan import Replica


def row(name: str = "W6", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "gpu": 0,
        "device": "whole",
        "share_pct": 30,
        "batch": 2,
        "queue_delay_ms": 0.5,
        "replica": 0,
        "rate_rps": 200,
        "predicted_p99_ms": 31.5,
        "slo_ms": 40,
        "workload": "resnet50",
        "batch_ms": [4.2, 6.9],
    } | fields


def write_plan(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"strategy": "gpuloom", "gpu_type": "V100", "gpus": 1, "services": list(rows)}))
    return path


def replica(name: str = "a", number: int = 0, **grant: Any) -> Replica:
    return Replica(name, number, Grant(**{"gpu": 0, "share_pct": 50.0, "batch": 2} | grant), 0.0, 100.0, 10.0)
