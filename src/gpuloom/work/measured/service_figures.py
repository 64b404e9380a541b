"""Fitted figures of inference models that ship with the package, by type of GPU.

Written by benchmarks/make_service_figures.py from the public measurements that they name; what the figures mean is in
`perf.sharing.igniter` and `perf.sharing.model`, each of which is built `from_figures`.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.work.source import did_you_mean

SHIPPED: Mapping[str, Path] = {"V100": Path(__file__).parent / "shipped" / "v100_services.json"}


@lru_cache
def load_service_figures(gpu: str = "V100") -> Mapping[str, Any]:
    if gpu not in SHIPPED:
        known = ", ".join(SHIPPED)
        raise InputError(
            f"no figures of services ship for {gpu!r}: expected one of {known}{did_you_mean(gpu, SHIPPED)}"
        )
    figures: Mapping[str, Any] = json.loads(SHIPPED[gpu].read_text(encoding="utf-8"))
    return figures
