"""Programs for the tests of the OpenCL layer, run in a process of their own: `python -m … NAME`. They print JSON."""

import ctypes
import hashlib
import json
import os
import sys
import threading

import numpy as np

from gpuloom.kernels.core import load
from gpuloom.kernels.networks import NETWORKS, Network
from gpuloom.kernels.opencl import Device, Floats, Handle, Queue

PROFILE, OUT_OF_ORDER = 2, 1
QUEUE_PROPERTIES, QUEUE_PROPERTIES_ARRAY, PROFILING_START, EVENT_STATUS = 0x1093, 0x1098, 0x1282, 0x11D3
ADD = """
__kernel void add(__global float *at, float by) { at[get_global_id(0)] += by; }
__kernel void twice(__global float *at) { at[get_global_id(0)] *= 2.0f; }
"""


def digest(values: Floats) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def results() -> dict[str, object]:
    """Every network's output, bit by bit."""
    device = Device()
    queue = Queue(device)
    return {
        f"{name}-{batch}": digest(Network(device, queue, name, batch).infer()) for name in NETWORKS for batch in (1, 2)
    }


def made_with(device: Device, properties: list[int] | None) -> tuple[Handle, int]:
    """A queue from clCreateCommandQueueWithProperties, and the status."""
    status = ctypes.c_int()
    create = device.cl.clCreateCommandQueueWithProperties
    create.restype = Handle
    array = (ctypes.c_uint64 * (len(properties) + 1))(*properties, 0) if properties is not None else None
    return Handle(create(device.context, device.device, array, ctypes.byref(status))), status.value


