"""Which counters there are for a device, opened once for a campaign: on GPUs NVML's, on CPU devices the kernel's.

How busy a GPU is, NVML tells from Hopper on; for others a host engine of DCGM, if one runs already.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from gpuloom.gpus.host.cgroups import Group
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.dcgm.dmon import device_of
from gpuloom.gpus.host.dcgm.engine import Engine, NoEngine, find_engine
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.nvml import opened
from gpuloom.gpus.model import Instance
from gpuloom.live.devices import insist
from gpuloom.measure.campaign.activity import Counter
from gpuloom.measure.campaign.counters import EVERY_S, OfCopy, OfGpu
from gpuloom.measure.campaign.dcgm import Dcgm
from gpuloom.measure.steps import Window

LET_GO_S = 0.5
"""For an engine to let go of an instance that nobody watches any more, before that is cut away."""
DAY_S = 86400.0


class Watched:
    """What is counted of one copy."""

    def __init__(self, host: OfCopy, activity: Counter | None) -> None:
        self._host, self._activity = host, activity

    def look(self, now_s: float) -> None:
        self._host.look(now_s)
        if self._activity is not None:
            self._activity.look(now_s)

    def figures(self, within: Window | None) -> dict[str, Any]:
        found: dict[str, Any] = self._host.figures(within)
        return found if self._activity is None else found | asdict(self._activity.figures(within))


@dataclass(frozen=True, slots=True)
class Busy:
    """Who tells how busy the GPU is."""

    says: str
    """In words, for whoever reads the figures."""
    engine: Engine | None = None
    """None: NVML, or nobody."""


class Counting:
    """Of one device. `gpu`: None on a CPU device."""

    every_s = EVERY_S

    def __init__(
        self,
        gpu: OfGpu | None = None,
        instance_id: Callable[[Instance], int | None] = lambda _: None,
        busy: Busy | None = None,
        most_s: float = DAY_S,
    ) -> None:
        """`most_s`: no run is longer."""
        self._gpu, self._instance_id, self._busy, self._most_s = gpu, instance_id, busy, most_s
        self._open: dict[int | None, Counter] = {}
        """By the number of the instance: copies that share one share its counter."""

    @property
    def says(self) -> str | None:
        """Who tells how busy the device is; None: on a CPU device nobody could."""
        return None if self._busy is None else self._busy.says

    def watch(self, group: Group | None, uuid: str, instance: Instance | None, *, sole: bool) -> Watched:
        """`uuid`: of what the copy has; `sole`: nobody else is on the GPU."""
        gpu = self._gpu
        if gpu is None:
            return Watched(OfCopy(group, None), None)
        if instance is not None or sole:
            device_mib: Callable[[], float | None] = partial(gpu.used_mib, uuid)
        else:
            device_mib = partial(gpu.used_by_mib, group.processes if group is not None else list)
        number = None if instance is None else self._instance_id(instance)
        told = instance is None or number is not None
        return Watched(OfCopy(group, device_mib), self._counter(gpu, number) if told else None)

    def _counter(self, gpu: OfGpu, number: int | None) -> Counter:
        if number not in self._open:
            engine = None if self._busy is None else self._busy.engine
            self._open[number] = (
                gpu.activity(number) if engine is None else Dcgm(engine, device_of(gpu.uuid, number), self._most_s)
            )
        return self._open[number]

    def let_go(self) -> float:
        """Of what was watched, which is still told afterwards. When the device is free of us, by the same clock."""
        for counter in self._open.values():
            counter.close()
        watched = bool(self._open) and self._busy is not None and self._busy.engine is not None
        self._open.clear()
        return time.monotonic() + (LET_GO_S if watched else 0.0)

    def look(self, now_s: float) -> None:
        if self._gpu is not None:
            self._gpu.look(now_s)

    def figures(self, within: Window | None) -> dict[str, Any]:
        """The same for all copies of a run."""
        return {} if self._gpu is None else asdict(self._gpu.figures(within))


@contextmanager
def counting_on(cutter: Cutter, host: int, most_s: float) -> Iterator[Counting]:
    """Of this device of the cutter's; no run is longer than `most_s`."""
    state = insist(partial(cutter.look, host))
    if state.model.noun != "GPU":
        yield Counting()
        return
    with opened() as nvml:

        def number(instance: Instance) -> int | None:
            with suppress(StepFailed):
                parts = insist(partial(cutter.look, host)).parts
                return next((part.gi_id for part in parts if part.instance == instance), None)
            return None

        gpu = OfGpu(nvml, state.uuid)
        counting = Counting(gpu, number, who_tells(gpu), most_s)
        try:
            yield counting
        finally:
            counting.let_go()


def who_tells(gpu: OfGpu) -> Busy:
    if gpu.activity(None).here:
        return Busy("NVML's GPM")
    try:
        engine = find_engine()
    except NoEngine as reason:
        return Busy(f"none: no GPM on this GPU, and of DCGM {reason}")
    if gpu.uuid not in engine.gpus:
        return Busy(f"none: no GPM on this GPU, and DCGM's host engine at {engine.address} does not know it")
    return Busy(f"DCGM's host engine at {engine.address}", engine)
