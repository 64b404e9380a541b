"""A process with a CUDA context, and nothing else: what the self-test puts on a device. It runs without gpuloom.

It opens the first device that CUDA shows it and writes one JSON line: the calls that it made. Each line that it reads
then has it do a little work and write another. It ends with its standard input.
"""

import ctypes
import json
import sys
import time
from typing import Any

MULTIPROCESSOR_COUNT = 16
"""Of CUDA's device attributes; a client of MPS is told the share of it that it has."""
NOT_FOUND = 500
"""CUDA's own code where a driver has no such function."""


class Cuda:
    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.calls: list[dict[str, object]] = []

    def call(self, name: str, *args: Any, shown: tuple[int, ...] = (), answer: Any = None) -> int:
        begun_ns = time.perf_counter_ns()
        function = getattr(self.library, name, None)
        code = NOT_FOUND if function is None else int(function(*args))
        us = (time.perf_counter_ns() - begun_ns) // 1000
        told = None if answer is None or code else answer.value
        self.calls.append({"call": name, "args": shown, "code": code, "us": us, "answer": told})
        return code

    def open(self) -> bool:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        version, processors = ctypes.c_int(), ctypes.c_int()
        steps = (
            ("cuInit", (0,), None),
            ("cuDeviceGet", (ctypes.byref(device), 0), None),
            ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device), None),
            ("cuCtxSetCurrent", (context,), None),
            ("cuDeviceGetAttribute", (ctypes.byref(processors), MULTIPROCESSOR_COUNT, device), processors),
        )
        self.call("cuDriverGetVersion", ctypes.byref(version), answer=version)
        return all(self.call(name, *args, answer=answer) == 0 for name, args, answer in steps)

    def allocate(self, mib: int) -> None:
        """And give it back."""
        address = ctypes.c_uint64()
        size = mib << 20
        if self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size), shown=(size,)) == 0:
            self.call("cuMemFree_v2", address)

    def told(self) -> list[dict[str, object]]:
        calls, self.calls = self.calls, []
        return calls


def main() -> None:
    try:
        cuda = Cuda(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        print(json.dumps({"reason": "libcuda.so.1 was not found"}), flush=True)
        return
    works = cuda.open()
    calls = cuda.told()
    reason = None if works else f"{calls[-1]['call']} answers {calls[-1]['code']}"
    print(json.dumps({"reason": reason, "calls": calls}), flush=True)
    for line in sys.stdin:
        cuda.allocate(int(line))
        print(json.dumps({"reason": None, "calls": cuda.told()}), flush=True)


if __name__ == "__main__":
    main()
