"""Elastic jobs and jobs on slices in one run: each job lives in its own measured world, on the same GPUs.

Who is elastic, or has no length but that of the tables of its workload, lives in the elastic world; all others in that
of slices. The tables were measured on other GPUs than the slices were: each kind's speeds are relative to its own whole
GPU, and times of the two kinds are comparable in that sense only.
"""

from collections.abc import Sequence

from gpuloom.contract.view import Estimates
from gpuloom.gpus.model import GpuModel
from gpuloom.sim.worlds.elastic import ElasticWorld
from gpuloom.sim.worlds.slices import SliceWorld
from gpuloom.sim.worlds.world import JobRun, World
from gpuloom.work.model import Hints, Kind, TraceJob


class MixedWorld:
    def __init__(self, elastic: ElasticWorld, slices: SliceWorld) -> None:
        self._elastic, self._slices = elastic, slices
        self.quantum_s = elastic.quantum_s
        self.report_every_s = elastic.report_every_s

    def of(self, entry: TraceJob) -> World:
        tabled = entry.job.kind is Kind.ELASTIC or entry.length_s is None
        return self._elastic if tabled else self._slices

    def admit(self, entry: TraceJob) -> JobRun:
        return self.of(entry).admit(entry)

    def hints(self, entry: TraceJob) -> Hints:
        return self.of(entry).hints(entry)

    def probe(self, entries: Sequence[TraceJob], model: GpuModel) -> dict[str, Estimates]:
        """Only jobs on slices sit side by side."""
        return self._slices.probe(entries, model)

    def alone_s(self, entry: TraceJob) -> float:
        return self.of(entry).alone_s(entry)

    def single_gpu_s(self, entry: TraceJob) -> float:
        return self.of(entry).single_gpu_s(entry)

    def start_s(self, entry: TraceJob, resumed: bool) -> float:
        return self.of(entry).start_s(entry, resumed)
