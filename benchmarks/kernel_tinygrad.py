"""Six networks made by tinygrad, for kernel_sharing.py: programs that nobody here wrote or looked at, as a test.

Here are only their shapes; kernels, their number and their order are what tinygrad 0.14 makes of them (`pip install
tinygrad==0.14`). After its JIT has seen a network, tinygrad launches its kernels one by one from Python. Weights and
inputs come from a fixed seed, so that results can be compared bit by bit.

`Queue` and `Network` stand in for those of gpuloom.kernels. Two queues are two devices to tinygrad: CL:0 and CL:1, each
with a context of its own, on the same OpenCL device.
"""

import ctypes
import gc
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np

from gpuloom.errors import InputError
from gpuloom.kernels.opencl import Device, Floats, Handle

QUEUES = 64
"""How often tinygrad is told about the one device."""
_number = count()


@cache
def _tinygrad(device: int) -> Any:
    """tinygrad, which knows of this device only, and compiles in this process."""
    os.environ |= {"DEV": "CL", "PARALLEL": "0", "BEAM": "0"}
    try:
        found = import_module("tinygrad")
    except ImportError:
        raise InputError("tinygrad is missing: pip install tinygrad==0.14") from None
    opencl = import_module("tinygrad.runtime.ops_cl")
    opencl.CLDevice.device_ids = [ctypes.cast(Handle(device), opencl.cl.cl_device_id)] * QUEUES
    return found


class Queue:
    """An in-order command queue, made by tinygrad."""

    def __init__(self, device: Device) -> None:
        self.tinygrad = _tinygrad(int(device.device.value or 0))
        self.name = f"CL:{next(_number)}"
        self.device = self.tinygrad.Device[self.name]
        self.handle = ctypes.cast(self.device.queue, Handle)

    def finish(self) -> None:
        self.device.synchronize()

    def release(self) -> None:
        import_module("tinygrad.runtime.ops_cl").cl.clReleaseCommandQueue(self.device.queue)


