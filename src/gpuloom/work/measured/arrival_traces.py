"""Recorded arrivals of requests: CSV with the columns `service` and `arrival_s`, in any order.

A service of the name `*` stands for all that are not named. A load is sent at these times. For a planner only the
pattern counts: gaps of mean 1, which it scales to each service's rate.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.work.source import MAX_SECONDS, shown
from gpuloom.work.table import open_table

ALL = "*"
FEWEST = 100
"""Requests of a service from which a 99th percentile means something."""
Times = NDArray[np.float64]


def read_arrival_times(path: Path) -> Mapping[str, Times]:
    """Seconds, ascending, by service and in the order of their first rows; under `*` those of all others."""
    table = open_table(path, ("service", "arrival_s"), "recorded arrivals")
    arrivals_s: dict[str, list[float]] = {}
    for line, (service, text) in table.rows():
        arrival_s = table.number(line, "arrival_s", text, "a number of seconds, 0 or more", 0.0, MAX_SECONDS)
        arrivals_s.setdefault(service, []).append(arrival_s)
    return {service: np.sort(np.array(times)) for service, times in arrivals_s.items()}


def times_of(service: str, arrivals_s: Mapping[str, Times], path: Path) -> Times:
    """Those of a service, else those of all others; never none. `path` is what they were read from."""
    times = arrivals_s.get(service, arrivals_s.get(ALL))
    if times is None:
        raise InputError(f"{path} has no arrivals of {shown(service)}: expected rows of it, or of {ALL}")
    return times


def read_gaps(path: Path) -> Mapping[str, Times]:
    """Gaps of mean 1 by service; under "" those of all others, if there are such; a row without a name is theirs."""
    arrivals_s: dict[str, list[Times]] = {}
    for service, times in read_arrival_times(path).items():
        arrivals_s.setdefault("" if service == ALL else service, []).append(times)
    if not arrivals_s:
        raise InputError(f"{path} has no rows: expected the columns service and arrival_s")
    return {service: _gaps(service, np.sort(np.concatenate(times)), path) for service, times in arrivals_s.items()}


def _gaps(service: str, times: Times, path: Path) -> Times:
    gaps = np.diff(times)
    if len(times) < FEWEST or gaps.sum() <= 0.0:
        raise InputError(
            f"{path}: {service or ALL} has {len(times)} arrivals: expected {FEWEST} or more, not all at one time"
        )
    scaled: Times = gaps / gaps.mean()
    return scaled
