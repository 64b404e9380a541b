"""A program that uses CUDA through NVIDIA's own cuda-bindings: kernels on a stream of its own and on the default one, a
graph. It prints the driver's version and what the kernels have computed, waits for a line, and ends."""

import ctypes
import sys
from typing import Any

from cuda.bindings import driver as cuda


def ask(question: Any, *arguments: Any) -> Any:
    error, *answers = question(*arguments)
    assert error == cuda.CUresult.CUDA_SUCCESS, (question.__name__, error)
    return answers[0] if len(answers) == 1 else answers


def main() -> None:
    ask(cuda.cuInit, 0)
    version = ask(cuda.cuDriverGetVersion)
    device = ask(cuda.cuDeviceGet, 0)
    context = ask(cuda.cuDevicePrimaryCtxRetain, device)
    ask(cuda.cuCtxSetCurrent, context)
    add = ask(cuda.cuModuleGetFunction, ask(cuda.cuModuleLoadData, b"an image"), b"add")
    stream = ask(cuda.cuStreamCreate, 0)
    buffer = ask(cuda.cuMemAlloc, 16)

    def launch(on: Any, value: int) -> None:
        parameters = ((buffer, value), (None, ctypes.c_longlong))
        ask(cuda.cuLaunchKernel, add, 4, 2, 1, 32, 1, 1, 0, on, parameters, 0)

    for value in (1, 2, 3):
        launch(stream, value)
    ask(cuda.cuStreamSynchronize, stream)
    for value in (4, 5):
        launch(0, value)
    ask(cuda.cuCtxSynchronize)
    ask(cuda.cuStreamBeginCapture, stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    launch(stream, 6)
    graph = ask(cuda.cuGraphInstantiate, ask(cuda.cuStreamEndCapture, stream), 0)
    ask(cuda.cuGraphLaunch, graph, stream)
    ask(cuda.cuStreamSynchronize, stream)
    result = (ctypes.c_longlong * 2)()
    ask(cuda.cuMemcpyDtoH, ctypes.addressof(result), buffer, ctypes.sizeof(result))
    print(version, result[0])
    print("done", flush=True)
    sys.stdin.readline()


main()
