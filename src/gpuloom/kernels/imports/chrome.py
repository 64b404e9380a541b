"""PyTorch profiler traces: Chrome trace JSON as Kineto writes it, also compressed.

Read event by event: a trace of a minute has gigabytes, nearly all of it operators and Python frames that do not matter
here.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gpuloom.errors import InputError
from gpuloom.kernels.imports.trace import COPY, FILL, Queue, Shape, Trace, sizes
from gpuloom.kernels.profile import Profile

CHUNK = 1 << 22
LONGEST = 1 << 26
"""No event, and nothing before the first, is longer than that: then it is no JSON."""
WORK = {"kernel": "", "gpu_memcpy": COPY, "gpu_memset": FILL, "memcpy": COPY, "memset": FILL}
"""By category, in lower case: before 2022 Kineto wrote Kernel, Memcpy, Memset and Runtime."""
CALLS = {"cuda_runtime", "cuda_driver", "runtime"}
START = re.compile(r'\s*\[|.*?"traceEvents"\s*:\s*\[', re.DOTALL)
DEVICES = re.compile(r'"deviceProperties"\s*:\s*')
BETWEEN = re.compile(r"[\s,]*")


def import_chrome(path: Path) -> Profile:
    """InputError if it is not whole, or has no GPU kernels, as a trace of the CPU alone."""
    trace = Trace()
    names: dict[object, str] = {}
    try:
        with _open(path) as stream:
            for event in _events(stream, path, names):
                if isinstance(event, dict) and event.get("ph") == "X":
                    _take(event, trace)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}): expected a whole trace of the PyTorch profiler") from None
    device = ", ".join(sorted({names[one] for one in trace.devices() if one in names})) or "-"
    return trace.profile(str(path), device, ("imported from a PyTorch profiler trace",))


def _open(path: Path) -> IO[str]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
    return path.open(encoding="utf-8-sig", errors="replace")


def _events(stream: IO[str], path: Path, names: dict[object, str], chunk: int = CHUNK) -> Iterator[object]:
    """The elements of `traceEvents`, or of the whole file if it is a list; names of devices go to `names`."""
    text = stream.read(chunk)
    while (start := START.match(text)) is None:
        more = stream.read(chunk)
        if not more or len(text) > LONGEST:
            raise InputError(f'{path}: has no "traceEvents": expected a trace of the PyTorch profiler')
        text += more
    names |= _device_names(text[: start.end()])
    decode = json.JSONDecoder().raw_decode
    at, events = start.end(), 0
    while True:
        at = _skip(text, at)
        try:
            if text[at : at + 1] == "]":
                return
            event, at = decode(text, at)
        except (ValueError, RecursionError):
            more = stream.read(chunk)
            if not more:
                raise InputError(f"{path}: is cut short after {events} events: expected a whole JSON file") from None
            if len(text) - at > LONGEST:
                raise InputError(
                    f"{path}: is no JSON after {events} events: expected a trace of the PyTorch profiler"
                ) from None
            text, at = text[at:] + more, 0
            continue
        events += 1
        yield event


def _skip(text: str, at: int) -> int:
    found = BETWEEN.match(text, at)
    return found.end() if found else at


def _device_names(head: str) -> dict[object, str]:
    found = DEVICES.search(head)
    if not found:
        return {}
    try:
        devices, _ = json.JSONDecoder().raw_decode(head, found.end())
        return {int(one["id"]): str(one["name"]) for one in devices}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _take(event: dict[str, object], trace: Trace) -> None:
    category = str(event.get("cat")).lower()
    if category not in WORK and category not in CALLS:
        return
    given = event.get("args")
    args = given if isinstance(given, dict) else {}
    start_ns, end_ns = _times(event.get("ts"), event.get("dur"))
    name, correlation = str(event.get("name")), args.get("correlation")
    if category in CALLS:
        trace.add_call(0, name, start_ns, end_ns, correlation)
        return
    if what := WORK[category]:
        shape = Shape(what, what, sizes([args.get("bytes")]), ())
    else:
        shape = Shape(name, name, sizes(args.get("grid")), sizes(args.get("block")))
    device, stream = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
    trace.add_work(shape, Queue(0, _plain(device), _plain(stream)), start_ns, end_ns, correlation)


def _times(ts: object, dur: object) -> tuple[int, int]:
    """From microseconds; an end before the start, which nobody accepts, where the trace has no numbers."""
    if not isinstance(ts, int | float) or not isinstance(dur, int | float):
        return 0, -1
    try:
        start_ns = round(ts * 1000)
        return start_ns, start_ns + round(dur * 1000)
    except (OverflowError, ValueError):
        return 0, -1


def _plain(value: object) -> object:
    return value if isinstance(value, int) else str(value)
