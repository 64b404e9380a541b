"""Measured services as an interference model: the world that a plan is checked in, not what a planner believes.

Measured: latency alone by batch and share (a table for each model; below and above its shares it goes on as the fitted
curve does), and the slowdown beside others by gpu-lets' regression on *measured* use of L2 and memory, fitted to the
measured pairs. Nobody has measured more than two models, or two copies of one, side by side: there uses add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.gpulets import GpuletsModel, fit_gpulets, measured_services
from gpuloom.perf.sharing.interference import Crowd, Latencies
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.perf.sharing.pairs import Pairs
from gpuloom.work.measured.service_pairs import MeasuredServices


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """What was measured, as far as it was."""

    alone: SharingModel
    """With the measured tables: asked only for services that are alone."""
    beside: GpuletsModel
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.alone.names)

    def latencies(self, crowd: Crowd) -> Latencies:
        shape = crowd.model.shape
        each = Crowd(crowd.model.reshape(-1, 1), crowd.batch.reshape(-1, 1), crowd.share_pct.reshape(-1, 1))
        solo = self.alone.latencies(each)
        index_beside = {name: index for index, name in enumerate(self.beside.names)}
        column = np.array([*(index_beside[name] for name in self.names), -1])[crowd.model]
        known = Crowd(column, crowd.batch, crowd.share_pct)
        slowdown = self.beside.latencies(known).total_ms / GpuletsModel(self.beside.services).latencies(known).total_ms
        slowdown = np.maximum(slowdown, 1.0)
        load, gpu, feedback = (part.reshape(shape) for part in (solo.load_ms, solo.gpu_ms, solo.feedback_ms))
        total = (load + gpu + feedback) * slowdown
        return Latencies(load, total - load - feedback, feedback, total, total)


def measured_tables(measured: MeasuredServices) -> dict[str, AloneTable]:
    return {name: AloneTable.of(solo, monotone=True) for name, solo in measured.solo_ms.items()}


def measured_model(measured: MeasuredServices, figures: Mapping[str, Any]) -> MeasuredModel:
    """Of the models whose latency alone and uses were measured, and that the figures know.

    `figures` are those that ship: how bytes and time go together, and the curves beyond the tables' edges.
    """
    services = measured_services(measured)
    pairs = Pairs.of(measured.pairs, tuple(services))
    beside = fit_gpulets(services, pairs.crowd, pairs.measured_ms)
    known = {name: traits for name, traits in figures["services"].items() if name in services}
    tables = {name: table for name, table in measured_tables(measured).items() if name in known}
    return MeasuredModel(SharingModel.from_figures({**figures, "services": known}, tables), beside)
