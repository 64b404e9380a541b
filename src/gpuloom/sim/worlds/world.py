"""The measured world: what truly happens to a job on what it holds. Policies see only the `Hints` it gives of itself.

A job's life is a row of marks (an epoch's end, its own end). Between two marks its rate on given grants, beside given
neighbours, is constant; so the simulator jumps from mark to mark and never steps through time.
"""

from collections.abc import Sequence
from typing import Protocol

from gpuloom.contract.view import Estimates, Report
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel
from gpuloom.work.model import Hints, TraceJob


class JobRun(Protocol):
    """One job in the measured world. Work is counted in the world's own unit; the body keeps count of what is done."""

    def start(self, now_s: float, grants: Grants) -> Report | None:
        """Its processes begin to work on these grants; returns what the job then tells the scheduler, if anything."""

    def rate(self, grants: Grants, beside: Sequence[Grant]) -> float:
        """Work done per second on these grants, with these grants of other running jobs on the same devices."""

    def mark(self) -> float:
        """The amount of work at which the rate changes next or the job ends."""

    def reach_mark(self, now_s: float, grants: Grants) -> tuple[bool, Report | None]:
        """The mark is reached: is the job complete, and what does it tell?"""

    def rewind(self, done: float) -> None:
        """Whatever it did beyond this amount of work is lost."""

    def report(self, now_s: float, done: float) -> Report | None:
        """What it tells between two marks, with so much work done. Asked for only where `report_every_s` says so."""

    def tried(self) -> float:
        """Work that it would have done, had it not tried out other batches first, at its last start or mark."""


class World(Protocol):
    quantum_s: float | None
    """Marks are reached at whole multiples of this (rounded half to even); None for exact times."""

    report_every_s: float | None
    """Working jobs report so often, besides at marks; None: never."""

    def admit(self, entry: TraceJob) -> JobRun: ...

    def hints(self, entry: TraceJob) -> Hints:
        """The whole truth about a job; the simulator passes on only the fields that the policy may be told."""

    def probe(self, entries: Sequence[TraceJob], model: GpuModel) -> dict[str, Estimates]:
        """What measuring these jobs side by side under MPS predicts of each, on each profile of this GPU model."""

    def alone_s(self, entry: TraceJob) -> float:
        """How long it takes alone, on what it asks for: the yardstick of slowdown."""

    def single_gpu_s(self, entry: TraceJob) -> float:
        """Its work as seconds of one whole GPU: the yardstick of system throughput (STP)."""

    def start_s(self, entry: TraceJob, resumed: bool) -> float:
        """Seconds from the start instruction until it works: process start, or restart from a checkpoint."""
