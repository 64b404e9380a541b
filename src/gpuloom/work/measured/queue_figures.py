"""The tabulated p99 of a batching queue, as it ships: `perf.queueing.poisson_table` says what it means."""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parent / "shipped" / "poisson_p99.json"


@lru_cache
def load_queue_figures() -> Mapping[str, Any]:
    figures: Mapping[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return figures
