"""A program to try sharing with: serves requests of one of the example networks, and prints how long each took."""

import os
import time
from dataclasses import dataclass

import numpy as np

from gpuloom.kernels.networks import Network
from gpuloom.kernels.opencl import Device, Queue


@dataclass(frozen=True, slots=True)
class Served:
    device: str
    launches: int
    """For each request."""
    latencies_ms: list[float]
    checksum: str
    """Of the outputs, bit by bit."""


def serve(network: str, batch: int, requests: int, think_ms: float, seed: int = 1) -> Served:
    """Closed loop: after each answer a random pause of half to one and a half `think_ms`, then the next request."""
    import hashlib

    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")
    device = Device()
    net = Network(device, Queue(device), network, batch)
    net.infer()
    random = np.random.default_rng(seed)
    latencies, digest = [], hashlib.sha256()
    for _ in range(requests):
        began = time.perf_counter()
        digest.update(net.infer().tobytes())
        latencies.append(1e3 * (time.perf_counter() - began))
        if think_ms > 0:
            time.sleep(think_ms / 1e3 * random.uniform(0.5, 1.5))
    return Served(device.name, net.steps * (len(net.layers) + 2), latencies, digest.hexdigest()[:16])
