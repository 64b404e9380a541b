"""A transcript as hardware: the GPU that somebody has tested becomes the stand-in's.

    python -m tests.standin.replay FILE          new hardware as the transcript says, in $GPULOOM_STANDIN_STATE
    python -m tests.standin.replay FILE OTHER    how two transcripts differ, times aside

What it takes over: product, memory, driver, profiles and their places, whether a change of MIG mode waits for a reset,
how long an instance stays in use, and the functions that answer nothing but one error. How MPS behaves it does not.
"""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuloom.gpus.host.nvml import Code
from tests.standin.transcripts import CallTold, Told, TranscriptError, differences, read_transcript

NAME = "replayed"
ANY_NUMBER = 999
MEDIA = {"+me": 1, "+me.all": 2, "-me": 3}
"""As `world.h` counts them."""
OF_THE_MOMENT = (Code.NO_PERMISSION, Code.NOT_FOUND, Code.GPU_IS_LOST, Code.IN_USE, Code.INSUFFICIENT_RESOURCES)
"""Codes that say how it stood then, not what the driver is."""
PROFILE_INFO = "nvmlDeviceGetGpuInstanceProfileInfo"
MOST_GPUS = 8


@dataclass(frozen=True, slots=True)
class Replayed:
    lines: list[str]
    """Of the description that `replayed.c` reads."""
    models: list[str]
    """For `standinctl init`."""
    environment: dict[str, str]
    """Of whoever uses the hardware."""

    @property
    def told(self) -> str:
        return "".join(f"export {name}={value}\n" for name, value in self.environment.items())


MODES = {"persistence": "persistence_mode", "compute": "compute_mode", "virtual": "virtualization_mode"}


def replayed(told: Told, path: Path) -> Replayed:
    versions, lines = told.facts("versions"), list[str]()
    try:
        named = {"model": versions["model"] or NAME, "product": versions["product"], "pci": versions["pci_device_id"]}
        lines += [f"{fact} {name}" for fact, name in named.items()]
        modes = [f"{mode}={versions[fact]}" for mode, fact in MODES.items() if versions[fact] is not None]
        environment = {"GPULOOM_STANDIN_DRIVER": versions["driver"], "GPULOOM_STANDIN_MODES": ",".join(modes)}
        profiles = _profiles(told)
        rows = [_profile_line(row) for row in profiles]
        units = max((start + size for row in profiles for start, size in row["placements"]), default=0)
        slices = max((row["slices"] for row in profiles), default=0)
        lines.append(f"shape {versions['mem_mib']} {slices} {units} {int(not _waits_for_reset(told))}")
        on = "+mig" if (versions["mig_mode"] or [0])[0] else ""
        count = min(versions["gpus"], MOST_GPUS)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TranscriptError(f"{path}: what it says of the GPU cannot be replayed: {error}") from None
    in_use_s = told.facts("process on an instance").get("in_use_s") or 0.0
    # It was asked every half second: it ended somewhere in the last of them.
    environment["GPULOOM_STANDIN_LINGER_S"] = f"{max(0.0, in_use_s - 0.25):g}"
    return Replayed([*lines, *rows, *_codes(told)], [NAME + on] * count, environment)


def _profiles(told: Told) -> list[dict[str, Any]]:
    """With their places: older drivers tell those only while MIG is on."""
    for part in ("profiles, MIG on", "profiles, MIG off"):
        rows: list[dict[str, Any]] = told.facts(part).get("profiles", [])
        if rows and all(row["placements"] for row in rows):
            return rows
    return []


def _profile_line(row: dict[str, Any]) -> str:
    name, starts = row["name"], sorted(start for start, _ in row["placements"])
    size = row["placements"][0][1]
    step = starts[1] if len(starts) > 1 else size
    if starts != [number * step for number in range(len(starts))]:
        raise ValueError(f"{name} has places at {starts}, and the stand-in only knows equal distances")
    media = next((MEDIA[end] for end in sorted(MEDIA, key=len, reverse=True) if name.endswith(end)), 0)
    kind = (row["number"], row["id"], row["slices"])
    numbers = (*kind, size, step, len(starts), row["limit"], row["mem_mib"], row["sms"], media)
    return f"profile {' '.join(map(str, numbers))} {name}"


def _waits_for_reset(told: Told) -> bool:
    return any(told.facts(part).get("waits_for_reset") for part in ("MIG off", "MIG on"))


def _codes(told: Told) -> Iterator[str]:
    """Functions that gave one error whenever they were asked, and profiles that the GPU does not have."""
    seen, absent = defaultdict[tuple[str, int], set[int]](set), dict[tuple[str, int, int], int]()
    for mig, call in _calls_by_mode(told):
        name = _exported(call)
        seen[name, mig].add(call.code)
        if call.call == PROFILE_INFO and call.code not in (0, Code.NOT_SUPPORTED):
            absent[name, mig, call.args[1]] = call.code
    for (name, mig), codes in seen.items():
        if len(codes) == 1 and not codes & {0, *OF_THE_MOMENT}:
            yield f"code {name} {mig} {ANY_NUMBER} {codes.pop()}"
    for (name, mig, number), code in absent.items():
        yield f"code {name} {mig} {number} {code}"


def _calls_by_mode(told: Told) -> Iterator[tuple[int, CallTold]]:
    """The calls about a device, each with whether MIG was on."""
    mig = None
    for call in (call for part in told.parts for call in part.calls):
        if call.call == "nvmlDeviceGetMigMode":
            mig = call.answer[0] if call.code == 0 else 0
        if mig is not None and call.args and str(call.args[0]).startswith("<"):
            yield mig, call


def _exported(call: CallTold) -> str:
    """As the library calls it: its second version of these has another name."""
    if call.call == PROFILE_INFO:
        return call.call + ("V" if call.args[2] == 2 else "")
    if call.call == "nvmlGpuInstanceGetComputeInstanceProfileInfo":
        return call.call + ("" if call.args[3:] == [1] else "V")
    return call.call


def describe_gpu(path: Path, state: str) -> Replayed:
    """Write the description where the stand-in looks for it, and say what to install."""
    found = replayed(read_transcript(path), path)
    Path(f"{state}.replayed").write_text("".join(f"{line}\n" for line in found.lines), encoding="utf-8")
    return found


def main(words: list[str]) -> int:
    from tests.standin.build import build

    if len(words) not in (1, 2):
        print("usage: python -m tests.standin.replay FILE [OTHER]", file=sys.stderr)
        return 2
    try:
        if len(words) == 2:
            found = differences(*(read_transcript(Path(word)) for word in words))
            sys.stdout.writelines(f"{line}\n" for line in found)
            return int(bool(found))
        install = describe_gpu(Path(words[0]), os.environ["GPULOOM_STANDIN_STATE"])
    except TranscriptError as reason:
        print(reason, file=sys.stderr)
        return 1
    subprocess.run([build() / "standinctl", "init", *install.models], check=True)
    print(install.told, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
