"""How steady a CPU device is: the same work again and again, alone on it, and how much its time varies.

Below this spread a difference between two figures that were measured there says nothing.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import median, quantiles

from gpuloom.gpus.host.cgroups import Home
from gpuloom.gpus.host.driver import StepFailed

GROUP = "noise"
"""In which it is measured, by whoever holds the device."""
PIECES = 20
"""In a run; `gpuloom doctor` takes its time."""
MOST_S = 8.0
"""A small part of a slow machine measures fewer pieces."""
_PATIENCE_S = 120.0
# Run without gpuloom, in its group before the first piece. A piece hashes 64 MiB: some 40 ms.
_WORK = """
import hashlib, json, sys, time
for door in sys.argv[3:]:
    with open(door, "w") as file:
        file.write("0")
block, took, until = bytes(1 << 20), [], time.monotonic() + float(sys.argv[2])
while len(took) < int(sys.argv[1]) + 2 and (len(took) < 7 or time.monotonic() < until):
    began, work = time.monotonic(), hashlib.sha256()
    for _ in range(64):
        work.update(block)
    took.append(time.monotonic() - began)
print(json.dumps(took[2:]))
"""


@dataclass(frozen=True, slots=True)
class Noise:
    median_ms: float
    """Of the same piece of work."""
    spread_pct: float
    """From the tenth to the ninetieth percentile of its time, in percent of the median."""
    pieces: int

    def __str__(self) -> str:
        """The one sentence about it, wherever figures from the device are shown."""
        work = f"{self.pieces:,} pieces of {self.median_ms:.0f} ms"
        return f"the same work alone varies by {self.spread_pct:.1f} % ({work}); smaller differences mean nothing"


def measure(home: Home, workers: int, pieces: int = PIECES) -> Noise:
    """With so many at once, in a group of their own; nobody else should be on the device."""
    group = home.group(GROUP)
    try:
        group.create()
        doors = [str(door) for door in group.doors()]
        command = [sys.executable, "-I", "-S", "-c", _WORK, str(pieces), str(MOST_S), *doors]
        # In a session of their own: Ctrl-C is for whoever measures.
        started = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
            for _ in range(workers)
        ]
        told = [worker.communicate(timeout=_PATIENCE_S)[0] for worker in started]
        if any(worker.returncode for worker in started):
            raise StepFailed(
                "the noise of the device cannot be measured: its work was killed, or cannot enter its group"
            )
        took = [float(seconds) for text in told for seconds in json.loads(text)]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise StepFailed(f"the noise of the device cannot be measured: {error}") from error
    finally:
        group.end(5.0)
    tenths = quantiles(took, n=10)
    return Noise(median(took) * 1e3, 100 * (tenths[-1] - tenths[0]) / median(took), len(took))
