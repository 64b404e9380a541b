"""A program to try sharing with: serves requests of one of the example networks, and prints how long each took.

With a second network beside it, it is a process with two tenants on one device: one command shows what they do to each
other.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from gpuloom.kernels.core import load
from gpuloom.kernels.networks import Network
from gpuloom.kernels.opencl import Device, Queue

JOB_BATCH, LARGE_JOB_BATCH = 4, 1
JOB_PRIORITY = 5
WARM_UP = 3
SWITCH_S = 1e-4
"""How long one Python thread may keep the other from launching; the default would be a large part of a request."""


@dataclass(frozen=True, slots=True)
class Served:
    device: str
    launches: int
    """For each request."""
    latencies_ms: list[float]
    checksum: str
    """Of the outputs, bit by bit."""
    beside_per_s: float | None = None
    """Inferences of the job beside it."""

    def quantile_ms(self, part: float) -> float:
        return float(np.quantile(self.latencies_ms, part))


@dataclass(slots=True)
class _Job:
    network: Network
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> float:
        """Inferences a second: of whole ones, so a service that ends early makes no difference."""
        began, inferences = time.perf_counter(), 0
        while not self.stop.is_set():
            self.network.start()
            self.network.queue.finish()
            inferences += 1
        return inferences / (time.perf_counter() - began)


def serve(network: str, batch: int, requests: int, think_ms: float, beside: str | None = None, seed: int = 1) -> Served:
    """Closed loop: after each answer a random pause of half to one and a half `think_ms`, then the next request.

    Meanwhile the network `beside` it runs without pauses, on a queue of its own with a lower priority.
    """
    import hashlib

    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")
    device = Device()
    net = Network(device, _queue(device, 0 if beside else None), network, batch)
    for _ in range(WARM_UP):
        net.infer()
    random = np.random.default_rng(seed)
    latencies, digest = [], hashlib.sha256()
    with _beside(device, beside) as job:
        for _ in range(requests):
            began = time.perf_counter()
            digest.update(net.infer().tobytes())
            latencies.append(1e3 * (time.perf_counter() - began))
            if think_ms > 0:
                time.sleep(think_ms / 1e3 * random.uniform(0.5, 1.5))
    job_per_s = job.result() if job else None
    return Served(device.name, net.steps * (len(net.layers) + 2), latencies, digest.hexdigest()[:16], job_per_s)


def _queue(device: Device, priority: int | None) -> Queue:
    """With a priority of its own, if the layer is there to see to it."""
    queue = Queue(device)
    if priority is not None and os.environ.get("GPULOOM_KERNELS_REGION"):
        load().gpuloom_queue_priority(queue.handle, priority)
    return queue


@contextmanager
def _beside(device: Device, name: str | None) -> Iterator["Future[float] | None"]:
    """Its inferences a second, when it is over."""
    if name is None:
        yield None
        return
    batch = LARGE_JOB_BATCH if name == "resnet-large" else JOB_BATCH
    job = _Job(Network(device, _queue(device, JOB_PRIORITY), name, batch))
    for _ in range(WARM_UP):
        job.network.infer()
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(job.run)
        finally:
            job.stop.set()
            sys.setswitchinterval(interval_s)
