"""Kill participants at random moments, on a real device: `python -m tests.kernels.chaos KILLS [SEED]`.

Some programs live to the end, others are killed with SIGKILL and replaced, until there were so many kills. Then who is
left finishes. Checked: their outputs are those of an undisturbed run, nobody ever waits longer than the core's own
bound, nothing is left in shared memory.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuloom.kernels.core import Region
from gpuloom.kernels.session import Settings, environment, joined
from gpuloom.kernels.watch import snapshot

MAIN = "from gpuloom.cli.main import main; main()"
NETWORKS = ("mlp", "conv", "resnet", "transformer")
LONGEST_WAIT_MS = 1_000.0
SLACK_MS = 1_000.0
"""A loaded machine may not run the waiting thread at once."""


@dataclass(frozen=True, slots=True)
class Report:
    kills: int
    survivors: int
    right: int
    longest_wait_ms: float
    left_behind: bool

    @property
    def fine(self) -> bool:
        waits = self.longest_wait_ms <= LONGEST_WAIT_MS + SLACK_MS
        return self.right == self.survivors and waits and not self.left_behind


def _start(network: str, requests: int, env: Mapping[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", MAIN, "kernels", "example", network, "--requests", str(requests)]
    return subprocess.Popen([*command, "--output", "json"], env=dict(env), stdout=subprocess.PIPE, text=True)


def _checksum(process: "subprocess.Popen[str]") -> str | None:
    out, _ = process.communicate()
    return str(json.loads(out)[0]["checksum"]) if process.returncode == 0 else None


def chaos(kills: int, seed: int, opencl: Mapping[str, str], survivors: int = 2, victims: int = 2) -> Report:
    """Run it; the survivors serve as many requests as it takes until the last kill, and then some."""
    random_of = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "region"
        requests = 200 + 40 * kills
        undisturbed = {name: _checksum(_start(name, requests, opencl)) for name in NETWORKS[:survivors]}

        def participant(network: str, count: int) -> "subprocess.Popen[str]":
            settings = Settings(path, random_of.randrange(10))
            return _start(network, count, environment(settings, opencl))

        longest = 0.0
        everybody: list[subprocess.Popen[str]] = []
        try:
            with joined(path) as region:
                living = {name: participant(name, requests) for name in NETWORKS[:survivors]}
                doomed = [participant(random_of.choice(NETWORKS), 10**9) for _ in range(victims)]
                everybody += [*living.values(), *doomed]
                for _ in range(kills):
                    longest = max(longest, _watch(region, random_of.uniform(0.0, 0.6)))
                    _kill(doomed.pop(0))
                    doomed.append(participant(random_of.choice(NETWORKS), 10**9))
                    everybody.append(doomed[-1])
                for victim in doomed:
                    _kill(victim)
                right = sum(_checksum(process) == undisturbed[name] for name, process in living.items())
        finally:
            for process in everybody:
                process.kill()
        return Report(kills, survivors, right, longest, path.exists())


def _watch(region: Region, seconds: float) -> float:
    """The longest wait seen meanwhile, in ms."""
    longest, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        waits = [float(str(row["for_ms"])) for row in snapshot(region) if row["state"] == "waits"]
        longest = max([longest, *waits])
        time.sleep(0.01)
    return longest


def _kill(victim: "subprocess.Popen[str]") -> None:
    victim.send_signal(signal.SIGKILL)
    victim.communicate()


if __name__ == "__main__":
    kills, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    report = chaos(kills, seed, os.environ | {"POCL_MAX_PTHREAD_COUNT": "1"})
    print(report)
    sys.exit(0 if report.fine else 1)
