"""Measured speeds of training workloads alone at shares of an A100's SMs, as they ship: relative to all of them."""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

SHIPPED = Path(__file__).parent / "shipped" / "a100_40gb_shares.json"


@lru_cache(maxsize=1)
def load_share_figures() -> Mapping[str, Mapping[str, float]]:
    """By workload, then by share in per cent."""
    speeds: Mapping[str, Mapping[str, float]] = json.loads(SHIPPED.read_text(encoding="utf-8"))["speeds"]
    return speeds