class Network:
    """A network on one queue: `infer` runs it once and returns its output."""

    steps = 1

    def __init__(self, _device: Device, queue: Queue, name: str, batch: int = 1) -> None:
        if name not in NETWORKS:
            raise InputError(f"network {name}: expected one of {', '.join(NETWORKS)}")
        self.queue = queue
        self.tensor = queue.tinygrad.Tensor
        self._random = np.random.default_rng(1)
        shape, build = NETWORKS[name]
        self._values = self._random.standard_normal((batch, *shape)).astype(np.float32)
        self._weights: list[Any] = []
        self._place = 0
        self._input = self.put(self._values)
        # Without arguments: the input is one more buffer that the program knows, and a request overwrites it.
        self._run = queue.tinygrad.TinyJit(lambda: self._forward(build))
        for _ in range(3):
            output = self._run()
        self.layers = self._run.captured.linear.src
        """Its kernels: a request launches them, and the copies of its input and its output."""
        self._into, self._from = self._input.uop.buffer, output.uop.buffer
        self._result = np.empty(output.shape, np.float32)
        queue.finish()
        gc.collect()
        gc.freeze()  # a collection would look at all that tinygrad has made, and take longer than a request

    def infer(self) -> Floats:
        """One request; its output, which the next call overwrites."""
        self.start()
        self._from.allocator._copyout(self._result.data.cast("B"), self._from._buf)
        return self._result

    def start(self) -> None:
        """Enqueue one inference without waiting for it."""
        self._into.allocator._copyin(self._into._buf, self._values.data.cast("B"))
        self._run()

    # Building.

    def _forward(self, build: Callable[["Network", Any], Any]) -> Any:
        self._place = 0
        return build(self, self._input).contiguous().realize()

    def put(self, values: Floats) -> Any:
        return self.tensor(values, device=self.queue.name).contiguous().realize()

    def weights(self, *shape: int) -> Any:
        """Made in the first run, and found again in the same order by the others."""
        if self._place == len(self._weights):
            scale = np.float32(1.0 / np.sqrt(np.prod(shape[1:])))
            self._weights.append(self.put(self._random.standard_normal(shape).astype(np.float32) * scale))
        self._place += 1
        return self._weights[self._place - 1]

    def conv(self, of: Any, filters: int, side: int = 3, stride: int = 1) -> Any:
        kernel = self.weights(filters, of.shape[1], side, side)
        return of.conv2d(kernel, self.weights(filters), stride=stride, padding=side // 2)

    def dense(self, of: Any, columns: int) -> Any:
        return of.linear(self.weights(columns, of.shape[-1]).transpose(), self.weights(columns))


def _mlp(net: Network, at: Any) -> Any:
    for _ in range(5):
        at = net.dense(at, 512).relu()
    return net.dense(at, 10)


def _conv(net: Network, at: Any) -> Any:
    for filters in (16, 32):
        at = net.conv(net.conv(at, filters, 5).relu(), filters).relu().max_pool2d()
    return net.dense(at.flatten(1), 10)


def _resnet(net: Network, at: Any) -> Any:
    at = net.conv(at, 8).relu()
    for filters, stride in ((8, 1), (8, 1), (16, 2), (16, 1), (32, 2), (32, 1)):
        skip = net.conv(at, filters, 1, stride) if stride > 1 else at
        at = (net.conv(net.conv(at, filters, stride=stride).relu(), filters) + skip).relu()
    return net.dense(at.mean((2, 3)), 10)


def _transformer(net: Network, at: Any, heads: int = 4) -> Any:
    batch, length, width = at.shape
    for _ in range(4):
        normed = at.layernorm()
        queries, keys, values = (
            net.dense(normed, width).reshape(batch, length, heads, -1).transpose(1, 2) for _ in range(3)
        )
        mixed = queries.scaled_dot_product_attention(keys, values, is_causal=True)
        at = at + net.dense(mixed.transpose(1, 2).reshape(batch, length, width), width)
        at = at + net.dense(net.dense(at.layernorm(), 4 * width).gelu(), width)
    return net.dense(at.layernorm(), width)


def _gru(net: Network, at: Any, width: int = 128) -> Any:
    """Eight steps of the same weights."""
    batch, length, inner = at.shape
    keeps, resets, news = (net.weights(width, inner + width).transpose() for _ in range(3))
    state = net.tensor.zeros(batch, width, device=net.queue.name).contiguous()
    for step in range(length):
        both = at[:, step].cat(state, dim=1)
        keep, reset = both.linear(keeps).sigmoid(), both.linear(resets).sigmoid()
        new = at[:, step].cat(state * reset, dim=1).linear(news).tanh()
        state = (keep * state + (1 - keep) * new).contiguous()
    return net.dense(state, 10)


def _unet(net: Network, at: Any) -> Any:
    skips = []
    for filters in (8, 16):
        at = net.conv(net.conv(at, filters).relu(), filters).relu()
        skips.append(at)
        at = at.max_pool2d()
    at = net.conv(at, 32).relu()
    for skip in reversed(skips):
        larger = at.interpolate(skip.shape[2:], mode="nearest")
        at = net.conv(net.conv(larger.cat(skip, dim=1), skip.shape[1]).relu(), skip.shape[1]).relu()
    return net.conv(at, 2, 1)


NETWORKS: dict[str, tuple[tuple[int, ...], Callable[[Network, Any], Any]]] = {
    "tg-mlp": ((784,), _mlp),
    "tg-conv": ((1, 28, 28), _conv),
    "tg-resnet": ((3, 32, 32), _resnet),
    "tg-transformer": ((32, 64), _transformer),
    "tg-gru": ((8, 64), _gru),
    "tg-unet": ((3, 32, 32), _unet),
}
"""By name: the shape of one input, and what is done with it."""
