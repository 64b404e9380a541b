"""The compiled core (csrc/*.c), by ctypes: the shared memory as Python sees it, and the functions that replay calls.

The layout repeats csrc/loom.h; `load` refuses a library whose region has another size.
"""

import ctypes
import os
from enum import IntEnum
from functools import cache
from pathlib import Path

from gpuloom.errors import InputError

SLOTS, DEVICES, GAPS, NAME = 64, 16, 32, 24
LIBRARY = "libgpuloom_kernels.so"
"""The core and the OpenCL layer."""
CUDA_LIBRARY = "libgpuloom_cuda.so"

U32, U64, I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


class Policy(IntEnum):
    SHARE = 0
    STRICT = 1
    FIKIT = 2
    FILL = 3


class Slot(ctypes.Structure):
    """What one queue shows to the others."""

    _fields_ = (
        ("owner", U32),
        ("pid", U32),
        ("device", U32),
        ("priority", U32),
        ("in_flight", U32),
        ("slowdown_ppm", U32),
        ("floor_ppm", U32),
        ("waiting_since", U64),
        ("pending_ns", U64),
        ("busy_since", U64),
        ("idle_since", U64),
        ("busy_until", U64),
        ("budget_ns", I64),
        ("fikit_gap_ns", U64),
        ("gap_count", U32),
        ("gaps_us", U32 * GAPS),
        ("launches", U64),
        ("fills", U64),
        ("floors", U64),
        ("overruns", U64),
        ("overrun_ns", U64),
        ("waited_ns", U64),
        ("ran_ns", U64),
        ("gaps", U64),
        ("gaps_ns", U64),
        ("gap_error_ns", U64),
        ("name", ctypes.c_char * NAME),
    )


def _padded(size: int, to: int = 64) -> int:
    return -(-size // to) * to


class PaddedSlot(ctypes.Union):
    _fields_ = (("slot", Slot), ("_size", ctypes.c_char * _padded(ctypes.sizeof(Slot))))


class DeviceWord(ctypes.Structure):
    _fields_ = (("key", U64), ("filler", U32))


class _Head(ctypes.Structure):
    _fields_ = (
        ("magic", U64),
        ("version", U32),
        ("size", U32),
        ("policy", U32),
        ("used", U32),
        ("bell", U32),
        ("sleepers", U32),
        ("devices", DeviceWord * DEVICES),
    )


class Region(ctypes.Structure):
    """The shared memory."""

    _fields_ = (
        ("head", _Head),
        ("_to_the_next_line", ctypes.c_char * (_padded(ctypes.sizeof(_Head)) - ctypes.sizeof(_Head))),
        ("padded_slots", PaddedSlot * SLOTS),
    )

    def slot(self, index: int) -> Slot:
        found: Slot = self.padded_slots[index].slot
        return found

    def taken(self) -> list[tuple[int, Slot]]:
        """Slots that somebody has, with their numbers."""
        slots = [(index, self.slot(index)) for index in range(min(self.head.used, SLOTS))]
        return [(index, slot) for index, slot in slots if slot.owner]


def library_path(name: str = LIBRARY) -> Path:
    """Of a compiled library. An editable install keeps it apart from the sources: the package then has two folders."""
    import gpuloom.kernels

    stated = os.environ.get("GPULOOM_KERNELS_LIBRARY")
    if stated and name == LIBRARY:
        return Path(stated)
    places = [Path(folder) / name for folder in gpuloom.kernels.__path__]
    return next((place for place in places if place.exists()), places[0])


@cache
def load() -> ctypes.CDLL:
    path = library_path()
    try:
        core = ctypes.CDLL(str(path))
    except OSError as error:
        raise InputError(
            f"{path}: the compiled part of gpuloom is missing ({error}): install the package again"
        ) from None
    pointer = ctypes.c_void_p
    signatures: dict[str, tuple[object, tuple[object, ...]]] = {
        "loom_region_bytes": (U64, ()),
        "loom_region_init": (None, (ctypes.POINTER(Region),)),
        "loom_take": (ctypes.c_bool, (ctypes.POINTER(Region), U32, U32, U32, U64, U32, ctypes.c_char_p)),
        "loom_give_back": (None, (ctypes.POINTER(Region), U32)),
        "loom_queue_new": (pointer, (ctypes.POINTER(Region), U32)),
        "loom_queue_free": (None, (pointer,)),
        "loom_expect": (None, (pointer, U64, U64, U64)),
        "loom_ask": (ctypes.c_bool, (pointer, U64, U64, ctypes.POINTER(U64))),
        "loom_missed": (None, (pointer,)),
        "loom_failed": (ctypes.c_bool, (pointer, U64)),
        "loom_ended": (ctypes.c_bool, (pointer, U64, U64, U64)),
        "loom_expected_delay": (ctypes.c_double, (ctypes.POINTER(U32), U32, ctypes.c_double, ctypes.c_double)),
        "loom_kernel_id": (U64, (ctypes.c_char_p, U32, ctypes.POINTER(U64), ctypes.POINTER(U64))),
        "loom_region_open": (ctypes.POINTER(Region), (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)),
        "loom_region_leave": (None, (ctypes.POINTER(Region),)),
        "loom_reap": (ctypes.c_int, (ctypes.POINTER(Region),)),
        "loom_ring": (None, (ctypes.POINTER(Region),)),
        "gpuloom_queue_priority": (ctypes.c_int, (pointer, U32)),
        "gpuloom_queue_profile": (ctypes.c_int, (pointer, ctypes.c_char_p)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    if core.loom_region_bytes() != ctypes.sizeof(Region):
        raise InputError(f"{path}: is of another version of gpuloom: install the package again")
    return core
