"""mig-parted's `mig-configs` files, in and out. They count profiles; which placement that means is worked out here.

version: v1
mig-configs:
  balanced:
    - devices: all              # or [0, 1]
      device-filter: 0x20B010DE # optional: PCI ids of boards, one or a list; with a colon, the subsystem's as well
      mig-enabled: true
      mig-devices: {"3g.20gb": 1, "2g.10gb": 2}
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import PCI_IDS
from gpuloom.gpus.layouts import check, placements
from gpuloom.gpus.model import GpuModel, Layout

_FIELDS = ("devices", "device-filter", "mig-enabled", "mig-devices")


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule of a configuration: which GPUs it is about and what each of them is cut into."""

    devices: tuple[int, ...] | None = None
    """GPU indices; None: all."""
    device_filter: tuple[str, ...] = ()
    """PCI ids, perhaps each with a colon and the subsystem's; (): any."""
    mig_enabled: bool = True
    mig_devices: tuple[tuple[str, int], ...] = ()
    """How many instances of each profile."""

    def about(self, model: GpuModel, device: int, board: str | None = None) -> bool:
        """Whether the rule is about this GPU, whose board has these PCI ids; without, it is any board of its model."""
        boards = PCI_IDS.get(model.name, frozenset()) if board is None else {board}
        listed = not self.device_filter or any(_meant(one, by) for one in boards for by in self.device_filter)
        return listed and (self.devices is None or device in self.devices)


