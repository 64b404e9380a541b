"""The constants of `miso`, and its levers: what it does beyond the paper, each of which can be turned off.

`miso:-migration,-telemetry` is the policy without these two, which is how a benchmark finds out what each is worth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuloom.policies.levers import turned_off


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants, chosen on seeds that no benchmark reports (101-114 of MISO's experiment)."""

    horizon_s: float = 600.0
    """How long a cut is expected to last."""
    move_s: float = 15.0
    """What a job loses when it is moved: a cut and a restart."""
    probe_s: float = 60.0
    """What everybody on a GPU loses to a probe: two moves and half of the time measured."""
    patience_s: float = 900.0
    """For a job that has waited so long GPUs are reserved: nobody else is placed there until it fits."""
    priority_s: float = 3600.0
    """Ten points of priority let a job go before those that came so much earlier: nobody is overtaken for ever."""
    short_s: float = 900.0
    """A job that is shorter than this, or has not run for so long yet, counts more than others..."""
    short_weight: float = 1.5
    """...by this factor: most jobs are short, and their owners wait for them."""
    moves: int = 4
    """Migrations in one decision at most."""
    every_layout: bool = True
    marginal_placement: bool = True
    """Not simply the GPU with the fewest jobs."""
    choosy_probes: bool = True
    """Probe only if the answer could change the cut by more than the probe costs; else every new mix."""
    by_workload: bool = True
    """What is known of a workload holds for the next job of its kind."""
    telemetry: bool = True
    counts_moves: bool = True
    migrating: bool = True
    skips_ahead: bool = True
    """A job that fits nowhere holds nobody up, until its patience is at an end."""
    size_aware: bool = True
    """Favour jobs that are short or, where nobody guesses, young."""


LEVERS: Mapping[str, Mapping[str, Any]] = {
    "layouts": {"every_layout": False},
    "placement": {"marginal_placement": False},
    "choosing": {"choosy_probes": False},
    "memory": {"by_workload": False},
    "telemetry": {"telemetry": False},
    "costs": {"counts_moves": False},
    "migration": {"migrating": False},
    "skipping": {"skips_ahead": False},
    "sizes": {"size_aware": False},
}


def without(arg: str) -> Tuning:
    return Tuning(**turned_off("miso", arg, LEVERS))
