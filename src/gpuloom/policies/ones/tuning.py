"""The constants of `ones`, and its levers: each can be turned off (`ones:-name,-ranks`) to see what it is worth."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from gpuloom.policies.levers import turned_off


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants, chosen on Pollux's workloads 1 and 3 (at loads 0.85, 1 and 1.2); 2 and 4 were never looked at."""

    round_s: float = 60.0
    rank_exponent: float = 0.65
    """How jobs are taken to speed up with GPUs when ranks become weights: at 0 all alike, at 1 the shortest first."""
    rank_softness: float = 0.5
    """Remaining works that differ by less than this factor's logarithm count as about the same."""
    value_exponent: float = 0.75
    """What speed is worth: concave, so that many fast jobs are better than one very fast one."""
    ageing: float = 0.15
    """Work left is divided by the job's age to this: who has been here for long is taken to have less left."""
    horizon_s: float = 300.0
    """How long a change is expected to last, at most: so long it has to pay off."""
    least_horizon_s: float = 60.0
    start_gpus: int = 4
    """What a job of which nothing is known may start on, if a node has so many."""
    growth: float = 3.0
    """Times the largest number of GPUs that it, or one of its name, has been seen on."""
    noise_exponent: float = 0.3
    """How gradient noise grows with the batch: the noise seen at a small batch says too little about a large one."""
    patience_s: float = 1800.0
    """Who has had less than half of its fair part of the GPUs is given it after so long (`owed.py`)."""
    least_work_s: float = 30.0
    """Remaining work below this (seconds of one GPU) does not tell jobs apart."""
    by_name: bool = True
    """What is known of a name holds for the next job of that name: step times and lengths."""
    metric: bool = True
    """Of jobs without a name: what is left follows from the path of the metric too, not from what was done alone."""
    ranked: bool = True
    counts_costs: bool = True
    """What a change costs is weighed against what it brings."""
    slices: bool = True
    """Jobs that can do with a part of a GPU share GPUs that are cut for them; else each has a whole one."""
    cut_s: float = 4.0
    """What a cut adds to the cost of starting again on a slice (measured by MISO's authors)."""


NAMELESS: Mapping[str, Any] = {
    "by_name": False,
    "rank_exponent": 0.4,
    "rank_softness": 1.0,
    "ageing": 0.25,
    "noise_exponent": 0.0,
    "growth": 6.0,
}
"""Who does not go by names knows less of what is left and of what scales, and has constants of its own."""
LEVERS: Mapping[str, Mapping[str, Any]] = {
    "name": NAMELESS,
    "metric": {"metric": False},
    "ranks": {"ranked": False},
    "hysteresis": {"counts_costs": False},
    "start": {"start_gpus": 1},
    "growth": {"growth": 2.0},
    "noise": {"noise_exponent": 0.0},
    "bound": {"patience_s": inf},
    "slices": {"slices": False},
}


def without(arg: str) -> Tuning:
    return Tuning(**turned_off("ones", arg, LEVERS))
