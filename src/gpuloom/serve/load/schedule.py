"""When requests are to be sent, decided before the first one is: an open loop does not wait for answers."""

from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.work.source import MAX_SECONDS, shown
from gpuloom.work.table import open_table

Floats = NDArray[np.float64]
ALL = "*"
KINDS = "poisson, regular or trace:FILE"
MOST = 20_000_000


def schedule(
    kind: str,
    rate_per_s: float,
    requests: int | None,
    duration_s: float | None,
    generator: np.random.Generator,
    service: str = ALL,
) -> Floats:
    """Seconds from the start at which requests are sent, ascending: so many, or all of the duration (one of the two).

    A trace is sent as it was recorded, from its first arrival on; `rate_per_s` then changes its pace, unless it is 0.
    """
    if kind.startswith("trace:"):
        recorded = read_arrivals(Path(kind.removeprefix("trace:")), service)
        return _of_trace(recorded, rate_per_s, requests, duration_s)
    if kind not in ("poisson", "regular"):
        raise InputError(f"arrivals {shown(kind)} are not known; accepted are {KINDS}")
    if not (isfinite(rate_per_s) and rate_per_s > 0):
        raise InputError(f"the rate is {rate_per_s:g} requests per second: it must be above 0")
    expected = float(requests) if requests is not None else rate_per_s * (duration_s or 0.0)
    if expected > MOST:
        raise InputError(f"that would be {expected:,.0f} requests of one service; accepted are up to {MOST:,}")
    if kind == "regular":
        count = int(expected) if requests is not None else int(np.ceil(expected - 1e-9))
        return np.arange(count) / rate_per_s
    # Enough of them that their times pass the duration; cut below.
    count = int(expected) if requests is not None else int(expected + 10.0 * np.sqrt(expected) + 20)
    times: Floats = np.cumsum(generator.exponential(1.0 / rate_per_s, count))
    return times if duration_s is None else times[times < duration_s]


def _of_trace(times: Floats, rate_per_s: float, requests: int | None, duration_s: float | None) -> Floats:
    times = np.asarray(times - times[0])
    if rate_per_s > 0 and times[-1] > 0:
        times = times * ((len(times) - 1) / times[-1] / rate_per_s)
    if requests is not None:
        times = times[:requests]
    return times if duration_s is None else times[times < duration_s]


def read_arrivals(path: Path, service: str) -> Floats:
    """Arrival times of a service in seconds, ascending, from a file that `gpuloom provision` reads as well.

    CSV with the columns `service` and `arrival_s`; rows of the service `*` stand for all that are not named.
    """
    table = open_table(path, ("service", "arrival_s"), "recorded arrivals")
    found: dict[str, list[float]] = {service: [], ALL: []}
    for line, (name, arrival) in table.rows():
        at_s = table.number(line, "arrival_s", arrival, "a number of seconds, 0 or more", 0.0, MAX_SECONDS)
        if name in found:
            found[name].append(at_s)
    times = found[service] or found[ALL]
    if not times:
        raise InputError(f"{path} has no arrivals of {shown(service)}: expected rows of it, or of {ALL}")
    return np.sort(np.array(times))
