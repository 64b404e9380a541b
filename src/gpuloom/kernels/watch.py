"""Who shares a device now and what they do: the counters of the shared memory, as rates between two looks."""

import ctypes
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from gpuloom.kernels.core import Policy, Region, Slot, load
from gpuloom.kernels.session import policy_of

COUNTERS = (
    "launches", "fills", "floors", "overruns", "overrun_ns", "waited_ns", "ran_ns", "gaps", "gaps_ns", "gap_error_ns",
)  # fmt: skip
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Look:
    """The counters of every queue at one moment, by its slot and process."""

    at_ns: int
    counters: dict[tuple[int, int], dict[str, int]]


def look(region: Region) -> Look:
    load().loom_reap(ctypes.byref(region))
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return Look(now, {(index, slot.pid): _counters(slot, now) for index, slot in region.taken()})


def _counters(slot: Slot, now: int) -> dict[str, int]:
    """With the wait that is going on, which the slot counts at its end."""
    counters: dict[str, int] = {name: getattr(slot, name) for name in COUNTERS}
    waiting_since = slot.waiting_since
    counters["waited_ns"] += max(now - waiting_since, 0) if waiting_since else 0
    return counters


def snapshot(region: Region, since: Look | None = None) -> list[dict[str, object]]:
    """A row for each queue, in the order of priorities: rates over the time since then, and totals.

    Rates are None where nothing is counted: under `share`, and for a queue that has its device for itself.
    """
    now = look(region)
    gated = policy_of(region) != Policy.SHARE.name.lower()
    fillers = {device.filler - 1 for device in region.head.devices if device.filler}
    taken = [(index, slot) for index, slot in region.taken() if (index, slot.pid) in now.counters]
    on_device = Counter(slot.device for _, slot in taken)
    rows = []
    for index, slot in sorted(taken, key=lambda one: (one[1].priority, one[0])):
        company = on_device[slot.device] > 1
        state, for_ms = _state(slot, now.at_ns, index in fillers, company) if gated else ("ungated", None)
        totals = now.counters[index, slot.pid]
        rows.append(
            {
                "pid": slot.pid,
                "program": program_of(slot.pid, slot.name.decode(errors="replace")),
                "priority": slot.priority,
                "state": state,
                **rates((index, slot.pid), now, since if gated and company else None),
                "allowed_pct": slot.slowdown_ppm / 1e4,
                "for_ms": for_ms,
                "queue": index,
                "device": slot.device,
                "launches": totals["launches"],
                "ran_ms": _ms(totals["ran_ns"]),
                "waited_ms": _ms(totals["waited_ns"]),
                "fills": totals["fills"],
                "floor_fills": totals["floors"],
                "delayed": totals["overruns"],
                "delayed_ms": _ms(totals["overrun_ns"]),
                "gaps": totals["gaps"],
                "gaps_ms": _ms(totals["gaps_ns"]),
                "gap_error_ms": _ms(totals["gap_error_ns"]),
            }
        )
    return rows


def _state(slot: Slot, now: int, fills: bool, company: bool) -> tuple[str, float | None]:
    """And for how long, of those who wait or are idle."""
    waiting_since, idle_since = slot.waiting_since, slot.idle_since  # the owner goes on while we look
    if waiting_since:
        return "waits", _ms(max(now - waiting_since, 0))
    if slot.in_flight:
        return "fills" if fills else "runs", None
    return ("idle", _ms(max(now - idle_since, 0)) if idle_since else None) if company else ("alone", None)


def rates(key: tuple[int, int], now: Look, since: Look | None) -> dict[str, float | None]:
    """Of one queue, over the time between the two looks."""
    names = ("device_pct", "launches_per_s", "waits_pct", "slowed_pct", "gap_error_pct")
    if since is None or now.at_ns <= since.at_ns:
        return dict.fromkeys(names)
    totals, before = now.counters[key], since.counters.get(key, {})
    if before.get("launches", 0) > totals["launches"]:  # the process has made another queue in that slot
        before = {}
    more = {name: total - before.get(name, 0) for name, total in totals.items()}
    span_ns = now.at_ns - since.at_ns
    shares = (
        _share(100 * more["ran_ns"], span_ns),
        _share(1e9 * more["launches"], span_ns),
        _share(100 * more["waited_ns"], span_ns),
        _share(100 * more["overrun_ns"], more["ran_ns"]),
        _share(100 * more["gap_error_ns"], more["gaps_ns"]),
    )
    return dict(zip(names, shares, strict=True))


def _share(part: float, whole: int) -> float | None:
    return round(max(part, 0) / whole, 1) if whole > 0 else None


def _ms(ns: int) -> float:
    return round(ns / 1e6, 1)


def program_of(pid: int, otherwise: str) -> str:
    """What a user calls it: the command without its folder and, if Python runs a script, without Python."""
    try:
        cells = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        cells = []
    return short_command(cells) or otherwise


def short_command(cells: Sequence[str]) -> str:
    if not cells or not cells[0]:
        return ""
    options = list(takewhile(lambda cell: cell.startswith("-"), cells[1:]))
    is_script = len(cells) > len(options) + 1 and not any(option[:2] in ("-c", "-m", "-X", "-W") for option in options)
    if is_script and re.fullmatch(r"pypy[\d.]*|python[\d.]*", Path(cells[0]).name):
        cells = cells[len(options) + 1 :]
    shown = " ".join((Path(cells[0]).name, *cells[1:]))
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in shown).split())
    return shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 1] + "…"
