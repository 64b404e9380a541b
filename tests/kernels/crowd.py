"""Many processes of all priorities on one busy device: `python -m tests.kernels.crowd SECONDS [--policy strict]`.

Runs csrc/crowd.c, with the core's sources, under a sanitizer. Exits with 1 unless all of this holds:

- No launch broke the order. crowd.c looks at all slots before and after each decision of the core. A launch below the
  top breaks the order if somebody higher had kernels in flight all the while (`over_running`), or if somebody higher,
  or equal and first, waited all the while and could have gone (`over_waiting`): nobody above was busy, and under `fill`
  his kernel was not the longer one. Two kinds of launches may do so and are counted apart: those that waited for a
  second, the core's bound (`overdue`), and those that the floor pays for (`by_floor`). No clock plays a part in it.
- The core told nobody to wait for longer than its bound (`too_long`), and nobody did at the gate, give or take SLACK_MS
  and what the machine itself takes: as long as the top priority, which never waits, was at the gate at most.
- The mean waits are in the order of the priorities: nobody waits less than TOLERANCE of what any higher priority waits,
  and the lowest at least twice as long as the highest. A wait is from asking to the start on the device, the mean over
  all kernels of a priority. Means are cut at ALIKE_MS: who waits for longer mostly waits for the bound, like anybody.
  Only in runs of LONG_S and more: a few waits make no mean.
- The floor gives low priorities time on purpose, so it is 0 so far. Under `fill`, in a second run with the floor as it
  comes: everybody gets more than the bound alone would give.
- Every kernel launched ran, nobody stood still, nothing is left, and the sanitizer said nothing. The thread sanitizer
  sees the threads of one process only: `--processes 1 --each 16` shows it all tenants.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .chaos import LONGEST_WAIT_MS, SLACK_MS
from .csrc_core import CORE, CSRC, FLAGS, PROGRAMS, sanitized

WRAPPED = "-Wl,--wrap=loom_ask,--wrap=loom_queue_new"
TOLERANCE = 0.8
ALIKE_MS = LONGEST_WAIT_MS / 4
LONG_S = 30.0
STARVED_RPS = 2.0
"""Kernels a second: the longest wait alone lets about one through."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """See `struct tenant` in crowd.c."""

    priority: int
    launches: int
    ran: int
    mean_wait_ms: float
    mean_gate_wait_ms: float
    longest_gate_wait_ms: float
    device_ms: float
    judged: int
    over_running: int
    over_waiting: int
    overdue: int
    by_floor: int
    held_back: int
    too_long: int


@dataclass(frozen=True, slots=True)
class Run:
    policy: str
    processes: int
    failed: int
    device_ran: int
    slots_left: int
    file_left: bool
    tenants: tuple[Tenant, ...]
    said: str
    """On standard error: by a sanitizer, or by the watchdog."""

    @property
    def in_order(self) -> bool:
        return not any(tenant.over_running or tenant.over_waiting for tenant in self.tenants)

    @property
    def sound(self) -> bool:
        """Nothing lost, nothing left, nobody told to wait for too long, the sanitizer silent."""
        everything = all(tenant.launches == tenant.ran > 0 == tenant.too_long for tenant in self.tenants)
        everything = everything and self.device_ran == sum(tenant.ran for tenant in self.tenants)
        return everything and not (self.failed or self.slots_left or self.file_left or self.said)

    @property
    def waits_bounded(self) -> bool:
        longest_ms = max(tenant.longest_gate_wait_ms for tenant in self.tenants)
        machine_ms = max(tenant.longest_gate_wait_ms for tenant in self.tenants if tenant.priority == 0)
        return longest_ms <= LONGEST_WAIT_MS + SLACK_MS + machine_ms

    def mean_waits_ms(self) -> dict[int, float]:
        """By priority, over all its kernels."""
        of: dict[int, list[Tenant]] = {}
        for tenant in self.tenants:
            of.setdefault(tenant.priority, []).append(tenant)
        return {
            priority: sum(t.mean_wait_ms * t.ran for t in group) / max(sum(t.ran for t in group), 1)
            for priority, group in sorted(of.items())
        }


def waits_in_order(waits_ms: list[float]) -> bool:
    """From the highest priority to the lowest."""
    cut_ms = [min(wait, ALIKE_MS) for wait in waits_ms]
    in_order = all(wait >= TOLERANCE * max(cut_ms[:i], default=0.0) for i, wait in enumerate(cut_ms))
    return in_order and cut_ms[-1] >= 2 * cut_ms[0]


def build(into: Path, sanitizer: str, core: Path = CSRC) -> Path:
    flags = sanitized(sanitizer)
    sources = [str(core / path.name) for path in CORE] + [str(PROGRAMS / "crowd.c")]
    program = into / "crowd"
    subprocess.run(["gcc", *FLAGS, *flags, WRAPPED, f"-I{core}", *sources, "-o", str(program), "-lm"], check=True)
    return program


def run(
    program: Path, seconds: float, policy: str, processes: int = 16, each: int = 1, env: Mapping[str, str] | None = None
) -> Run:
    """One run; a run that a sanitizer or the watchdog ended has no figures, and raises what they said."""
    with tempfile.TemporaryDirectory() as folder:
        region = Path(folder) / "region"
        command = [str(program), str(region), str(processes), str(each), str(seconds), policy]
        # The thread sanitizer wants fixed addresses.
        ended = subprocess.run(
            ["setarch", "-R", *command], capture_output=True, text=True, env={**os.environ, **(env or {})}
        )
        if not ended.stdout:
            raise RuntimeError(f"crowd ended with {ended.returncode}: {ended.stderr.strip()}")
        answer = json.loads(ended.stdout)
    tenants = tuple(Tenant(**tenant) for tenant in answer.pop("tenants"))
    return Run(**answer, tenants=tenants, said=ended.stderr.strip())


NO_FLOOR = {"GPULOOM_KERNELS_FLOOR": "0"}


def check(program: Path, seconds: float, policy: str, processes: int, each: int) -> tuple[dict[str, object], bool]:
    """What is printed, and whether all is as it should be."""
    crowd = run(program, seconds, policy, processes, each, NO_FLOOR)
    waits_ms = crowd.mean_waits_ms()
    held_back = sum(tenant.held_back for tenant in crowd.tenants)
    verdict = {
        "no_launch_broke_the_order": crowd.in_order and held_back > 0,
        "sound": crowd.sound,
        "waits_bounded": crowd.waits_bounded,
    }
    if seconds >= LONG_S:
        verdict["mean_waits_in_order"] = waits_in_order(list(waits_ms.values()))
    report: dict[str, object] = {
        "seconds": seconds,
        "verdict": verdict,
        "mean_wait_ms_by_priority": {priority: round(wait, 3) for priority, wait in waits_ms.items()},
        "longest_gate_wait_ms": max(tenant.longest_gate_wait_ms for tenant in crowd.tenants),
        "kernels": crowd.device_ran,
        **{
            name: sum(getattr(tenant, name) for tenant in crowd.tenants)
            for name in ("judged", "over_running", "over_waiting", "overdue", "by_floor", "held_back", "too_long")
        },
        "run": asdict(crowd),
    }
    if policy == "fill":
        floor = run(program, seconds, policy, processes, each)
        verdict["nobody_starves_with_the_floor"] = min(t.ran for t in floor.tenants) > STARVED_RPS * seconds
        verdict["sound_with_the_floor"] = floor.sound and floor.waits_bounded
        report["run_with_the_floor"] = asdict(floor)
    return report, all(verdict.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Many processes of all priorities on one busy device.")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--policy", choices=("share", "strict", "fill"), default="fill")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--each", type=int, default=1, help="tenants of each process")
    parser.add_argument("--sanitizer", choices=("thread", "address,undefined", "none"), default="thread")
    parser.add_argument("--core", type=Path, default=CSRC, help="its sources; a broken copy shows what is found")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), asked.sanitizer, asked.core)
        report, fine = check(program, asked.seconds, asked.policy, asked.processes, asked.each)
    print(json.dumps({"sanitizer": asked.sanitizer, **report}, indent=1))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
