"""When requests are to be sent, decided before the first one is: an open loop does not wait for answers."""

from math import isfinite

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.work.source import shown

KINDS = "poisson, regular or trace:FILE"
MOST = 20_000_000


def schedule(
    kind: str, rate_per_s: float, requests: int | None, duration_s: float | None, generator: np.random.Generator
) -> Floats:
    """Seconds from the start at which requests are sent, ascending: so many, or all of the duration (one of both)."""
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


def replayed(recorded_s: Floats, rate_per_s: float, requests: int | None, duration_s: float | None) -> Floats:
    """A trace as it was recorded, from its first arrival on; the rate then changes its pace, unless it is 0."""
    times = np.asarray(recorded_s - recorded_s[0])
    if rate_per_s > 0 and times[-1] > 0:
        times = times * ((len(times) - 1) / times[-1] / rate_per_s)
    if requests is not None:
        times = times[:requests]
    return times if duration_s is None else times[times < duration_s]
