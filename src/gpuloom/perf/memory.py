"""What was seen beats what was predicted: the speeds that workloads really had on slices, by fingerprint and profile.

A running mean with its spread for each (fingerprint, profile). The 90 % interval shrinks with the root of the number of
runs; until runs say more, they are taken to differ by 3 %, which is an assumption, not a measurement. One memory is for
one GPU model. Knows no file and no clock: `rows` gives it all as plain data, and `from_rows` takes it back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.slices import SliceSpeeds, Speed
from gpuloom.work.model import Job

RUN_SPREAD = 0.03
"""Standard deviation of one run's speed, before runs say more; counts as PRIOR_RUNS runs."""
PRIOR_RUNS = 2.0
NINETY_PCT = 1.645
FASTEST = 10.0
"""A speed above this many whole GPUs is a wrong unit."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Runs of one workload on one profile."""

    runs: int
    mean: float
    squares: float
    """Sum of squared distances from the mean (Welford)."""

    def with_run(self, speed: float) -> "Seen":
        runs = self.runs + 1
        mean = self.mean + (speed - self.mean) / runs
        return Seen(runs, mean, self.squares + (speed - self.mean) * (speed - mean))

    @property
    def speed(self) -> Speed:
        variance = (PRIOR_RUNS * RUN_SPREAD**2 + self.squares) / (PRIOR_RUNS + self.runs - 1)
        reach = NINETY_PCT * sqrt(variance / self.runs)
        return Speed(self.mean, max(0.0, self.mean - reach), self.mean + reach)


class SpeedMemory:
    """Remembers what it is told, and puts it in the place of predictions."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Seen] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def observe(self, fingerprint: str, profile: str, speed: float) -> None:
        """A real run: speed on that profile relative to the whole GPU."""
        if not (isfinite(speed) and 0.0 < speed <= FASTEST):
            raise ValueError(f"the speed of {fingerprint} on {profile} is {speed}, but must be from 0 to {FASTEST:g}")
        before = self._seen.get((fingerprint, profile), Seen(0, 0.0, 0.0))
        self._seen[fingerprint, profile] = before.with_run(speed)

    def recall(self, fingerprint: str, profile: str) -> Seen | None:
        return self._seen.get((fingerprint, profile))

    def correct(self, fingerprint: str, predicted: SliceSpeeds, model: GpuModel) -> SliceSpeeds:
        """The prediction, with what was seen in its place; a slice it ran on has the memory, whatever was predicted."""
        seen = {
            profile.name: known.speed
            for profile in model.profiles
            if (known := self._seen.get((fingerprint, profile.name))) is not None
        }
        if not seen:
            return predicted
        by_slices = {profile.slices: seen[profile.name] for profile in base_profiles(model) if profile.name in seen}
        return replace(predicted, speeds={**predicted.speeds, **by_slices}, profiles={**predicted.profiles, **seen})

    def rows(self) -> list[dict[str, Any]]:
        """Everything, as plain data."""
        return [
            {"fingerprint": key[0], "profile": key[1], "runs": seen.runs, "mean": seen.mean, "squares": seen.squares}
            for key, seen in self._seen.items()
        ]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "SpeedMemory":
        memory = cls()
        for row in rows:
            seen = Seen(int(row["runs"]), float(row["mean"]), float(row["squares"]))
            memory._seen[str(row["fingerprint"]), str(row["profile"])] = seen
        return memory


def fingerprint(job: Job) -> str | None:
    """What makes two jobs the same work: the workload's name, or else the command; None if neither is known."""
    return job.workload or (" ".join(job.command) or None)
