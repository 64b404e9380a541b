"""From rates on a CPU device to speeds on its instances: where time is counted, no training is needed.

A batch takes `busy` of the device's time and waits for `idle` beside that (data, a disk, a peer). While it is busy it
goes as fast as the time that it is given, but no faster than its threads can use, `reach`:

    1 / rate = busy / min(part, reach) + idle

The kernel says how much time a job had, so busy is known whoever else was there. At the lowest level all of them fit
side by side, so that level tells idle. How fast it was at the others tells a reach that it has at least; the threads
that worked tell how many it can use. Memory bandwidth is not in it: what neighbours take of that is an error of it, and
so is what others on the machine take of the lowest level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuloom.contract.view import Estimates
from gpuloom.gpus.model import GpuModel
from gpuloom.live.probes.measure import LEVELS_PCT, Rate, Rates, by_share
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Job

MARGIN = 0.05
"""Added to both ends of an interval: rates over a few seconds are no more exact than that."""
LEAST_SPEED = 0.01


@dataclass(frozen=True, slots=True)
class Law:
    busy: float
    """Of the device's time, for a batch."""
    idle: float
    reach: float
    """The largest part of the device that it was seen to use while busy."""
    most: float
    """And the largest that it may be able to use."""

    def rate(self, part: float, reach: float) -> float:
        return 1.0 / (self.busy / min(part, reach) + self.idle)

    def speed(self, part: float) -> Estimate:
        """Relative to the whole device alone. Threads that worked are taken to be able to."""
        least, likely = (self.rate(part, reach) / self.rate(1.0, reach) for reach in (self.reach, self.most))
        low, high = min(least, likely), max(least, likely)
        return Estimate(min(likely, 1.0), max(low - MARGIN, LEAST_SPEED), min(high + MARGIN, 1.0))


def by_time(jobs: Sequence[Job], rates: Sequence[Rates], model: GpuModel) -> list[Estimates]:
    """A `Predict`. Who was not measured at the lowest level, or used no time at all, gets the simple rule."""
    answers = by_share(jobs, rates, model)
    most = max(profile.slices for profile in model.profiles)
    for at, (job, measured) in enumerate(zip(jobs, rates, strict=True)):
        law = law_of(measured)
        if law is not None:
            answers[at] = {
                profile.name: law.speed(profile.slices / most)
                for profile in model.profiles
                if profile.mem_mib >= (job.mem_mib or 0)
            }
    return answers


def law_of(rates: Rates) -> Law | None:
    lowest = rates.get(LEVELS_PCT[-1])
    if lowest is None or not lowest.used:
        return None
    busy = lowest.used / lowest.batches_per_s
    idle = max(1.0 / lowest.batches_per_s - busy / (LEVELS_PCT[-1] / 100), 0.0)
    reach = max(LEVELS_PCT[-1] / 100, *(_part_while_busy(rate, idle) for rate in rates.values()))
    return Law(busy, idle, min(reach, 1.0), min(max(reach, *(rate.most for rate in rates.values())), 1.0))


def _part_while_busy(rate: Rate, idle: float) -> float:
    """How much of the device it had while it was busy."""
    if not rate.used:
        return 0.0
    busy = rate.used / rate.batches_per_s
    return busy / max(1.0 / rate.batches_per_s - idle, busy)
