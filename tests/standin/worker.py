"""A process that has the stand-in loaded and does what it is told: a JSON object on each line in, one on each line out.

Tests need such processes because the loader finds `libnvidia-ml.so.1` by the environment that a process starts with.
Each command opens gpuloom's own code anew, as a command of the command line would, unless it is `hold`.
"""

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from gpuloom.gpus.host.cutter import CutOutcome, Cutter
from gpuloom.gpus.host.driver import GpuState, StepFailed
from gpuloom.gpus.host.mig import NvmlDriver, nvml_driver
from gpuloom.gpus.host.nvml import NoDriver, opened
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.model import Instance, Layout

held = ExitStack()
kept: list[Cutter] = []


def cutter(order: dict[str, Any]) -> Cutter:
    return Cutter(partial(nvml_driver, root=Path(order.get("root", "/nonexistent"))))


def shown(cut: CutOutcome) -> dict[str, Any]:
    return {
        "layout": cut.layout,
        "before": cut.before,
        "mig": cut.mig,
        "uuids": {str(instance): uuid for instance, uuid in cut.uuids.items()},
        "half_made": cut.half_made,
        "reason": cut.reason,
        "reached": cut.reached,
    }


def chosen(order: dict[str, Any], state: GpuState) -> Layout:  # noqa: ARG001
    """The target; before it is gone for, a file gets another name."""
    if "rename" in order:
        Path(order["rename"][0]).rename(order["rename"][1])
    return tuple(sorted(Instance(start, profile) for start, profile in order["target"]))


class Visited(NvmlDriver):
    looked = 0

    def why_not_ours(self, gpu: int) -> str | None:
        """Asked first when it is taken, and then when all has been read back."""
        self.looked += 1
        if self.looked == 2:
            state = self.look(gpu)
            for part in state.parts:
                self.destroy(state, part)
        return super().why_not_ours(gpu)


@contextmanager
def visited() -> Iterator[Visited]:
    with opened() as nvml:
        pass
    yield Visited(nvml, Path("/nonexistent"))


def create_each(gpu: int, instances: list[tuple[int, int, int]]) -> list[bool]:
    accepted = []
    with opened() as nvml:
        device = nvml.nvmlDeviceGetHandleByIndex(gpu)
        for nvml_id, start, size in instances:
            place = nvml.c_nvmlGpuInstancePlacement_t(start, size)
            try:
                nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, nvml_id, ctypes.byref(place))
            except nvml.NVMLError:
                accepted.append(False)
            else:
                accepted.append(True)
    return accepted


def take_away(gpu: int) -> list[str]:
    with cutter({}) as hands, hands.driver.awake():
        for part in hands.look(gpu).parts:
            with suppress(StepFailed):
                hands.driver.destroy(hands.look(gpu), part)
                return [str(part.instance)]
    return []


def obey(order: dict[str, Any]) -> dict[str, Any]:
    gpu, patience_s = order.get("gpu", 0), order.get("patience_s", 0.0)
    match order["do"]:
        case "apply":
            target = tuple(sorted(Instance(start, profile) for start, profile in order["target"]))
            with cutter(order) as hands:
                return shown(hands.apply(gpu, target, keep_mig=order.get("keep_mig", False), patience_s=patience_s))
        case "leave":
            with cutter(order) as hands:
                return shown(hands.leave(gpu, patience_s))
        case "look":
            with cutter(order) as hands:
                state = hands.look(gpu)
            profiles = [(profile.name, profile.nvml_id, profile.starts) for profile in state.model.profiles]
            model = {"name": state.model.name, "units": state.model.units, "profiles": profiles}
            running = [(process.pid, process.name, process.instance) for process in state.processes]
            return {"layout": state.layout, "mig": state.mig, "model": model, "processes": running}
        case "same-model":
            from gpuloom.gpus.catalogue import MODELS

            with cutter(order) as hands:
                return {"same": [hands.look(gpu).model is MODELS.get(name) for gpu, name in enumerate(order["names"])]}
        case "managed":
            with cutter(order) as hands:
                return {"reason": hands.managed(gpu)}
        case "hold":  # and stay open: try to take each of these GPUs
            held.enter_context(hands := cutter(order))
            kept.append(hands)
            taken = []
            for each in order["gpus"]:
                with suppress(Refused):
                    hands.take(each)
                    taken.append(each)
            return {"taken": taken}
        case "held-apply":  # by one that stays open
            return shown(kept[-1].apply(gpu, partial(chosen, order)))
        case "visited-apply":  # somebody takes its instances away as soon as it has looked whether they are there
            with Cutter(visited) as hands:
                return shown(hands.apply(gpu, partial(chosen, order)))
        case "watch":  # be a client of the driver, and stay one
            held.enter_context(opened())
            return {}
        case "split":
            with opened() as nvml:
                device, place = nvml.nvmlDeviceGetHandleByIndex(gpu), nvml.c_nvmlGpuInstancePlacement_t(4, 4)
                made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, 9, ctypes.byref(place))
                for profile in order.get("computes", [0]):
                    nvml.nvmlGpuInstanceCreateComputeInstance(made, profile)
            return {}
        case "health":
            with cutter(order) as hands:
                return asdict(hands.driver.health(gpu))
        case "take-away":  # past gpuloom: an instance that nobody is on
            return {"taken": take_away(gpu)}
        case "create":  # each in turn, past gpuloom: what does the driver accept?
            return {"accepted": create_each(gpu, order["instances"])}
        case "calls":
            return {"calls": ctypes.CDLL("libnvidia-ml.so.1").standinCalls()}
    raise ValueError(order["do"])


def main() -> None:
    # On a machine with real GPUs: never touch them, whatever went wrong with the environment.
    assert hasattr(ctypes.CDLL("libnvidia-ml.so.1"), "standinUse")
    for line in sys.stdin:
        order = json.loads(line)
        os.environ["GPULOOM_STANDIN_FAULTS"] = order.get("faults", "")
        os.environ["GPULOOM_STANDIN_USER"] = order.get("user", "root")
        if order["do"] != "calls":
            ctypes.CDLL("libnvidia-ml.so.1").standinBegin()
        try:
            answer = obey(order)
        except (Refused, NoDriver) as reason:
            answer = {"refused": str(reason)}
        except StepFailed as reason:
            answer = {"failed": str(reason)}
        print(json.dumps(answer), flush=True)


main()
