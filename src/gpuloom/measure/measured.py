"""What a campaign left in its folder, read again: rows, the model of the device, what they were measured on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.model import GpuModel, Profile
from gpuloom.measure.arrangement import Seat
from gpuloom.measure.results import Copy
from gpuloom.measure.table import from_csv
from gpuloom.work.source import read_text

CSV, METADATA = "measured.csv", "measured.json"
OWN_FILES = (CSV, METADATA, "journal.jsonl", "asked.json")
"""That a campaign keeps in its folder."""


class Stop(StrEnum):
    """Why a campaign is over."""

    KNOWN = "all is known"
    ENOUGH = "as many runs as were wished for are made"
    BUDGET = "the budget is spent"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Measured:
    rows: tuple[Copy, ...]
    model: GpuModel
    facts: tuple[str, ...]
    """Device, driver and day, in words."""
    host_cpus: int | None = None
    """That the host has beside its device; None: not known, or they are the device."""
    devices: tuple[str, ...] = ()
    """As the command line named the device; none: a GPU."""
    gpu: int = 0
    """Its number on its host."""
    notes: tuple[str, ...] = ()
    """What to bear in mind of all figures, in sentences."""
    places: Mapping[str, tuple[Seat, ...]] = field(default_factory=dict)
    """Of each workload that was not run everywhere: the places in which it could have been run."""


def read_measured(folder: Path) -> Measured:
    """InputError, in a sentence, if nothing was measured there."""
    if not (folder / CSV).exists():
        raise InputError(f"{folder}: has no {CSV}; expected the state folder of gpuloom measure")
    rows = from_csv(read_text(folder / CSV, "what was measured"), str(folder / CSV))
    told = _metadata(folder / METADATA)
    try:
        model, device = model_from(told["model"]), told["device"]
        facts = (f"{device['product']} ({device['model']})", f"driver {device['driver'] or 'unknown'}")
        devices, gpu = tuple(map(str, told.get("devices") or ())), int(told.get("gpu") or 0)
        notes = tuple(_notes(told))
        places = places_told(told.get("explored") or {"places": [], "not_run": []})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / METADATA}: does not tell the device; expected what gpuloom measure wrote"
        ) from error
    _check(rows, model, folder / CSV)
    cpus = None if devices else told.get("host_cpus")
    return Measured(tuple(rows), model, facts, cpus if isinstance(cpus, int) else None, devices, gpu, notes, places)


def _notes(told: Mapping[str, Any]) -> Iterator[str]:
    if told.get("noise"):
        yield f"on a CPU device: {Noise(**told['noise'])}"
    if "stop" in told and told["stop"] not in (Stop.KNOWN, Stop.ENOUGH):
        why = told["stop"] or "nobody has ended it yet"
        yield f"not all was measured that was asked for ({why}): the same gpuloom measure goes on"


def _check(rows: Sequence[Copy], model: GpuModel, path: Path) -> None:
    """Such rows as a campaign on this device may have."""
    seen = set()
    for line, row in enumerate(rows, 2):
        profile = row.seat.profile
        if profile is not None and profile not in model.by_name:
            raise InputError(
                f"{path}: line {line}: profile is {profile[:40]!r}; accepted are {', '.join(model.by_name)}"
            )
        copy = row.run, row.copy, row.batches
        if copy in seen or row.copy >= row.copies:
            raise InputError(
                f"{path}: line {line}: run {row.run} has {row.copies} copies, and copy {row.copy} is no other"
            )
        seen.add(copy)


def places_told(explored: Mapping[str, Any]) -> dict[str, tuple[Seat, ...]]:
    """Of each workload that was not run in all of its places: all of them."""
    there, not_run = (
        [Seat(str(one["workload"]), one["profile"], float(one["share_pct"])) for one in explored[name]]
        for name in ("places", "not_run")
    )
    names = dict.fromkeys(seat.workload for seat in not_run)
    return {name: tuple(seat for seat in there if seat.workload == name) for name in names}


def _metadata(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(read_text(path, "what it was measured on"))
    except ValueError as error:
        raise InputError(f"{path}: is no JSON ({error}); expected what gpuloom measure wrote") from None
    return told if isinstance(told, dict) else {}


def model_as(model: GpuModel) -> dict[str, object]:
    """As metadata have it: a device need not be one of the catalogue's."""
    profiles = [
        {
            name: getattr(profile, name)
            for name in ("name", "nvml_id", "slices", "size", "starts", "mem_mib", "sms", "limit")
        }
        for profile in model.profiles
    ]
    return {"name": model.name, "mem_mib": model.mem_mib, "sms": model.sms, "units": model.units, "profiles": profiles}


def model_from(told: Mapping[str, Any]) -> GpuModel:
    profiles = tuple(
        Profile(
            str(one["name"]), int(one["nvml_id"]), int(one["slices"]), int(one["size"]),
            tuple(map(int, one["starts"])), int(one["mem_mib"]), int(one["sms"]), int(one["limit"]),
        )
        for one in told["profiles"]
    )  # fmt: skip
    return GpuModel(str(told["name"]), int(told["mem_mib"]), int(told["sms"]), int(told["units"]), profiles)
