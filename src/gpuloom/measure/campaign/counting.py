"""Which counters there are for a device, opened once for a campaign: on GPUs NVML's, on CPU devices the kernel's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuloom.gpus.host.cgroups import Group
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.nvml import opened
from gpuloom.gpus.model import Instance
from gpuloom.live.devices import insist
from gpuloom.measure.campaign.counters import EVERY_S, OfCopy, OfGpu
from gpuloom.measure.campaign.gpm import Gpm
from gpuloom.measure.steps import Window


class Watched:
    """What is counted of one copy."""

    def __init__(self, host: OfCopy, activity: Gpm | None) -> None:
        self._host, self._activity = host, activity

    def look(self, now_s: float) -> None:
        self._host.look(now_s)
        if self._activity is not None:
            self._activity.look(now_s)

    def figures(self, within: Window | None) -> dict[str, Any]:
        found: dict[str, Any] = self._host.figures(within)
        if self._activity is None:
            return found
        self._activity.close()
        return found | asdict(self._activity.figures(within))


class Counting:
    """Of one device. `gpu`: None on a CPU device."""

    every_s = EVERY_S

    def __init__(
        self, gpu: OfGpu | None = None, instance_id: Callable[[Instance], int | None] = lambda _: None
    ) -> None:
        self._gpu, self._instance_id = gpu, instance_id

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
        return Watched(OfCopy(group, device_mib), gpu.activity(number) if told else None)

    def look(self, now_s: float) -> None:
        if self._gpu is not None:
            self._gpu.look(now_s)

    def figures(self, within: Window | None) -> dict[str, Any]:
        """The same for all copies of a run."""
        return {} if self._gpu is None else asdict(self._gpu.figures(within))


@contextmanager
def counting_on(cutter: Cutter, host: int) -> Iterator[Counting]:
    """Of this device of the cutter's."""
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

        yield Counting(OfGpu(nvml, state.uuid), number)
