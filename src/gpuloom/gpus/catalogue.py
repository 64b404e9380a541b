"""The GPUs that gpuloom knows: memory, SMs, and the profiles, placements and limits of those with MIG.

Figures are what `nvidia-smi mig -lgip` and `-lgipp` print, and the MIG user guide's tables; what was derived says so.
They differ a little by driver and board, so on a real host NVML has the last word. How profiles combine: `layouts`.
"""

import re

from gpuloom.errors import InputError
from gpuloom.gpus.model import GpuModel, Profile


def _seven(gb: tuple[int, ...], mib: tuple[int, ...], sms: tuple[int, ...]) -> tuple[Profile, ...]:
    """The shape that A100, H100 and H200 share: 7 compute slices on 8 memory units.

    Gigabytes in the name, MiB and SMs of 1g, 1g with double memory, 2g, 3g, 4g, 7g.
    """
    return (
        Profile(f"1g.{gb[0]}gb", 19, 1, 1, (0, 1, 2, 3, 4, 5, 6), mib[0], sms[0], limit=7),
        Profile(f"1g.{gb[0]}gb+me", 20, 1, 1, (0, 1, 2, 3, 4, 5, 6), mib[0], sms[0], limit=1),
        Profile(f"1g.{gb[1]}gb", 15, 1, 2, (0, 2, 4, 6), mib[1], sms[1], limit=4),
        Profile(f"2g.{gb[2]}gb", 14, 2, 2, (0, 2, 4), mib[2], sms[2], limit=3),
        Profile(f"3g.{gb[3]}gb", 9, 3, 4, (0, 4), mib[3], sms[3], limit=2),
        Profile(f"4g.{gb[4]}gb", 5, 4, 4, (0,), mib[4], sms[4], limit=1),
        Profile(f"7g.{gb[5]}gb", 0, 7, 8, (0,), mib[5], sms[5], limit=1),
    )


_A100_SMS = (14, 14, 28, 42, 56, 98)
_GB_80 = (10, 20, 20, 40, 40, 80)
_H100_MIB = (9984, 20096, 20096, 40448, 40448, 81152)
_H100_SXM_SMS = (16, 26, 32, 60, 64, 132)

_A30 = (
    Profile("1g.6gb", 14, 1, 1, (0, 1, 2, 3), 5952, 14, limit=4),
    Profile("1g.6gb+me", 21, 1, 1, (0, 1, 2, 3), 5952, 14, limit=1),
    Profile("2g.12gb", 5, 2, 2, (0, 2), 11968, 28, limit=2),
    Profile("2g.12gb+me", 6, 2, 2, (0, 2), 11968, 28, limit=1),
    Profile("4g.24gb", 0, 4, 4, (0,), 24000, 56, limit=1),
)

_RTX_PRO_6000 = (
    Profile("1g.24gb", 14, 1, 3, (0, 3, 6, 9), 24192, 46, limit=4),
    Profile("1g.24gb+me", 21, 1, 3, (0, 3, 6, 9), 24192, 46, limit=1),
    Profile("1g.24gb+gfx", 47, 1, 3, (0, 3, 6, 9), 24192, 46, limit=4),
    Profile("1g.24gb+me.all", 65, 1, 3, (0, 3, 6, 9), 24192, 46, limit=1),
    Profile("1g.24gb-me", 67, 1, 3, (0, 3, 6, 9), 24192, 46, limit=4),
    Profile("2g.48gb", 5, 2, 6, (0, 6), 48512, 94, limit=2),
    Profile("2g.48gb+gfx", 35, 2, 6, (0, 6), 48512, 94, limit=2),
    Profile("2g.48gb+me.all", 64, 2, 6, (0, 6), 48512, 94, limit=1),
    Profile("2g.48gb-me", 66, 2, 6, (0, 6), 48512, 94, limit=2),
    Profile("4g.96gb", 0, 4, 12, (0,), 97280, 188, limit=1),
    Profile("4g.96gb+gfx", 32, 4, 12, (0,), 97280, 188, limit=1),
)

_MODELS = (
    GpuModel(
        "A100-40GB",
        mem_mib=40960,
        sms=108,
        units=8,
        profiles=_seven((5, 10, 10, 20, 20, 40), (4864, 9856, 9856, 19968, 19968, 40192), _A100_SMS),
    ),
    GpuModel(
        "A100-80GB",
        mem_mib=81920,
        sms=108,
        units=8,
        profiles=_seven(_GB_80, (9856, 19968, 19968, 40192, 40192, 80384), _A100_SMS),
    ),
    GpuModel("A30-24GB", mem_mib=24576, sms=56, units=4, profiles=_A30),
    GpuModel(
        "H100-SXM-80GB",
        mem_mib=81559,
        sms=132,
        units=8,
        profiles=_seven(_GB_80, _H100_MIB, _H100_SXM_SMS),
    ),
    GpuModel(
        "H100-PCIe-80GB",
        mem_mib=81559,
        sms=114,
        units=8,
        profiles=_seven(_GB_80, _H100_MIB, (14, 14, 30, 46, 62, 114)),
    ),
    GpuModel(
        "H200-141GB",
        mem_mib=143771,
        sms=132,
        units=8,
        # Placements by analogy with the H100. The memory of 7g is derived: the board's, less about what an H100 loses.
        profiles=_seven((18, 35, 35, 71, 71, 141), (16384, 33024, 33024, 71168, 71168, 143360), _H100_SXM_SMS),
    ),
    GpuModel("RTX-PRO-6000-96GB", mem_mib=97887, sms=188, units=12, profiles=_RTX_PRO_6000),
    GpuModel("V100-16GB", mem_mib=16384, sms=80),
    GpuModel("V100-32GB", mem_mib=32768, sms=80),
    GpuModel("T4-16GB", mem_mib=15360, sms=40),
)

