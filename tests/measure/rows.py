"""Rows as an exhaustive campaign would have them: made from true step times and noise from run to run."""

from collections.abc import Mapping, Sequence
from math import exp, inf

import numpy as np

from gpuloom.gpus.catalogue import find
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.results import Copy, Outcome

MODEL = find("a100")
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
COPIES = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}


def run(
    number: int, arrangement: Arrangement, repetition: int, step_ms: Sequence[float], **more: float | None
) -> list[Copy]:
    """One run; a copy whose step time is infinite is out of memory."""
    return [
        Copy(
            number,
            arrangement.name,
            arrangement.way,
            len(arrangement.seats),
            at,
            repetition,
            seat,
            Outcome.OK if ms < inf else Outcome.OUT_OF_MEMORY,
            steps=1000 if ms < inf else None,
            seconds=ms if ms < inf else None,
            step_ms=ms if ms < inf else None,
            **more,  # type: ignore[arg-type]
        )
        for at, (seat, ms) in enumerate(zip(arrangement.seats, step_ms, strict=True))
    ]


def copies_on(workload: str, profile: str | None, count: int, way: Way = Way.CUT) -> Arrangement:
    return Arrangement(way, (Seat(workload, profile),) * count)


def campaign(
    workload: str,
    true_ms: Mapping[str, float],
    repetitions: int,
    dice: np.random.Generator,
    noise: float = 0.03,
    slower: float = 1.0,
    energy_j: float | None = None,
) -> list[Copy]:
    """Alone on every profile and in parallel on the homogeneous ones; `slower`: in parallel. `energy_j`: of a run."""
    rows: list[Copy] = []
    for repetition in range(repetitions):
        for profile in PROFILES:
            for count in sorted({1, COPIES[profile]}):
                factor = exp(dice.normal(0.0, noise)) * (slower if count > 1 else 1.0)
                times = [true_ms.get(profile, inf) * factor] * count
                watts = None if energy_j is None else energy_j / times[0]
                rows += run(len(rows), copies_on(workload, profile, count), repetition, times, power_w=watts)
    return rows
