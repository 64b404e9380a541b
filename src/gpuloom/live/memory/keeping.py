"""One run's part in this machine's memory: what it is handed when it begins, what it adds now and then and at its end.

A memory that cannot be used is no reason not to run: that is said once, and the run goes without.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuloom.engine.events import SeenEarlier
from gpuloom.engine.seen import SeenInRun
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.host.nvml import discover
from gpuloom.gpus.model import GpuModel
from gpuloom.live.memory.file import NoMemoryError, add_to_memory, read_memory
from gpuloom.live.store import Run
from gpuloom.perf.slices.earlier import Rate, Row, earlier_of

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody, Settings

EVERY_REAL_S = 600.0
"""Between two times that a run adds what it has seen so far."""


def driver_version(model: GpuModel) -> str | None:
    """Of a CPU device, the kernel's."""
    return os.uname().release if model.noun != "GPU" else discover().driver


def handed_in(run: Run, cluster: Cluster, notice: Callable[[str], None]) -> SeenEarlier | None:
    """What is known of the run's jobs; None if nothing is, or if nobody wants it."""
    if run.memory is None:
        return None
    try:
        rows = read_memory(Path(run.memory))
    except NoMemoryError as reason:
        notice(f"what earlier runs saw is not used: {reason}")
        return None
    models = {gpu.model.name: gpu.model for gpu in cluster.gpus}
    found = earlier_of(rows, run.jobs, models.values(), run.working_dir, run.origin_unix_s)
    workloads = len({one.workload for one in found})
    cause = f"{workloads} workload{'s' * (workloads > 1)}, kept in {run.memory}"
    return SeenEarlier(0.0, cause, found) if found else None


def rows_of(seen: SeenInRun, run: Run, driver: str | None) -> list[Row]:
    """As the file has them: in real seconds."""
    return [
        Row(
            key.workload,
            key.model,
            f"run {run.origin_unix_s!r} {run.gpus[0]}",
            run.origin_unix_s + seen.at_s[key] / run.pace,
            None if key.is_name else run.working_dir,
            driver=driver,
            pace=run.pace,
            rates={profile: Rate(one.steps_per_s * run.pace, one.observations) for profile, one in rates.items()},
        )
        for key, rates in seen.rates.items()
    ]


class Keeper:
    """Adds what a run has seen so far to its memory. Without one (None) it does nothing."""

    def __init__(self, memory: str | None, notice: Callable[[str], None]) -> None:
        self._memory, self._notice = memory, notice
        self._kept_real_s = time.monotonic()
        self._gave_up = False

    def now_and_then(self, body: "LocalBody") -> None:
        if time.monotonic() - self._kept_real_s >= EVERY_REAL_S:
            self.keep(body)

    def keep(self, body: "LocalBody") -> None:
        self._kept_real_s = time.monotonic()
        run = body.store.run()
        if self._memory is None or run is None or not body.seen.rates:
            return
        rows = rows_of(body.seen, run, driver_version(body.engine.state.cluster.gpus[0].model))
        try:
            add_to_memory(Path(self._memory), rows)
        except NoMemoryError as reason:
            if not self._gave_up:
                self._notice(f"what this run sees is not kept for later ones: {reason}")
            self._gave_up = True


def kept_by(keeper: Keeper, settings: "Settings") -> "Settings":
    """The same settings, under which the keeper looks in after every round."""
    look = settings.look

    def both(body: "LocalBody") -> None:
        keeper.now_and_then(body)
        if look is not None:
            look(body)

    return replace(settings, look=both)
