"""What was seen beats what was predicted: how fast workloads really ran on slices, by fingerprint, GPU and profile.

Jobs report batches a second; a relative speed needs what the whole GPU does. Seen there, that is it; otherwise the
predictions, taken together, say what it would be, and two slices that were seen still correct each other. The 90 %
interval shrinks with the root of the number of reports; until those say more they are taken to differ by 3 %, which is
an assumption, not a measurement. Knows no file and no clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, isfinite, log, sqrt

from gpuloom.gpus.model import GpuModel
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Job

RUN_SPREAD = 0.03
"""Relative standard deviation of one report, before reports say more; counts as PRIOR_RUNS reports."""
PRIOR_RUNS = 2.0
NINETY_PCT = 1.645
NOTABLE = 0.01
"""A mean that moves by less than this part of itself is no news."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Reports of one workload on one profile."""

    runs: int
    mean: float
    squares: float
    """Sum of squared distances from the mean (Welford)."""

    def with_run(self, rate: float) -> "Seen":
        runs = self.runs + 1
        mean = self.mean + (rate - self.mean) / runs
        return Seen(runs, mean, self.squares + (rate - self.mean) * (rate - mean))

    @property
    def reach(self) -> float:
        """Half of the interval of the mean, as a part of it."""
        variance = (PRIOR_RUNS * RUN_SPREAD**2 + self.squares / self.mean**2) / (PRIOR_RUNS + self.runs - 1)
        return NINETY_PCT * sqrt(variance / self.runs)


class RunMemory:
    """Remembers what it is told, and puts it in the place of predictions."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, Seen]] = {}

    def observe(self, fingerprint: str, model: GpuModel, profile: str, batches_per_s: float) -> bool:
        """A job that had the slice for itself. Returns whether that is news."""
        if not (isfinite(batches_per_s) and batches_per_s > 0.0):
            raise ValueError(f"{fingerprint} on {profile} does {batches_per_s} batches a second: must be above 0")
        seen = self._seen.setdefault((fingerprint, model.name), {})
        before = seen.get(profile)
        after = seen[profile] = (before or Seen(0, 0.0, 0.0)).with_run(batches_per_s)
        return before is None or abs(after.mean - before.mean) > NOTABLE * before.mean

    def remember(self) -> dict[str, dict[str, list[tuple[str, int, float, float]]]]:
        """All that it was told, by fingerprint and GPU model; profiles in the order in which they were first seen."""
        found: dict[str, dict[str, list[tuple[str, int, float, float]]]] = {}
        for (name, model), seen in self._seen.items():
            rows = [(profile, known.runs, known.mean, known.squares) for profile, known in seen.items()]
            found.setdefault(name, {})[model] = rows
        return found

    def restore(self, memory: Mapping[str, Mapping[str, Iterable[tuple[str, int, float, float]]]]) -> None:
        self._seen = {
            (name, model): {
                profile: Seen(int(runs), float(mean), float(squares)) for profile, runs, mean, squares in rows
            }
            for name, by_model in memory.items()
            for model, rows in by_model.items()
        }

    def recall(self, fingerprint: str, model: GpuModel) -> Mapping[str, Seen]:
        """By profile."""
        return self._seen.get((fingerprint, model.name), {})

    def correct(self, fingerprint: str, model: GpuModel, predicted: Mapping[str, Estimate]) -> dict[str, Estimate]:
        """Predicted speeds by profile, with what was seen in their place."""
        return corrected(model, self.recall(fingerprint, model), predicted)


def corrected(model: GpuModel, seen: Mapping[str, Seen], predicted: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Predicted speeds by profile, with what was seen in their place, as far as that says anything."""
    whole = whole_rate(model, seen, predicted)
    if whole is None:
        return {**predicted}
    rate, reach = whole
    return {**predicted} | {
        profile: _relative(known.mean / rate, reach if known.mean == rate else reach + known.reach)
        for profile, known in seen.items()
    }


def whole_rate(
    model: GpuModel, seen: Mapping[str, Seen], predicted: Mapping[str, Estimate]
) -> tuple[float, float] | None:
    """Batches a second on the whole GPU and how far off that may be; None if nothing follows from what was seen."""
    most = max(profile.slices for profile in model.profiles)
    for profile in model.profiles:
        if profile.slices == most and profile.name in seen:
            return seen[profile.name].mean, 0.0
    both = [(known.mean, predicted[name]) for name, known in seen.items() if name in predicted]
    if len(both) < 2:
        return None
    rate = exp(sum(log(mean / estimate.speed) for mean, estimate in both) / len(both))
    reach = sum((estimate.high - estimate.low) / 2 / estimate.speed for _, estimate in both) / len(both) ** 1.5
    return rate, reach


def _relative(speed: float, reach: float) -> Estimate:
    return Estimate(speed, max(0.0, speed * (1 - reach)), speed * (1 + reach))


def fingerprint(job: Job) -> str | None:
    """What makes two jobs the same work: the workload's name, or else the command; None if neither is known."""
    return job.workload or (" ".join(job.command) or None)
