"""Strategies by name. Modules are imported when their strategy is asked for."""

import importlib
from collections.abc import Callable
from typing import cast

from gpuloom.errors import InputError
from gpuloom.provision.demand import Problem
from gpuloom.provision.plan import ServicePlan
from gpuloom.work.source import did_you_mean

Strategy = Callable[[Problem], ServicePlan]
STRATEGIES: dict[str, str] = {
    "gpuloom": "p99 under the stated arrivals, replicas, least cost, with a lower bound",
    "igniter": "TPDS'23 as published: interference-aware, mean latency within half of the SLO",
    "gpulets": "gpu-lets+ (ATC'22): at most two on a GPU",
    "gslice": "GSLICE+: each tunes itself, blind to its neighbours",
    "ffd": "first fit decreasing, blind to neighbours",
    "alone": "gpuloom's planner as if nobody slowed anybody down",
}
"""What each does. Ours are `shares.planner` and `shares.alone`, the others are the files of their names in `peers`."""
PEERS = ("igniter", "gpulets", "gslice", "ffd")
"""Others' strategies, which need others' profiles. Where there are none, ours is compared with itself, blind."""


def strategy(name: str) -> Strategy:
    if name not in STRATEGIES:
        raise InputError(
            f"strategy {name!r} is unknown{did_you_mean(name, STRATEGIES)}: expected one of {', '.join(STRATEGIES)}"
        )
    module = {"gpuloom": "shares.planner", "alone": "shares.alone"}.get(name, f"peers.{name}")
    return cast(Strategy, importlib.import_module(f"gpuloom.provision.{module}").provision)
