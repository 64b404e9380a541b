"""Five small networks as real OpenCL programs: something to measure and to share a device with, on any machine.

They run layer by layer, as eager frameworks do: the host sets the arguments and launches, the device follows. Weights
and inputs come from a fixed seed, and every output element is summed by one work-item in a fixed order, so that results
can be compared bit by bit.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuloom.errors import InputError
from gpuloom.kernels.opencl import Device, Floats, Handle, Queue

BLOCK = 16
SOURCE = """
__kernel void conv3x3(__global const float *in, __global const float *weights, __global const float *skip,
                      __global float *out, int channels, int side, int has_skip) {
    int x = get_global_id(0), y = get_global_id(1), filter = get_global_id(2);
    int image = filter / channels, own = filter % channels;
    float sum = 0.0f;
    for (int c = 0; c < channels; c++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                int ix = clamp(x + dx, 0, side - 1), iy = clamp(y + dy, 0, side - 1);
                sum += in[((image * channels + c) * side + iy) * side + ix]
                     * weights[((own * channels + c) * 3 + dy + 1) * 3 + dx + 1];
            }
    int here = (filter * side + y) * side + x;
    if (has_skip) sum += skip[here];
    out[here] = fmax(sum, 0.0f);
}
__kernel void matmul(__global const float *in, __global const float *weights, __global const float *skip,
                     __global float *out, int inner, int columns, int activate) {
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (int i = 0; i < inner; i++) sum += in[row * inner + i] * weights[i * columns + column];
    if (activate & 2) sum += skip[row * columns + column];
    out[row * columns + column] = activate & 1 ? fmax(sum, 0.0f) : sum;
}
__kernel void attend(__global const float *queries, __global const float *keys, __global const float *values,
                     __global float *out, int length, int width, int stage) {
    int column = get_global_id(0), row = get_global_id(1), first = row / length * length;
    float sum = 0.0f;
    if (stage == 0) {
        for (int i = 0; i < width; i++) sum += queries[row * width + i] * keys[(first + column) * width + i];
        out[row * length + column] = sum * rsqrt((float)width);
    } else {
        for (int i = 0; i < length; i++) sum += queries[row * length + i] * values[(first + i) * width + column];
        out[row * width + column] = sum;
    }
}
__kernel void normalise(__global const float *in, __global const float *unused, __global const float *unused_too,
                        __global float *out, int width, int softmax, int ignored) {
    int column = get_global_id(0), row = get_global_id(1);
    float largest = -1e30f, sum = 0.0f, squares = 0.0f;
    for (int i = 0; i < width; i++) {
        float value = in[row * width + i];
        largest = fmax(largest, value);
        sum += value;
        squares += value * value;
    }
    float value = in[row * width + column], mean = sum / width;
    if (softmax) {
        float total = 0.0f;
        for (int i = 0; i < width; i++) total += exp(in[row * width + i] - largest);
        out[row * width + column] = exp(value - largest) / total;
    } else
        out[row * width + column] = (value - mean) * rsqrt(squares / width - mean * mean + 1e-5f);
}
"""


@dataclass(frozen=True, slots=True)
class Layer:
    kernel: Handle
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple["Handle | ctypes.c_int", ...]


class Network:
    """A network on one queue: `infer` runs it once and returns its output."""

    def __init__(self, device: Device, queue: Queue, name: str, batch: int = 1) -> None:
        if name not in NETWORKS:
            raise InputError(f"network {name}: expected one of {', '.join(NETWORKS)}")
        if batch < 1:
            raise InputError(f"batch {batch}: expected 1 or more")
        self.queue, self.device = queue, device
        self._program = device.program(SOURCE)
        self._random = np.random.default_rng(1)
        self.layers: list[Layer] = []
        self._size = 0
        self.steps = 1
        self.input = self._output = Handle()
        NETWORKS[name](self, batch)
        self._result = np.empty(self._size, np.float32)
        self._input_values = self._random.standard_normal(self._size_of_input).astype(np.float32)

    def infer(self) -> Floats:
        """One request; its output, which the next call overwrites."""
        values = self._input_values
        for step in range(self.steps):
            if step:
                values = np.roll(values, 1) + np.float32(np.argmax(self._result) / self._result.size)
            self.start(values)
            self.queue.read(self._output, self._result)
        return self._result

    def start(self, values: Floats | None = None) -> None:
        """Enqueue one step without waiting for it."""
        self.queue.write(self.input, self._input_values if values is None else values)
        for layer in self.layers:
            self.queue.launch(layer.kernel, layer.grid, layer.block, layer.args)

    # Building.

    def begin(self, size: int) -> Handle:
        self._size_of_input = self._size = size
        self.input = self._output = self.device.buffer(np.zeros(size, np.float32))
        return self.input

    def add(self, kernel: str, grid: Sequence[int], buffers: Sequence[Handle], numbers: Sequence[int]) -> Handle:
        """A layer with a new output buffer, which is returned."""
        self._size = int(np.prod(grid))
        self._output = self.device.buffer(np.zeros(self._size, np.float32))
        block = tuple(BLOCK if axis == 0 and side % BLOCK == 0 else 1 for axis, side in enumerate(grid))
        args: tuple[Handle | ctypes.c_int, ...] = (*buffers, self._output, *map(ctypes.c_int, numbers))
        self.layers.append(Layer(self.device.kernel(self._program, kernel), tuple(grid), block, args))
        return self._output

    def weights(self, *shape: int) -> Handle:
        scale = 1.0 / np.sqrt(np.prod(shape[1:]))
        return self.device.buffer(self._random.standard_normal(shape).astype(np.float32) * np.float32(scale))

    def conv(self, of: Handle, channels: int, side: int, batch: int, skip: Handle | None = None) -> Handle:
        buffers = (of, self.weights(channels, channels, 3, 3), skip or of)
        return self.add("conv3x3", (side, side, channels * batch), buffers, (channels, side, int(skip is not None)))

    def dense(
        self, of: Handle, inner: int, columns: int, rows: int, relu: bool = True, skip: Handle | None = None
    ) -> Handle:
        buffers = (of, self.weights(inner, columns), skip or of)
        return self.add("matmul", (columns, rows), buffers, (inner, columns, int(relu) + 2 * (skip is not None)))

    def normal(self, of: Handle, width: int, rows: int, softmax: bool = False) -> Handle:
        return self.add("normalise", (width, rows), (of, of, of), (width, int(softmax), 0))


def _mlp(net: Network, batch: int) -> None:
    at, width = net.begin(256 * batch), 256
    for _ in range(5):
        at = net.dense(at, width, width, batch)
    net.dense(at, width, 16, batch, relu=False)


def _conv(net: Network, batch: int) -> None:
    at = net.begin(4 * 32 * 32 * batch)
    for _ in range(6):
        at = net.conv(at, 4, 32, batch)
    net.dense(at, 4 * 32 * 32, 16, batch, relu=False)


def _resnet(net: Network, batch: int, channels: int = 8, side: int = 16) -> None:
    at = net.conv(net.begin(channels * side * side * batch), channels, side, batch)
    for _ in range(7):
        at = net.conv(net.conv(at, channels, side, batch), channels, side, batch, skip=at)
    net.dense(at, channels * side * side, 16, batch, relu=False)


def _resnet_large(net: Network, batch: int) -> None:
    _resnet(net, batch, channels=16, side=32)


def _transformer(net: Network, batch: int, width: int = 32, length: int = 32) -> None:
    """A decoder: three tokens for each request, and between two of them the host looks at the scores and chooses."""
    rows = length * batch
    net.steps = 3
    at = net.begin(width * rows)
    for _ in range(4):
        normed = net.normal(at, width, rows)
        queries, keys, values = (net.dense(normed, width, width, rows, relu=False) for _ in range(3))
        scores = net.add("attend", (length, rows), (queries, keys, values), (length, width, 0))
        weights = net.normal(scores, length, rows, softmax=True)
        mixed = net.add("attend", (width, rows), (weights, keys, values), (length, width, 1))
        at = net.dense(mixed, width, width, rows, relu=False, skip=at)
        hidden = net.dense(net.normal(at, width, rows), width, 4 * width, rows)
        at = net.dense(hidden, 4 * width, width, rows, relu=False, skip=at)
    net.dense(net.normal(at, width, rows), width, width, rows, relu=False)


NETWORKS: dict[str, Callable[[Network, int], None]] = {
    "mlp": _mlp,
    "conv": _conv,
    "resnet": _resnet,
    "resnet-large": _resnet_large,
    "transformer": _transformer,
}
