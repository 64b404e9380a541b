"""What the parts of a self-test share: one GPU that is ours while they run, and when to stop."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpuloom.gpus.host.cutter import CutOutcome, Cutter
from gpuloom.gpus.host.driver import GpuState
from gpuloom.gpus.host.nvml import opened
from gpuloom.gpus.host.selftest.recording import Recorder, answer_or_code
from gpuloom.gpus.model import Layout

LOOK_AGAIN_S = 0.5
LINGERS_AT_MOST_S = 30.0
"""How long a device is waited for after the last process on it has gone."""


class Stopped(Exception):  # noqa: N818 (it is a wish, or a bound that was told)
    """The self-test is to end here; the text says why."""


class NotHere(Exception):  # noqa: N818 (it is a reason, not a fault)
    """This GPU or this host does not have what the part is about; the text says what is missing."""


class Session:
    def __init__(self, cutter: Cutter, gpu: int, nvml: Any, recorder: Recorder, limit_s: float) -> None:
        self.cutter, self.gpu, self.recorder = cutter, gpu, recorder
        self._nvml, self._limit_s = nvml, limit_s
        self._ends_s = time.monotonic() + limit_s
        self.interrupts = 0
        """Set by whoever hears signals."""
        self.stopped: str | None = None
        """Why not all of it was tested."""

    def check(self) -> None:
        """Between any two steps: Stopped if somebody has asked for it, or if it takes too long."""
        if self.stopped is None and self.interrupts:
            self.stopped = "stopped by a signal"
        if self.stopped is None and time.monotonic() > self._ends_s:
            self.stopped = f"stopped: not done within {self._limit_s:g} s"
        if self.stopped is not None:
            raise Stopped(self.stopped)

    @contextmanager
    def asking(self) -> Iterator[tuple[Any, Any]]:
        """NVML and the GPU's handle, for questions that no code of gpuloom asks otherwise."""
        self.check()
        with opened(self._nvml) as nvml:
            yield nvml, nvml.nvmlDeviceGetHandleByIndex(self.gpu)

    def look(self) -> GpuState:
        self.check()
        return self.cutter.look(self.gpu)

    def cut(self, layout: Layout, *, mig: bool = True) -> CutOutcome:
        """Tried again while the driver says that the GPU is in use, as `Cutter` does, but so that it can be stopped."""
        cuts = list[CutOutcome]()

        def is_settled() -> bool:
            cuts.append(self.try_to_cut(layout, mig=mig))
            return not cuts[-1].in_use

        self.wait(is_settled)
        return cuts[-1]

    def try_to_cut(self, layout: Layout, *, mig: bool = True) -> CutOutcome:
        self.check()
        return self.cutter.apply(self.gpu, layout, keep_mig=mig, patience_s=0)

    def see_mig(self) -> GpuState:
        """NotHere if the GPU has none. That it names no profiles while MIG is off says nothing, with an old driver."""
        state = self.look()
        with self.asking() as (nvml, device):
            if answer_or_code(nvml, "nvmlDeviceGetMigMode", device)[1]:
                raise NotHere(f"{state.product} has no MIG")
        return state

    def need_mig(self) -> GpuState:
        """MIG in force, and something that the GPU can be cut into; NotHere otherwise."""
        state = self.look()
        if not state.mig:
            raise NotHere("MIG is off")
        if not state.model.profiles:
            raise NotHere("the driver names no profile")
        return state

    def wait(self, condition: Callable[[], bool]) -> float | None:
        """Seconds until a condition is true, asked every half second; None if it is not while a device may linger."""
        begun_s, since = time.monotonic(), self.recorder.count
        while not condition():
            if time.monotonic() - begun_s > LINGERS_AT_MOST_S:
                return None
            self.check()
            time.sleep(LOOK_AGAIN_S)
            self.recorder.will_repeat(since)
            since = self.recorder.count
        return round(time.monotonic() - begun_s, 2)

    def wait_until_idle(self) -> float | None:
        """Seconds until no process is listed on the GPU any more; None if one stays."""
        with self.asking() as (nvml, device):
            question = "nvmlDeviceGetComputeRunningProcesses_v3"
            return self.wait(lambda: not answer_or_code(nvml, question, device)[0])
