"""The measured world of slices and shares: how fast a workload really runs on a part of a GPU, or on whole GPUs.

Measured: relative speed of each workload on each slice of an A100-40GB, out of memory included. Derived, and said so
here: other GPU models by the share of SMs, MPS shares by the share of SMs less 15 % for each neighbour (MISO's own
penalty), a workload that nobody measured by the mean of those measured.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpuloom.contract.view import Estimates, Report
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel
from gpuloom.sim.costs import Costs
from gpuloom.sim.worlds.probes import Prober
from gpuloom.work.measured.figures import Figures, WorkloadFigures
from gpuloom.work.model import Hints, Kind, TraceJob

MEASURED_MODEL = find("A100-40GB")
NEIGHBOUR_PENALTY = 0.85
"""What is left of a job's speed for each other job that shares its device under MPS."""

SpeedCurve = tuple[tuple[float, float], ...]
"""(share of the GPU's compute, relative speed), increasing; straight lines between, from the origin."""


class SliceWorld:
    quantum_s: float | None = None
    report_every_s: float | None = None

    def __init__(self, figures: Figures, cluster: Cluster, costs: Costs, make_prober: Callable[[], Prober]) -> None:
        self._make_prober = make_prober
        self.figures = figures
        self.cluster = cluster
        self.costs = costs
        self.models = {gpu.model.name: gpu.model for gpu in cluster.gpus}
        self._mean_curve = _mean_curve([_curve(workload.speeds) for workload in figures.workloads.values()])
        self._speeds: dict[tuple[str | None, str], Mapping[str, float]] = {}

    @cached_property
    def prober(self) -> Prober:
        """Made when the first probe is: most policies never do."""
        return self._make_prober()

    def admit(self, entry: TraceJob) -> "SliceRun":
        return SliceRun(self, entry)

    def measured(self, entry: TraceJob) -> WorkloadFigures | None:
        return self.figures.workloads.get(entry.job.workload or "")

    def curve(self, entry: TraceJob) -> SpeedCurve:
        workload = self.measured(entry)
        return self._mean_curve if workload is None else _curve(workload.speeds)

    def speeds(self, entry: TraceJob, model: GpuModel) -> Mapping[str, float]:
        """True speed on each profile of this GPU model, without those that lack the memory."""
        key = (entry.job.workload, model.name)
        if key not in self._speeds:
            self._speeds[key] = self._all_speeds(entry, model)
        need_mib = entry.job.mem_mib or 0
        by_name = model.by_name
        return {name: speed for name, speed in self._speeds[key].items() if by_name[name].mem_mib >= need_mib}

    def _all_speeds(self, entry: TraceJob, model: GpuModel) -> Mapping[str, float]:
        workload, curve = self.measured(entry), self.curve(entry)
        if workload is not None and model.name == MEASURED_MODEL.name:
            return workload.speeds
        fits_mib = workload.mem_mib if workload is not None else 0
        most = max((profile.slices for profile in model.profiles), default=1)
        return {
            profile.name: speed_at(curve, profile.slices / most)
            for profile in model.profiles
            if profile.mem_mib >= fits_mib
        }

    def hints(self, entry: TraceJob) -> Hints:
        if entry.job.kind is not Kind.SLICEABLE:
            return Hints(length_s=self.alone_s(entry))
        speeds = {name: dict(self.speeds(entry, model)) for name, model in self.models.items() if model.mig}
        return Hints(length_s=self.alone_s(entry), speeds=speeds)

    def probe(self, entries: Sequence[TraceJob], model: GpuModel) -> dict[str, Estimates]:
        predicted = self.prober.predict(entries, [self.speeds(entry, model) for entry in entries])
        return {entry.job.id: estimates for entry, estimates in zip(entries, predicted, strict=True)}

    def alone_s(self, entry: TraceJob) -> float:
        assert entry.length_s is not None, "the reader of a trace gives every job of this world a length"
        return entry.length_s

    def single_gpu_s(self, entry: TraceJob) -> float:
        return self.alone_s(entry) * entry.job.gpus

    def start_s(self, entry: TraceJob, resumed: bool) -> float:
        if not resumed:
            return self.costs.start_s
        if self.costs.restart_s is not None:
            return self.costs.restart_s
        workload = self.measured(entry)
        return self.costs.start_s if workload is None else workload.restart_s


@dataclass(slots=True)
class SliceRun:
    """A job whose work is the seconds it would need alone on what it asks for."""

    world: SliceWorld
    entry: TraceJob
    told: Report | None = None
    """What it told when it started on what it has."""

    def start(self, now_s: float, grants: Grants) -> Report | None:
        """A job of a measured workload that has a device for itself soon knows how many batches a second it does."""
        workload = self.world.measured(self.entry)
        self.told = None
        if workload is not None and len(grants) == 1 and grants[0].share_pct >= 100:
            self.told = Report(now_s, batches_per_s=self._speed(grants[0]) / workload.batch_s)
        return self.told

    def rate(self, grants: Grants, beside: Sequence[Grant]) -> float:
        slowest = min([self._speed(grant) for grant in grants])
        return slowest * len(grants) / self.entry.job.gpus * NEIGHBOUR_PENALTY ** len(beside)

    def _speed(self, grant: Grant) -> float:
        model = self.world.cluster.gpus[grant.gpu].model
        if grant.instance is None:
            workload = self.world.measured(self.entry)
            if workload is not None and workload.mem_mib > model.mem_mib:
                return 0.0  # out of memory
            return 1.0 if grant.share_pct >= 100 else speed_at(self.world.curve(self.entry), grant.share_pct / 100)
        speed = self.world.speeds(self.entry, model).get(grant.instance.profile, 0.0)
        return speed * grant.share_pct / 100

    def mark(self) -> float:
        return self.world.alone_s(self.entry)

    def reach_mark(self, now_s: float, grants: Grants) -> tuple[bool, Report | None]:  # noqa: ARG002
        return True, None

    def rewind(self, done: float) -> None:
        """Its only mark is its end: there is nothing to go back to."""

    def report(self, now_s: float, done: float) -> Report | None:  # noqa: ARG002 - it does not say how far it is
        return None if self.told is None else replace(self.told, at_s=now_s)

    def tried(self) -> float:
        return 0.0


def _curve(speeds: Mapping[str, float]) -> SpeedCurve:
    """Measured points by share of compute; 3g and 4g differ in compute, so each measured slice is its own point."""
    most = max(profile.slices for profile in MEASURED_MODEL.profiles)
    slices = {name: MEASURED_MODEL.by_name[name].slices for name in speeds}
    return ((0.0, 0.0), *sorted((slices[name] / most, speed) for name, speed in speeds.items()))


def _mean_curve(curves: list[SpeedCurve]) -> SpeedCurve:
    shares = sorted({share for curve in curves for share, _ in curve})
    return tuple((share, sum(speed_at(curve, share) for curve in curves) / len(curves)) for share in shares)


def speed_at(curve: SpeedCurve, share: float) -> float:
    above = bisect_left(curve, (share, 0.0))
    if above >= len(curve):
        return curve[-1][1]
    if curve[above][0] == share or above == 0:
        return curve[above][1]
    (x0, y0), (x1, y1) = curve[above - 1], curve[above]
    return y0 + (y1 - y0) * (share - x0) / (x1 - x0)
