"""What the driver and the kernel say of a GPU's health, to tell a device that failed from a job that did.

It only looks. What is not told is None, and None is no bad sign. What counts is what is new since somebody last looked:
a GPU that came with a retired page works. Some Xids are a program's own doing; those are left out.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpuloom.gpus.host.nvml import as_text, ask

OF_PROGRAMS = frozenset({13, 31, 43, 45, 66, 68, 69, 109})
"""Xids that a program can cause: bad addresses, its own channel's errors, and what is cleaned up after it."""
_BUS = "[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+"
_XID = re.compile(rf"(?m)^[0-9]+,([0-9]+),[^;\n]*;.*NVRM: Xid \(PCI:({_BUS})[^)]*\): ([0-9]+)")
_RECOVERIES: Mapping[int, str] = {
    1: "it has to be reset",
    2: "the machine has to be restarted",
    3: "its links have to be drained",
    4: "it has to be drained and reset",
}


class Xid(NamedTuple):
    """One critical event."""

    at: int
    """Its place in the kernel's log, of which old lines may be gone."""
    code: int


@dataclass(frozen=True, slots=True)
class Health:
    """At one moment."""

    ecc_errors: int | None = None
    """Memory errors since the driver was loaded that could not be corrected."""
    pages_pending: bool | None = None
    """Pages are to be retired, or rows remapped, at the next reset."""
    remap_failed: bool | None = None
    recovery: int | None = None
    """What the driver wants to be done, by NVML's numbers; 0 is nothing. Drivers before R560 do not say."""
    xids: tuple[Xid, ...] = ()
    """Critical events that the kernel's log still has, in order."""


def read_health(nvml: Any, handle: Any, kernel_log: Callable[[], str] = lambda: "") -> Health:
    remapped = ask(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    retiring = ask(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    pending = [bool(value) for value in (retiring, None if remapped is None else remapped[2]) if value is not None]
    pci = ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return Health(
        ecc_errors=ask(
            nvml,
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        pages_pending=any(pending) if pending else None,
        remap_failed=None if remapped is None else bool(remapped[3]),
        recovery=_recovery(nvml, handle),
        xids=() if pci is None else xids_of(kernel_log(), as_text(pci.busId)),
    )


def what_is_new(before: Health, now: Health) -> str | None:
    """The first reason to blame the GPU for what happened in between; None if there is none."""
    if now.recovery is not None and now.recovery in _RECOVERIES and now.recovery != before.recovery:
        return f"the driver says that {_RECOVERIES[now.recovery]}"
    seen = max((xid.at for xid in before.xids), default=-1)
    new_xids = [xid.code for xid in now.xids if xid.at > seen and xid.code not in OF_PROGRAMS]
    if new_xids:
        return f"the driver reported Xid {new_xids[0]}"
    count = _more(before.ecc_errors or 0, now.ecc_errors or 0)
    if count:
        return f"{count} memory error{'s' if count > 1 else ''} could not be corrected"
    if now.remap_failed and not before.remap_failed:
        return "rows of its memory could not be remapped"
    if now.pages_pending and not before.pages_pending:
        return "parts of its memory wait to be retired at a reset"
    return None


def _more(before: int, now: int) -> int:
    """Of something that is counted since the driver was loaded: if there are fewer, it was loaded anew."""
    return now - before if now >= before else now


def xids_of(log: str, bus_id: str) -> tuple[Xid, ...]:
    """Of one GPU, of all records that the log still has. Buses are written with four or eight digits of the domain."""
    wanted = _bus(bus_id.rpartition(".")[0] or bus_id)
    return tuple(Xid(int(at), int(code)) for at, bus, code in _XID.findall(log) if _bus(bus) == wanted)


def _bus(text: str) -> tuple[int, ...]:
    with suppress(ValueError):
        return tuple(int(part, 16) for part in text.split(":"))
    return ()


def _recovery(nvml: Any, handle: Any) -> int | None:
    number = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = None if number is None else ask(nvml, nvml.nvmlDeviceGetFieldValues, handle, [number])
    if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def kernel_log(root: Path = Path("/")) -> str:
    """What the kernel's ring still has; nothing if it is not for us to read."""
    try:
        ring = os.open(root / "dev" / "kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    records = list[bytes]()
    try:
        while record := _record(ring):
            records.append(record)
    finally:
        os.close(ring)
    return b"\n".join(records).decode(errors="replace")


def _record(ring: int) -> bytes:
    while True:
        try:
            return os.read(ring, 8192)
        except BrokenPipeError:
            continue  # it was overwritten while it was read; the next one is there
        except OSError:
            return b""
