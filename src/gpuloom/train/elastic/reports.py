"""How long steps take, and what is told to whoever runs the job: through gpuloom.train.report, a few times a second."""

import time
from typing import Any

import torch

from gpuloom.train.elastic.state import At
from gpuloom.train.job import report

EVERY_S = 0.5
SMOOTH = 0.9


class Stopwatch:
    """Seconds of a step, and of what a worker computes in it without waiting for the others. Running means."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.step_s: float | None = None
        self.compute_s: float | None = None
        self._reported_at = 0.0
        self._begun: Any = None
        self._computed: Any = None

    def begin(self) -> None:
        self._begun = (time.monotonic(), self._mark())

    def computed(self) -> None:
        """The last backward pass was called; on a GPU it may still run, so an event is left behind it."""
        self._computed = (time.monotonic(), self._mark())

    def end(self) -> None:
        """The step was applied, and on a GPU waited for."""
        compute = self._computed[0] - self._begun[0]
        if self._cuda:
            compute = self._begun[1].elapsed_time(self._computed[1]) / 1000
        self.step_s = _smooth(self.step_s, time.monotonic() - self._begun[0])
        self.compute_s = _smooth(self.compute_s, compute)

    def due(self) -> bool:
        """Whether it is time to say something."""
        now = time.monotonic()
        if now - self._reported_at < EVERY_S:
            return False
        self._reported_at = now
        return True

    def _mark(self) -> Any:
        if not self._cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _smooth(mean: float | None, value: float) -> float:
    return value if mean is None else SMOOTH * mean + (1 - SMOOTH) * value


def report_progress(
    at: At, watch: Stopwatch, loss: float, metric: float | None, workers: int, local_batch: int, accumulation: int
) -> None:
    """Flat figures; one that is not known yet is left out."""
    known = {
        "metric": metric, "step_s": watch.step_s, "compute_s": watch.compute_s, "grad_sqr": at.noise.sqr,
        "grad_var": at.noise.var,
    }  # fmt: skip
    report(
        at.step,
        epoch=float(at.epoch),
        progress=at.progress,
        samples=float(at.visited),
        loss=loss,
        batch=float(at.batch),
        local_batch=float(local_batch),
        accumulation=float(accumulation),
        workers=float(workers),
        nodes=1.0,
        **{name: value for name, value in known.items() if value is not None},
    )
