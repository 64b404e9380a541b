"""A generator of workloads for when there is no trace: the measured mix of training jobs, with heavy-tailed lengths.

Which workload: as often as among MISO's 100 job templates. How long: a log-normal fitted to those templates or to
Microsoft's Philly trace. When: a Poisson process, or MISO's nearly regular gaps. All parameters are shipped figures;
the same arguments give the same jobs on every machine.
"""

import math
import random
from bisect import bisect_right
from itertools import accumulate
from statistics import NormalDist

from gpuloom.errors import InputError
from gpuloom.work.measured.figures import Durations, load_figures
from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import did_you_mean, shown
from gpuloom.work.traces.miso import arrivals_s
from gpuloom.work.traces.trace import MAX_SEED

JOBS = 100
GAP_S = 60.0
ARRIVALS = ("poisson", "miso")


def synthetic(
    n: int = JOBS,
    seed: int = 0,
    gap_s: float = GAP_S,
    *,
    durations: str = "miso",
    arrivals: str = "poisson",
) -> list[TraceJob]:
    """`n` sliceable jobs, on average one every `gap_s`, in order of submission."""
    figures = load_figures()
    _check("n", n >= 1, n, "1 or more")
    _check("seed", 0 <= seed <= MAX_SEED, seed, f"a whole number from 0 to {MAX_SEED}")
    _check("gap_s", math.isfinite(gap_s) and 0 <= gap_s <= 1e9, gap_s, "a number of seconds from 0 to 1e9")
    _choose("durations", durations, tuple(figures.durations))
    _choose("arrivals", arrivals, ARRIVALS)
    # Only `random()` is promised to stay the same in every Python: everything is drawn through it.
    draw = random.Random(seed).random
    names = list(figures.mix)
    bounds = list(accumulate(figures.mix.values()))
    jobs: list[TraceJob] = []
    now_s = 0.0
    regular = arrivals_s(n, seed, gap_s) if arrivals == "miso" else None
    for number in range(n):
        workload = figures.workloads[names[bisect_right(bounds, draw() * bounds[-1])]]
        length_s = _length_s(figures.durations[durations], draw())
        now_s = regular[number] if regular else now_s - gap_s * math.log(1.0 - draw())
        job = Job(
            id=f"job-{number}",
            submit_s=round(now_s, 3),
            kind=Kind.SLICEABLE,
            workload=workload.name,
            mem_mib=workload.mem_mib,
        )
        jobs.append(TraceJob(job, length_s))
    return jobs


def _length_s(fit: Durations, chance: float) -> float:
    z = NormalDist().inv_cdf(min(max(chance, 1e-12), 1.0 - 1e-12))
    # Rounded, because the last bits of exp differ between machines.
    return round(min(max(math.exp(fit.mu + fit.sigma * z), fit.low_s), fit.high_s), 1)


def _check(name: str, fine: bool, value: object, accepted: str) -> None:
    if not fine:
        raise InputError(f"{name} is {shown(value)}, but must be {accepted}")


def _choose(name: str, value: str, accepted: tuple[str, ...]) -> None:
    _check(name, value in accepted, value, f"one of {', '.join(accepted)}{did_you_mean(value, accepted)}")