def what_a_program_sees() -> dict[str, object]:
    """Properties, profiling, events, errors: all that a layer could spoil."""
    device = Device()
    cl = device.cl
    program = device.program(ADD)
    kernel = device.kernel(program, "add")
    buffer = device.buffer(np.zeros(64, np.float32))
    cl.clSetKernelArg(kernel, 0, ctypes.c_size_t(8), ctypes.byref(buffer))
    cl.clSetKernelArg(kernel, 1, ctypes.c_size_t(4), ctypes.byref(ctypes.c_float(1.0)))
    seen: dict[str, object] = {}
    for name, properties in (
        ("none", None),
        ("plain", [QUEUE_PROPERTIES, 0]),
        ("profiled", [QUEUE_PROPERTIES, PROFILE]),
        ("unordered", [QUEUE_PROPERTIES, OUT_OF_ORDER]),
        ("wrong", [QUEUE_PROPERTIES, 1 << 40]),
        ("odd", [0x7777, 1]),
    ):
        queue, status = made_with(device, properties)
        row: dict[str, object] = {"status": status}
        if status == 0:
            value, size, array = ctypes.c_uint64(), ctypes.c_size_t(), (ctypes.c_uint64 * 32)()
            cl.clGetCommandQueueInfo(queue, QUEUE_PROPERTIES, ctypes.c_size_t(8), ctypes.byref(value), None)
            row["properties"] = value.value
            row["array_status"] = cl.clGetCommandQueueInfo(
                queue, QUEUE_PROPERTIES_ARRAY, ctypes.c_size_t(256), array, ctypes.byref(size)
            )
            row["array"] = list(array[: size.value // 8])
            event, size_one = Handle(), (ctypes.c_size_t * 1)(64)
            row["launch"] = cl.clEnqueueNDRangeKernel(
                queue, kernel, 1, None, size_one, None, 0, None, ctypes.byref(event)
            )
            row["wait"] = cl.clWaitForEvents(1, ctypes.byref(event))
            row["profiling"] = cl.clGetEventProfilingInfo(
                event, PROFILING_START, ctypes.c_size_t(8), ctypes.byref(value), None
            )
            row["bad_grid"] = cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, None, None, 0, None, None) != 0
            row["bad_block"] = (
                cl.clEnqueueNDRangeKernel(
                    queue, kernel, 1, None, size_one, (ctypes.c_size_t * 1)(1 << 20), 0, None, None
                )
                != 0
            )
            row["bad_dims"] = cl.clEnqueueNDRangeKernel(queue, kernel, 9, None, size_one, None, 0, None, None) != 0
            cl.clFinish(queue)
            cl.clReleaseCommandQueue(queue)
            row["profiling_later"] = cl.clGetEventProfilingInfo(
                event, PROFILING_START, ctypes.c_size_t(8), ctypes.byref(value), None
            )
            cl.clReleaseEvent(event)
        seen[name] = row
    return seen


def dependencies() -> dict[str, object]:
    """Two queues of different priority that wait for each other through events, and for the program itself."""
    device = Device()
    cl = device.cl
    program = device.program(ADD)
    add, twice = device.kernel(program, "add"), device.kernel(program, "twice")
    buffer = device.buffer(np.zeros(64, np.float32))
    high, low = Queue(device), Queue(device)
    cl.clSetKernelArg(add, 0, ctypes.c_size_t(8), ctypes.byref(buffer))
    cl.clSetKernelArg(add, 1, ctypes.c_size_t(4), ctypes.byref(ctypes.c_float(1.0)))
    cl.clSetKernelArg(twice, 0, ctypes.c_size_t(8), ctypes.byref(buffer))
    cl.clCreateUserEvent.restype = Handle
    size = (ctypes.c_size_t * 1)(64)
    start = Handle(cl.clCreateUserEvent(device.context, None))
    before = start
    for number in range(20):
        queue, kernel, after = (high, add, Handle()) if number % 2 == 0 else (low, twice, Handle())
        assert (
            cl.clEnqueueNDRangeKernel(
                queue.handle, kernel, 1, None, size, None, 1, ctypes.byref(before), ctypes.byref(after)
            )
            == 0
        )
        before = after
        if number == 3:
            cl.clSetUserEventStatus(start, 0)
    out = np.empty(64, np.float32)
    cl.clWaitForEvents(1, ctypes.byref(before))
    high.read(buffer, out)
    return {"value": float(out[0]), "same": bool((out == out[0]).all())}


def launch_in_a_callback() -> dict[str, object]:
    """A low-priority launch from the thread that tells of ended kernels, with a high-priority kernel in flight: nobody
    else could say that it has ended."""
    device = Device()
    cl = device.cl
    kernel = device.kernel(device.program(ADD), "add")
    buffer = device.buffer(np.zeros(64, np.float32))
    high, low = Queue(device), Queue(device)
    size = (ctypes.c_size_t * 1)(64)
    cl.clSetKernelArg(kernel, 0, ctypes.c_size_t(8), ctypes.byref(buffer))
    cl.clSetKernelArg(kernel, 1, ctypes.c_size_t(4), ctypes.byref(ctypes.c_float(1.0)))
    cl.clCreateUserEvent.restype = Handle
    held = Handle(cl.clCreateUserEvent(device.context, None))
    first, done, answers = Handle(), threading.Event(), []
    cl.clEnqueueNDRangeKernel(low.handle, kernel, 1, None, size, None, 0, None, ctypes.byref(first))
    cl.clEnqueueNDRangeKernel(high.handle, kernel, 1, None, size, None, 1, ctypes.byref(held), None)

    def ended(*_: object) -> None:
        before = _waited_ns()
        answers.append(cl.clEnqueueNDRangeKernel(low.handle, kernel, 1, None, size, None, 0, None, None))
        answers.append(_waited_ns() - before)
        done.set()

    callback = ctypes.CFUNCTYPE(None, Handle, ctypes.c_int, Handle)(ended)  # lives until it was called
    cl.clSetEventCallback(first, 0, callback, None)
    done.wait()
    cl.clSetUserEventStatus(held, 0)
    high.finish()
    low.finish()
    return {"status": answers[0], "waited_ns": answers[1]}


def _waited_ns() -> int:
    """In all, by all queues; 0 without the layer."""
    core, why = load(), ctypes.create_string_buffer(200)
    path = os.environ.get("GPULOOM_KERNELS_REGION")
    region = core.loom_region_open(path.encode(), why, 200) if path else None
    waited = sum(slot.waited_ns for _, slot in region.contents.taken()) if region else 0
    core.loom_region_leave(region)
    return int(waited)


def closed_in_flight() -> dict[str, object]:
    """The program closes OpenCL while kernels are in flight; their ends are told later, by whoever still is there."""
    device = Device()
    networks = [Network(device, Queue(device), "resnet") for _ in range(2)]
    for network in networks:
        for _ in range(3):
            network.start()
    unload = ctypes.CDLL(None).dlclose
    unload.argtypes = (ctypes.c_void_p,)
    unload(device.cl._handle)
    threading.Event().wait(0.5)
    return {"alive": True}


def two_queues() -> dict[str, object]:
    """Two tenants in two threads, the second with the low priority; what the slots counted."""
    device = Device()
    high, low = Network(device, Queue(device), "mlp"), Network(device, Queue(device), "resnet")
    alone = digest(high.infer()), digest(low.infer())
    outputs: list[str] = []
    stop = threading.Event()

    def batch() -> None:
        while not stop.is_set():
            outputs.append(digest(low.infer()))

    thread = threading.Thread(target=batch)
    thread.start()
    answers = {digest(high.infer()) for _ in range(60)}
    stop.set()
    thread.join()
    core = load()
    why = ctypes.create_string_buffer(200)
    region = core.loom_region_open(os.environ["GPULOOM_KERNELS_REGION"].encode(), why, 200)
    slots = [
        {"priority": s.priority, "launches": s.launches, "fills": s.fills, "in_flight": s.in_flight, "gaps": s.gaps}
        for _, s in region.contents.taken()
    ]
    core.loom_region_leave(region)
    for network in (high, low):
        network.queue.finish()
        network.queue.release()
    left = len(region.contents.taken())
    return {"right": answers == {alone[0]} and set(outputs) == {alone[1]}, "slots": slots, "left": left}


def priority_by_call() -> dict[str, object]:
    """A server that knows its tenants sets a queue's priority itself."""
    device = Device()
    queue = Queue(device)
    core = load()
    return {
        "known": core.gpuloom_queue_priority(queue.handle, 7),
        "unknown": core.gpuloom_queue_priority(Handle(12345), 7),
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
