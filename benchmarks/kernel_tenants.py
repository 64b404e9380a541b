"""A process with tenants for kernel_sharing.py: makes networks, serves requests and runs jobs as it is told.

The device's worker thread lives on the first core, the host's threads on the last: the device is one core, and no host
steals it.
"""

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kernel_tinygrad

CORES = sorted(os.sched_getaffinity(0))


class Tenants:
    def __init__(self) -> None:
        from gpuloom.kernels.opencl import Device

        os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"
        sys.setswitchinterval(1e-4)
        os.sched_setaffinity(0, CORES[:1])
        self.device = Device()
        self.networks: dict[str, Any] = {}
        self._warm()
        os.sched_setaffinity(0, CORES[-1:])
        self._jobs: dict[str, threading.Thread] = {}
        self._finished: dict[str, list[int]] = {}

    def _warm(self) -> None:
        """The runtime starts its worker with the first command: here, where the affinity is still the device's."""
        from gpuloom.kernels.opencl import Queue

        queue = Queue(self.device)
        queue.finish()
        queue.release()

    def make(
        self, tenant: str, network: str, batch: int, priority: int, profile: str | None = None
    ) -> dict[str, object]:
        from gpuloom.kernels import networks
        from gpuloom.kernels.core import load

        source: Any = kernel_tinygrad if network in kernel_tinygrad.NETWORKS else networks
        queue = source.Queue(self.device)
        if os.environ.get("GPULOOM_KERNELS_REGION"):
            core = load()
            core.gpuloom_queue_priority(queue.handle, priority)
            if profile:
                core.gpuloom_queue_profile(queue.handle, profile.encode())
        made = source.Network(self.device, queue, network, batch)
        for _ in range(3):
            made.infer()
        self.networks[tenant] = made
        return {"device": self.device.name, "launches": made.steps * (len(made.layers) + 2)}

    def drop(self, tenant: str) -> dict[str, object]:
        self.networks.pop(tenant).queue.release()
        return {}

    def serve(self, tenant: str, pauses_ms: list[float]) -> dict[str, object]:
        network = self.networks[tenant]
        latencies = []
        for pause in pauses_ms:
            time.sleep(pause / 1e3)
            began = time.monotonic_ns()
            network.infer()
            latencies.append((time.monotonic_ns() - began) / 1e6)
        return {"latencies_ms": latencies, "ended_ns": time.monotonic_ns()}

    def start(self, tenant: str, inferences: int | None, ahead: int) -> dict[str, object]:
        """A job in the background, that launches so many inferences before it waits; None: until `join`."""
        self._finished[tenant] = finished = []
        self._stop = threading.Event()

        def work() -> None:
            network = self.networks[tenant]
            done = 0
            while (inferences is None or done < inferences) and not self._stop.is_set():
                now = ahead if inferences is None else min(ahead, inferences - done)
                for _ in range(now):
                    network.start()
                network.queue.finish()
                done += now
                finished.extend([time.monotonic_ns()] * now)

        self._jobs[tenant] = threading.Thread(target=work)
        began = time.monotonic_ns()
        self._jobs[tenant].start()
        return {"began_ns": began}

    def join(self, tenant: str, stop: bool) -> dict[str, object]:
        if stop:
            self._stop.set()
        self._jobs.pop(tenant).join()
        return {"finished_ns": self._finished[tenant]}

    def flush(self) -> dict[str, object]:
        """What the layer has recorded, to its file."""
        ctypes.CDLL(None).fflush(None)
        return {}

    def nice(self, value: int) -> dict[str, object]:
        """Of every thread, as it counts on Linux."""
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), value)
        return {}


def main() -> None:
    tenants = Tenants()
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(tenants, order.pop("do"))(**order)), flush=True)


if __name__ == "__main__":
    main()