MODELS: dict[str, GpuModel] = {model.name: model for model in _MODELS}

_ALIASES = {
    "a100": "A100-40GB",
    "a30": "A30-24GB",
    "h100": "H100-SXM-80GB",
    "h100-80gb": "H100-SXM-80GB",
    "h100-sxm": "H100-SXM-80GB",
    "h100-pcie": "H100-PCIe-80GB",
    "h200": "H200-141GB",
    "rtx-pro-6000": "RTX-PRO-6000-96GB",
    "rtx-pro-6000-blackwell": "RTX-PRO-6000-96GB",
    "v100": "V100-16GB",
    "t4": "T4-16GB",
}
_BY_KEY = {name.lower(): model for name, model in MODELS.items()} | {
    key: MODELS[name] for key, name in _ALIASES.items()
}

# What drivers call the boards. H100 NVL, GH200, A100X and the export models have other memory or SMs: left unknown.
_PRODUCTS = (
    (r"a100-(sxm4|pcie)-40gb", "A100-40GB"),
    (r"a100-(sxm4|pcie)-80gb|a100-80gb-pcie", "A100-80GB"),
    (r"a30", "A30-24GB"),
    (r"h100-80gb-hbm3", "H100-SXM-80GB"),
    (r"h100-pcie", "H100-PCIe-80GB"),
    (r"h200(-nvl)?", "H200-141GB"),
    (r"rtx-pro-6000-blackwell(-.*)?", "RTX-PRO-6000-96GB"),
    (r"v100-.*-16gb", "V100-16GB"),
    (r"v100-.*-32gb", "V100-32GB"),
    (r"t4", "T4-16GB"),
)

PCI_IDS: dict[str, frozenset[str]] = {
    "A100-40GB": frozenset({"0x20B010DE", "0x20B110DE", "0x20F110DE"}),
    "A100-80GB": frozenset({"0x20B210DE", "0x20B510DE"}),
    "A30-24GB": frozenset({"0x20B710DE"}),
    "H100-SXM-80GB": frozenset({"0x233010DE"}),
    "H100-PCIe-80GB": frozenset({"0x233110DE"}),
    "H200-141GB": frozenset({"0x233510DE", "0x233B10DE"}),
    "RTX-PRO-6000-96GB": frozenset({"0x2BB110DE", "0x2BB410DE", "0x2BB510DE"}),
    "V100-16GB": frozenset({"0x1DB110DE", "0x1DB210DE", "0x1DB310DE", "0x1DB410DE"}),
    "V100-32GB": frozenset({"0x1DB510DE", "0x1DB610DE", "0x1DB710DE", "0x1DB810DE", "0x1DF610DE"}),
    "T4-16GB": frozenset({"0x1EB810DE"}),
}
"""Of the boards of each model: device, then vendor, as lists of PCI ids have them. A board that is here on this host is
asked for its own; these are for plans without one."""


def _key(text: str) -> str:
    return re.sub(r"^(nvidia|tesla)-", "", re.sub(r"[\s_]+", "-", text.strip().lower()))


def find(name: str) -> GpuModel:
    """The model with this name or alias, whatever its case."""
    model = known(name)
    if model is None:
        raise InputError(f"GPU model {name!r} is not known; accepted are {', '.join(MODELS)}")
    return model


def known(name: str) -> GpuModel | None:
    """None: it is not in the catalogue, as a CPU device is not."""
    return _BY_KEY.get(_key(name)) or guess(name)


def guess(product: str) -> GpuModel | None:
    """The model behind a driver's product name ("NVIDIA A100-SXM4-40GB"), or None: better than a wrong guess."""
    key = _key(product)
    return next((MODELS[name] for pattern, name in _PRODUCTS if re.fullmatch(pattern, key)), None)


def base_profiles(model: GpuModel) -> tuple[Profile, ...]:
    """One profile for each number of compute slices: without suffix (+me, -me, +gfx), and without the double-memory 1g.

    These are what layouts are enumerated over; the others are variants of one of them and can be placed by name.
    """
    plain = [profile for profile in model.profiles if "+" not in profile.name and "-" not in profile.name]
    return tuple(
        profile
        for profile in plain
        if profile.size == min(other.size for other in plain if other.slices == profile.slices)
    )
