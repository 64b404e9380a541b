"""MISO's predictor (SoCC'22): from a mix's speeds under MPS to each job's relative speed on every MIG slice.

Two ways, because there are two kinds of job. One of a model that the weights were trained on is recognised by small
networks that look at the whole mix (`net`): mean error of relative latency on 7g, 4g and 3g about 0.015. Any other
follows the smooth trend of what was measured (`trend`): about 0.035. 2g and 1g come from `small`, the 90 % intervals
from errors on what was left out (`intervals`). Weights are for the A100-40GB; docs/predictor.md states the errors in
full, with the command that computes them. Pure: weights are passed in (`work.measured.predictor_weights` reads them).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import base_profiles, find
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.arrays import Floats
from gpuloom.perf.slices.intervals import SLICES, Intervals, crowd_of
from gpuloom.perf.slices.mix import Mix, MpsSpeeds, as_mix, net_inputs
from gpuloom.perf.slices.net import SetNet
from gpuloom.perf.slices.small import SmallSlices
from gpuloom.perf.slices.trend import SoloModel
from gpuloom.perf.speed import Estimate

MEASURED_MODEL = find("A100-40GB")
WHOLE = 7
NET_OUTPUTS = 3
"""Latency on 7g and on 4g relative to 3g, and the solo share (`small`)."""
SLOWEST = 0.01


@dataclass(frozen=True, slots=True)
class SliceSpeeds:
    """One job's predicted speeds relative to the whole GPU."""

    speeds: Mapping[int, Estimate]
    """By compute slices of the base profiles (7, 4, 3, 2, 1); one that is absent lacks the memory."""
    profiles: Mapping[str, Estimate]
    """By name, for every profile of the GPU model that has the memory, variants included."""
    familiar: bool
    """Whether its model is one that the predictor was trained on."""

    def __getitem__(self, slices: int) -> Estimate:
        return self.speeds[slices]


@dataclass(frozen=True, slots=True)
class Familiar:
    """The networks, for jobs of the families that they were trained on; their answers are averaged."""

    nets: SetNet
    mean: Floats
    scale: Floats
    intervals: Intervals
    mae: float
    """Mean error of relative latency of one network on mixes that it left out; the mean of all does better."""

    def __call__(self, mix: Mix) -> Floats:
        """A row of NET_OUTPUTS for each job."""
        return self.nets(((net_inputs(mix) - self.mean) / self.scale).astype(np.float32)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class SlicePredictor:
    """`predict` is all that a policy or a simulator needs."""

    families: frozenset[str]
    """Models that were trained on."""
    solo: SoloModel
    small: SmallSlices
    intervals: Intervals
    """Of jobs of other models."""
    familiar: Familiar | None = None
    """None: every job is treated as one of a model that nobody has measured."""
    model: GpuModel = MEASURED_MODEL

    def __post_init__(self) -> None:
        sizes = {profile.slices for profile in base_profiles(self.model)}
        if sizes != {WHOLE, *SLICES}:
            raise InputError(
                f"{self.model.name} is not cut into 7g, 4g, 3g, 2g and 1g: the predictor knows no other slices"
            )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a file, which calls intervals `spread`; networks in half precision change a speed by less than 0.001."""
        parts: list[tuple[str, Mapping[str, NDArray[Any]]]] = [
            ("solo.", self.solo.to_arrays()),
            ("spread.", self.intervals.to_arrays()),
        ]
        if self.familiar is not None:
            nets = self.familiar.nets
            shape = {"shape": np.array(nets.shape), "weights": nets.weights.astype(np.float16)}
            inputs = {"mean": self.familiar.mean, "scale": self.familiar.scale, "mae": np.array(self.familiar.mae)}
            parts += [("nets.", shape | inputs), ("nets.spread.", self.familiar.intervals.to_arrays())]
        named = {prefix + name: array for prefix, arrays in parts for name, array in arrays.items()}
        return named | {"families": np.array(sorted(self.families)), "small": self.small.coefficients}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], model: GpuModel = MEASURED_MODEL) -> "SlicePredictor":
        def part(prefix: str) -> dict[str, Floats]:
            return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}

        familiar = None
        if "nets.weights" in arrays:
            inputs, width, outputs = map(int, arrays["nets.shape"])
            nets = SetNet(inputs, width, outputs, arrays["nets.weights"].astype(np.float32))
            intervals = Intervals.from_arrays(part("nets.spread."))
            familiar = Familiar(nets, arrays["nets.mean"], arrays["nets.scale"], intervals, float(arrays["nets.mae"]))
        return cls(
            frozenset(map(str, arrays["families"])),
            SoloModel.from_arrays(part("solo.")),
            SmallSlices(arrays["small"]),
            Intervals.from_arrays(part("spread.")),
            familiar,
            model,
        )

    def predict(self, mix: Sequence[MpsSpeeds], gauges: Sequence[MpsSpeeds] = ()) -> list[SliceSpeeds]:
        """In the order of the jobs. `gauges` are the tiny known jobs that ran along on the free seats, if any did."""
        seen = as_mix(mix, gauges)
        familiar = [self.familiar is not None and job.family in self.families for job in mix]
        values = self._values(seen, familiar)
        crowd = crowd_of(seen)
        return [self._answer(job, known, row, crowd) for job, known, row in zip(mix, familiar, values, strict=True)]

    def _values(self, mix: Mix, familiar: Sequence[bool]) -> Floats:
        outputs = np.zeros((mix.size, NET_OUTPUTS))
        if self.familiar is not None and any(familiar):
            outputs = self.familiar(mix)
        if not all(familiar):
            outputs = np.where(np.array(familiar)[:, None], outputs, trend_outputs(self.solo, self.solo.solo(mix)))
        return speeds_from(outputs, self.small)

    def _answer(self, job: MpsSpeeds, familiar: bool, values: Floats, crowd: int) -> SliceSpeeds:
        intervals = self.familiar.intervals if familiar and self.familiar is not None else self.intervals
        every = {WHOLE: Estimate(1.0, 1.0, 1.0)}
        every |= {slices: intervals(crowd, row, float(values[row])) for row, slices in enumerate(SLICES)}
        need_mib = job.mem_mib or 0
        fits = [profile for profile in self.model.profiles if profile.mem_mib >= need_mib]
        base = {profile.slices for profile in base_profiles(self.model) if profile.mem_mib >= need_mib}
        return SliceSpeeds(
            {slices: speed for slices, speed in every.items() if slices in base},
            {profile.name: every[profile.slices] for profile in fits},
            familiar,
        )


def relative_latencies(speeds: Floats) -> Floats:
    """From speeds on SLICES: on 7g, 4g and 3g relative to the largest of the three, as MISO's authors state errors."""
    latencies = np.column_stack([np.ones(len(speeds)), 1.0 / speeds[:, 0], 1.0 / speeds[:, 1]])
    return np.asarray(latencies / latencies.max(axis=1, keepdims=True))


def trend_outputs(model: SoloModel, solo: Floats) -> Floats:
    """NET_OUTPUTS from the solo slowdown."""
    return np.column_stack([model.trend(solo), np.exp(np.minimum(solo, 0.0))])


def speeds_from(outputs: Floats, small: SmallSlices) -> Floats:
    """Speeds on SLICES from (latency on 7g, on 4g, relative to 3g; solo share): a larger slice is never slower."""
    on_7g = np.clip(outputs[:, 0], SLOWEST, 1.0)
    on_4g = np.clip(outputs[:, 1], on_7g, 1.0)
    on_2g, on_1g = small(outputs[:, 2], on_7g)
    return np.column_stack([on_7g / on_4g, on_7g, on_2g, on_1g])
