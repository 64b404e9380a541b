"""As much of OpenCL as the example networks need, by ctypes: no binding to install, and the system's own loader."""

import ctypes
import ctypes.util
import os
from collections.abc import Sequence

import numpy as np

from gpuloom.errors import InputError

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Handle = ctypes.c_void_p
ANY_DEVICE = 0xFFFFFFFF
PLATFORM_NAME, PLATFORM_VERSION, DEVICE_NAME, BUILD_LOG = 0x0902, 0x0901, 0x102B, 0x1183
COPY_FROM_HOST = 1 << 5


def library() -> ctypes.CDLL:
    """The OpenCL loader; GPULOOM_OPENCL names another one than the system's."""
    name = os.environ.get("GPULOOM_OPENCL", "libOpenCL.so.1")
    try:
        found = ctypes.CDLL(name)
    except OSError:
        raise InputError(f"{name}: no OpenCL here (Debian: pocl-opencl-icd ocl-icd-libopencl1)") from None
    for function in (
        "clCreateContext",
        "clCreateCommandQueue",
        "clCreateBuffer",
        "clCreateProgramWithSource",
        "clCreateKernel",
    ):
        getattr(found, function).restype = Handle
    return found


class OpenCLError(RuntimeError):
    """A call returned an error code."""


def check(status: int, what: str) -> None:
    if status != 0:
        raise OpenCLError(f"{what}: OpenCL error {status}")


class Device:
    """The first device of the first platform whose name contains GPULOOM_OPENCL_PLATFORM, with a context on it."""

    def __init__(self) -> None:
        self.cl = library()
        count = ctypes.c_uint()
        platforms = (Handle * 16)()
        check(self.cl.clGetPlatformIDs(16, platforms, ctypes.byref(count)), "clGetPlatformIDs")
        wanted = os.environ.get("GPULOOM_OPENCL_PLATFORM", "").lower()
        for platform in platforms[: count.value]:
            device = Handle()
            name = self._text(self.cl.clGetPlatformInfo, Handle(platform), PLATFORM_NAME)
            if (
                wanted in name.lower()
                and self.cl.clGetDeviceIDs(Handle(platform), ctypes.c_uint64(ANY_DEVICE), 1, ctypes.byref(device), None)
                == 0
            ):
                break
        else:
            raise InputError(f"OpenCL: no device of a platform named like {wanted!r}")
        version = self._text(self.cl.clGetPlatformInfo, Handle(platform), PLATFORM_VERSION)
        self.device, self.name = (
            device,
            f"{name}, {version}: {self._text(self.cl.clGetDeviceInfo, device, DEVICE_NAME)}",
        )
        status = ctypes.c_int()
        devices = (Handle * 1)(device)
        self.context = Handle(self.cl.clCreateContext(None, 1, devices, None, None, ctypes.byref(status)))
        check(status.value, "clCreateContext")

    @staticmethod
    def _text(call: "ctypes._FuncPointer", of: Handle, what: int) -> str:
        text = ctypes.create_string_buffer(1024)
        check(call(of, what, ctypes.sizeof(text), text, None), "information")
        return text.value.decode(errors="replace")

    def program(self, source: str) -> Handle:
        status = ctypes.c_int()
        text = ctypes.c_char_p(source.encode())
        made = Handle(
            self.cl.clCreateProgramWithSource(self.context, 1, ctypes.byref(text), None, ctypes.byref(status))
        )
        check(status.value, "clCreateProgramWithSource")
        if self.cl.clBuildProgram(made, 0, None, b"", None, None) != 0:
            log = ctypes.create_string_buffer(65536)
            self.cl.clGetProgramBuildInfo(made, self.device, BUILD_LOG, ctypes.sizeof(log), log, None)
            raise OpenCLError(f"clBuildProgram: {log.value.decode(errors='replace')}")
        return made

    def kernel(self, program: Handle, name: str) -> Handle:
        status = ctypes.c_int()
        made = Handle(self.cl.clCreateKernel(program, name.encode(), ctypes.byref(status)))
        check(status.value, f"clCreateKernel {name}")
        return made

    def buffer(self, values: Floats) -> Handle:
        status = ctypes.c_int()
        data = np.ascontiguousarray(values, np.float32)
        made = Handle(
            self.cl.clCreateBuffer(
                self.context,
                ctypes.c_uint64(COPY_FROM_HOST),
                ctypes.c_size_t(data.nbytes),
                data.ctypes.data_as(Handle),
                ctypes.byref(status),
            )
        )
        check(status.value, "clCreateBuffer")
        return made


class Queue:
    """An in-order command queue."""

    def __init__(self, device: Device) -> None:
        status = ctypes.c_int()
        self.cl = device.cl
        self.handle = Handle(
            self.cl.clCreateCommandQueue(device.context, device.device, ctypes.c_uint64(0), ctypes.byref(status))
        )
        check(status.value, "clCreateCommandQueue")

    def launch(
        self, kernel: Handle, grid: Sequence[int], block: Sequence[int], args: "Sequence[Handle | ctypes.c_int]"
    ) -> None:
        """Set the arguments and enqueue, as a framework that runs eagerly does for each layer."""
        for place, arg in enumerate(args):
            self.cl.clSetKernelArg(kernel, place, ctypes.c_size_t(ctypes.sizeof(arg)), ctypes.byref(arg))
        sizes = ctypes.c_size_t * len(grid)
        check(
            self.cl.clEnqueueNDRangeKernel(
                self.handle, kernel, len(grid), None, sizes(*grid), sizes(*block), 0, None, None
            ),
            "clEnqueueNDRangeKernel",
        )

    def write(self, buffer: Handle, values: Floats) -> None:
        """Without waiting: the values must stay until the queue has run."""
        check(
            self.cl.clEnqueueWriteBuffer(
                self.handle,
                buffer,
                0,
                ctypes.c_size_t(0),
                ctypes.c_size_t(values.nbytes),
                values.ctypes.data_as(Handle),
                0,
                None,
                None,
            ),
            "clEnqueueWriteBuffer",
        )

    def read(self, buffer: Handle, into: Floats) -> None:
        check(
            self.cl.clEnqueueReadBuffer(
                self.handle,
                buffer,
                1,
                ctypes.c_size_t(0),
                ctypes.c_size_t(into.nbytes),
                into.ctypes.data_as(Handle),
                0,
                None,
                None,
            ),
            "clEnqueueReadBuffer",
        )

    def finish(self) -> None:
        check(self.cl.clFinish(self.handle), "clFinish")

    def release(self) -> None:
        self.cl.clReleaseCommandQueue(self.handle)
