"""Whether a program that failed did so for want of memory, by what it printed last. Pure.

Programs talk of memory long before they fail of something else: they print their settings, or run out of it and try
again with less. So what ended a program decides, not what stands somewhere: the last exception in its output, with
those that it says it was caused by, or, where there is none, the last line. Of lines before that only those count that
call it an error, since C++ programs clean up, and say so, after they have failed. An exception that only says that
another process has failed is passed over: what that one died of stands before it.
"""

import re
from collections.abc import Sequence

NO_MEMORY = re.compile(
    r"out[ _]of[ _]memory|OutOfMemory|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED|std::bad_alloc|\bMemoryError\b",
    re.IGNORECASE,
)
"""How programs say that their device, or their host, has no memory left for them."""
_FAILED = re.compile(r"error|fail|terminate|fatal|unable|cannot|tried to allocate", re.IGNORECASE)
_PREFIX = re.compile(r"\[\w+\]: ?")
"""`[rank0]: `, as torchrun writes before the lines of its processes."""
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception)(?:\(\w+\))?(?::|$)|terminate called")
_CAUSED = re.compile(r"The above exception was the direct cause|During handling of the above exception")
_PASSES_ON = re.compile(r"ChildFailedError|CalledProcessError|root cause above", re.IGNORECASE)


def lack_of_memory(words: str) -> str | None:
    """The line that says so; None if it failed of something else, or does not say of what."""
    return _in_last([_PREFIX.sub("", line, count=1).rstrip() for line in words.splitlines() if line.strip()])


def _in_last(lines: Sequence[str], there_is_more: bool = False) -> str | None:
    thrown = _exceptions(lines)
    if not thrown:
        last = len(lines) - (not there_is_more)
        return _last_match([line for at, line in enumerate(lines) if at == last or _FAILED.search(line)])
    frames, last = thrown[-1]
    if _PASSES_ON.search(lines[last]):
        return _in_last(lines[:frames], there_is_more=True)
    causes, begin = [lines[last]], last
    for _, before in reversed(thrown[:-1]):
        if not any(_CAUSED.match(line) for line in lines[before:begin]):
            break
        causes, begin = [lines[before], *causes], before
    more = [line for line in lines[last + 1 :] if line.startswith(" ") or _FAILED.search(line)]
    return _last_match([*causes, *more])


def _exceptions(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Where they are told: their frames, or else they themselves, and the line that names what was thrown, which is the
    first after the frames of a traceback, or one that begins as exceptions do."""
    found, frames = [], None
    for at, line in enumerate(lines):
        if line.lstrip() == _TRACEBACK:
            frames = at
        elif _EXCEPTION.match(line) or (frames is not None and not line.startswith(" ")):
            found.append((at if frames is None else frames, at))
            frames = None
    return found


def _last_match(lines: Sequence[str]) -> str | None:
    return next((line for line in reversed(lines) if NO_MEMORY.search(line)), None)