def _meant(board: str, by: str) -> bool:
    """A part that one of the two leaves open is no difference."""
    pairs = zip(board.split(":"), by.split(":"), strict=False)
    return all(int(has, 16) == int(wants, 16) for has, wants in pairs)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A configuration that cannot be used here. The others of its file can."""

    reason: str


Configs = dict[str, tuple[Entry, ...] | Unusable]


def entries_of(configs: Configs, name: str, source: str) -> tuple[Entry, ...]:
    """The entries of a configuration; InputError if there is none of this name, or if it cannot be used."""
    if name not in configs:
        raise InputError(f"{source}: there is no configuration {name!r}; accepted are {', '.join(configs)}")
    found = configs[name]
    if isinstance(found, Unusable):
        raise InputError(found.reason)
    return found


def parse_configs(text: str, source: str = "mig-configs") -> Configs:
    """The configurations of a file, by name; `source` is what errors call it. What is wrong in one is kept for whoever
    asks for that one.
    """
    import yaml

    try:
        document = yaml.safe_load(text)
    except Exception as error:  # on odd scalars PyYAML lets ValueError, IndexError and others through
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"{source}: not valid YAML{line}: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("mig-configs"), dict):
        raise InputError(f"{source}: field mig-configs is missing; accepted is a mapping of names to lists of entries")
    if document.get("version") != "v1":
        raise InputError(f"{source}: field version is {document.get('version')!r}; accepted is v1")
    if unknown := set(document) - {"version", "mig-configs"}:
        raise InputError(f"{source}: field {min(map(str, unknown))} is not known; accepted are version and mig-configs")
    return {
        str(name): _usable(value, f"{source}: mig-configs.{name}") for name, value in document["mig-configs"].items()
    }


def _usable(value: object, where: str) -> tuple[Entry, ...] | Unusable:
    try:
        return _entries(value, where)
    except InputError as reason:
        return Unusable(str(reason))


def _entries(value: object, where: str) -> tuple[Entry, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} must be a list of entries, each with {', '.join(_FIELDS)}")
    return tuple(_entry(item, f"{where}[{index}]") for index, item in enumerate(value))


def _entry(item: object, where: str) -> Entry:
    if not isinstance(item, dict):
        raise InputError(f"{where} must be a mapping with {', '.join(_FIELDS)}")
    if unknown := set(item) - set(_FIELDS):
        raise InputError(f"{where}: field {min(map(str, unknown))} is not known; accepted are {', '.join(_FIELDS)}")
    enabled = item.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise InputError(f"{where}.mig-enabled is {enabled!r}; accepted are true and false")
    counts = _counts(item.get("mig-devices"), f"{where}.mig-devices")
    if counts and not enabled:
        raise InputError(f"{where}.mig-devices must be empty, as mig-enabled is false")
    return Entry(_devices(item, where), _filter(item.get("device-filter"), where), enabled, counts)


def _devices(item: Mapping[str, object], where: str) -> tuple[int, ...] | None:
    devices = item.get("devices")
    if devices == "all":
        return None
    if not isinstance(devices, list) or not all(type(index) is int and index >= 0 for index in devices):
        raise InputError(f"{where}.devices is {devices!r}; accepted are all and a list of GPU indices such as [0, 1]")
    return tuple(devices)


def _filter(value: object, where: str) -> tuple[str, ...]:
    # Unquoted, YAML reads 0x20B010DE as a number.
    listed = [
        f"0x{item:08X}" if type(item) is int else item for item in (value if isinstance(value, list) else [value])
    ]
    if value is None:
        return ()
    for item in listed:
        if not isinstance(item, str) or not re.fullmatch(r"0[xX][0-9a-fA-F]{4,8}(:0[xX][0-9a-fA-F]{4,8})?", item):
            raise InputError(f"{where}.device-filter has {item!r}; accepted are PCI ids such as 0x20B010DE")
    return tuple(map(str, listed))


def _counts(value: object, where: str) -> tuple[tuple[str, int], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InputError(f'{where} must be a mapping of profiles to counts, such as {{"3g.20gb": 2}}')
    for profile, count in value.items():
        if not isinstance(profile, str) or not re.fullmatch(r"[0-9]+g\.[0-9]+gb([+-][a-z.]+)?", profile):
            raise InputError(f"{where}: {profile!r} is not a GPU instance profile; accepted are names such as 3g.20gb")
        if type(count) is not int or not 0 <= count <= 64:
            raise InputError(f"{where}.{profile} is {count!r}; accepted is a number of instances from 0 to 64")
    return tuple((profile, count) for profile, count in value.items() if count)


def entry_about(
    configs: Configs, name: str, model: GpuModel, device: int, source: str, board: str | None = None
) -> Entry:
    """The entry of configuration `name` that holds for this GPU, or InputError."""
    matching = [entry for entry in entries_of(configs, name, source) if entry.about(model, device, board)]
    if not matching:
        what = f"a {model.name}" if board is None else f"a {model.name} with the PCI id {board}"
        raise InputError(
            f"{source}: mig-configs.{name} has no entry for GPU {device}, {what}: see its devices and device-filter"
        )
    # mig-parted applies the entries in order, so that the last one about a GPU stands.
    return matching[-1]


def layouts_for(
    configs: Configs, name: str, model: GpuModel, device: int, source: str, board: str | None = None
) -> tuple[Layout, ...]:
    """Every exact layout that would satisfy configuration `name` on this GPU: at least one, or InputError."""
    where = f"{source}: mig-configs.{name}"
    wanted = entry_about(configs, name, model, device, source, board).mig_devices
    for profile, _ in wanted:
        if profile not in model.by_name:
            accepted = ", ".join(model.by_name) or "none, as it has no MIG"
            raise InputError(f"{where}: mig-devices: {profile} is not a profile of {model.name}; accepted: {accepted}")
    layouts = placements(model, tuple(profile for profile, count in wanted for _ in range(count)))
    if not layouts:
        counts = ", ".join(f"{count} × {profile}" for profile, count in wanted)
        raise InputError(f"{where}: mig-devices: {counts} do not fit on one {model.name}")
    return layouts


def entry_for(model: GpuModel, layout: Layout, devices: tuple[int, ...] | None = None) -> Entry:
    """An entry that asks for the profiles of this layout. Their placement is lost: the format has no field for it."""
    reason = check(model, layout)
    if reason is not None:
        raise ValueError(reason)
    counts = Counter(instance.profile for instance in layout)
    filters = tuple(sorted(PCI_IDS.get(model.name, ())))
    return Entry(devices, filters, bool(layout), tuple(sorted(counts.items(), reverse=True)))


def dump_configs(configs: Configs) -> str:
    """The text of a mig-parted file with these configurations; InputError if one of them cannot be used."""
    import yaml

    def plain(entry: Entry) -> dict[str, object]:
        shown: dict[str, object] = {"devices": "all" if entry.devices is None else list(entry.devices)}
        if entry.device_filter:
            shown = {"device-filter": list(entry.device_filter), **shown}
        shown["mig-enabled"] = entry.mig_enabled
        shown["mig-devices"] = dict(entry.mig_devices)
        return shown

    rules = {name: [plain(entry) for entry in entries_of(configs, name, "mig-configs")] for name in configs}
    return yaml.safe_dump({"version": "v1", "mig-configs": rules}, sort_keys=False)
