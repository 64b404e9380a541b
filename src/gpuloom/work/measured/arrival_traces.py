"""Recorded arrivals of requests: CSV with the columns `service` and `arrival_s`, in any order.

A service of the name `*` stands for all that are not named. Only the pattern counts: gaps are scaled to mean 1, and a
planner scales them to each service's rate.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.work.source import MAX_SECONDS
from gpuloom.work.table import open_table

ALL = "*"
FEWEST = 100
"""Requests of a service from which a 99th percentile means something."""


def read_arrivals(path: Path) -> Mapping[str, NDArray[np.float64]]:
    """Gaps of mean 1 by service; under "" those of all others, if there are such."""
    table = open_table(path, ("service", "arrival_s"), "recorded arrivals")
    moments: dict[str, list[float]] = {}
    for line, (service, arrival) in table.rows():
        at = table.number(line, "arrival_s", arrival, "a number of seconds, 0 or more", 0.0, MAX_SECONDS)
        moments.setdefault("" if service == ALL else service, []).append(at)
    if not moments:
        raise InputError(f"{path} has no rows: expected the columns service and arrival_s")
    gaps = {}
    for service, times in moments.items():
        between = np.diff(np.sort(np.array(times)))
        if len(times) < FEWEST or between.sum() <= 0.0:
            raise InputError(
                f"{path}: {service or ALL} has {len(times)} arrivals: expected {FEWEST} or more, not all at one time"
            )
        gaps[service] = between / between.mean()
    return gaps
