"""How short may the period of a quota be? One busy loop, with the same part of a core in periods of several lengths.

A round visits every period and every part once, in another order each time. What is measured is the CPU time that the
kernel counted, of that which the quota promises: 1 is what was promised. The groups are made for it and removed; no
device is taken, and no quota is around them but what a container may have. A kernel takes no quota below 1 ms, so the
shortest periods are measured with the larger parts only. The load of the machine is told before and after: on one that
is not idle the loop lacks time that no quota has taken.
"""

import os
import sys
import time

import numpy as np

from cpu_shares import SETTLE_S, Crowd, median_and_error
from gpuloom.gpus.host.cgroups import LEAST_QUOTA_US, Group, Limits
from gpuloom.gpus.host.homes import find_home, leave_home

PERIODS_US = (2_000, 3_500, 7_000, 10_000, 14_000, 28_000)
SEVENTHS = (2, 3, 4, 6)

Case = tuple[int, int]
"""Period in µs, sevenths of a core."""


def measure_periods(rounds: int, seconds: float, seed: int) -> dict[str, object]:
    cases = [(period, part) for period in PERIODS_US for part in SEVENTHS if quota_us(period, part) >= LEAST_QUOTA_US]
    seen: dict[Case, list[float]] = {case: [] for case in cases}
    dice, load_before = np.random.default_rng(seed), os.getloadavg()[0]
    home = find_home(f"periods-{os.getpid()}")
    try:
        for number in range(rounds):
            print(f"periods: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for at in dice.permutation(len(cases)):
                seen[cases[at]].append(_of_promised(home.group("loop"), cases[at], seconds))
    finally:
        leave_home(home)
    return {
        "kernel": os.uname().release,
        "rounds": rounds,
        "seconds": seconds,
        "host_load": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        "periods": [_row(case, values) for case, values in seen.items()],
    }


def quota_us(period_us: int, sevenths: int) -> int:
    return period_us * sevenths // 7


def _of_promised(group: Group, case: Case, seconds: float) -> float:
    """The CPU time that a busy loop had, of what was promised."""
    period_us, sevenths = case
    promised = quota_us(period_us, sevenths) / period_us
    group.create(Limits(promised))
    _set_period(group, period_us, quota_us(period_us, sevenths))
    loop = Crowd(group, 1)
    try:
        loop.go(3600.0)
        time.sleep(SETTLE_S)
        before_s, began_s = group.cpu_s() or 0.0, time.monotonic()
        time.sleep(seconds)
        used_s, passed_s = (group.cpu_s() or 0.0) - before_s, time.monotonic() - began_s
        return used_s / passed_s / promised
    finally:
        loop.end()


def _set_period(group: Group, period_us: int, quota: int) -> None:
    """One that gpuloom itself would not choose."""
    twin = group.twins.get("cpu")
    if twin is None:
        (group.path / "cpu.max").write_text(f"{quota} {period_us}", encoding="ascii")
        return
    for name, value in (("quota", -1), ("period", period_us), ("quota", quota)):
        (twin / f"cpu.cfs_{name}_us").write_text(str(value), encoding="ascii")


def _row(case: Case, values: list[float]) -> dict[str, object]:
    period_us, sevenths = case
    of_promised, error = median_and_error(values)
    return {
        "period_ms": period_us / 1000,
        "sevenths_of_a_core": sevenths,
        "cpu_time_over_promised": of_promised,
        "stderr": error,
        "repetitions": len(values),
    }
