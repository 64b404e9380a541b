"""Human units, as people write them in files and on the command line: memory, times, priorities.

Every function takes what YAML or a shell gave (a number or a text) and raises ValueError with the end of a sentence
that says what would be accepted ("is '12Q', but must be …").
"""

import math
import re
from collections.abc import Mapping

from gpuloom.work.source import MAX_SECONDS, did_you_mean, shown

PRIORITIES: Mapping[str, int] = {"low": -10, "normal": 0, "high": 10}
"""The named priorities, with room between them."""
MAX_PRIORITY = 1_000_000
MAX_RATE_RPS = 1_000_000_000
MAX_MEM_MIB = 1 << 30
"""A pebibyte: no GPU has more."""

# nvidia-smi's and MPS's habit: G is 1024 MiB, whether written G, GB or GiB.
_MEM_MIB = {"": 1.0, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024.0}
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(?:([mgt])(?:i?b?))?", re.IGNORECASE | re.ASCII)
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)", re.ASCII)
_SCIENTIFIC = re.compile(r"\d{1,15}(?:\.\d{0,9})?[eE][+-]?\d{1,2}", re.ASCII)
_PART = re.compile(_NUMBER.pattern + r"\s*(ms|s|min|m|h|d)\s*", re.IGNORECASE | re.ASCII)


def memory_mib(value: object) -> int:
    """Whole MiB, rounded up: 12000, "12000MiB", "12G" (= 12288), "7.5GiB"."""
    accepted = "memory such as 12G, 12000MiB or a number of MiB"
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        mib = math.ceil(float(match[1]) * _MEM_MIB[(match[2] or "").lower()])
    elif isinstance(value, int) and not isinstance(value, bool):
        mib = value
    else:
        raise ValueError(f"is {shown(value)}, but must be {accepted}")
    if not 1 <= mib <= MAX_MEM_MIB:
        raise ValueError(f"is {shown(value)}, but must be {accepted}, from 1 to {MAX_MEM_MIB}")
    return mib


def seconds(value: object) -> float:
    """Seconds: 45, "45s", "90m", "2h", "1h30m", "1d", "250ms"."""
    found = _seconds(value)
    if found is None or not 0 <= found <= MAX_SECONDS:
        raise ValueError(
            f"is {shown(value)}, but must be a time such as 2h, 90m, 45s or a number of seconds, 0 or more"
        )
    return found


def milliseconds(value: object) -> float:
    """Milliseconds. The unit must be written ("40ms", "0.5s"), because a bare number could mean either."""
    found = _seconds(value) if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()) else None
    if found is None or not 0 < found <= MAX_SECONDS:
        raise ValueError(f"is {shown(value)}, but must be a time above 0 with its unit, such as 40ms or 0.5s")
    return round(found * 1000.0, 6)


def rate_rps(value: object) -> float:
    """Requests per second: a number, also as 1e6, which YAML 1.1 takes for a text."""
    text = value.strip() if isinstance(value, str) else ""
    found = float(text) if _SCIENTIFIC.fullmatch(text) else value
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= MAX_RATE_RPS:
        raise ValueError(f"is {shown(value)}, but must be a number above 0 and at most {MAX_RATE_RPS:,} (per second)")
    return float(found)


def priority(value: object) -> int:
    """low, normal, high, or a whole number of one's own (larger is more urgent)."""
    accepted = f"low, normal, high or a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in PRIORITIES:
        return PRIORITIES[text]
    number = int(text) if re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII) else value
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > MAX_PRIORITY:
        raise ValueError(f"is {shown(value)}, but must be {accepted}{did_you_mean(text, PRIORITIES)}")
    return number


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # An int too large for a float is out of range either way.
        return float(value) if abs(value) <= MAX_SECONDS else None
    if not isinstance(value, str) or len(value) > 100:
        return None
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    total, at = 0.0, 0
    while match := _PART.match(text, at):
        total += float(match[1]) * _SECONDS[match[2].lower()]
        at = match.end()
    return total if at == len(text) and at > 0 else None
