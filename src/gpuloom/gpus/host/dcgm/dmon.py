"""What a host engine counts of one GPU or MIG instance: a `dcgmi dmon` that prints it every so often.

A process of its own, so that an engine that hangs hangs nobody else, and that whoever kills it has let go: the engine
forgets what a client watched when its connection ends. Knows no window and no mean, only what was printed.
"""

import math
import os
import subprocess
from contextlib import suppress

from gpuloom.gpus.host.dcgm.engine import Engine

FIELDS = {"gract": 1001, "smact": 1002, "smocc": 1003, "drama": 1005}
"""DCGM's numbers; they are printed in the order in which they are asked for."""
ENTITIES = ("GPU", "GPU-I", "GPU-CI")
DIE_S = 2.0

Row = dict[str, float]
"""Of one moment; what is blank is left out."""


def device_of(uuid: str, instance_id: int | None) -> str:
    """What `-i` takes: a GPU by its UUID, an instance by that and NVML's number of it.

    DCGM has numbers of its own for both, which another cut changes; it translates these itself. The UUID keeps its
    prefix: without, an older dcgmi that does not know the GPU would take leading digits for one of its numbers.
    """
    return uuid if instance_id is None else f"{uuid}/{instance_id}"


def parse(line: str) -> Row | None:
    """None: a header, an error, or half a line."""
    kind, _, values = line.strip().partition(" ")
    words = values.split()
    if kind not in ENTITIES or len(words) != 1 + len(FIELDS):
        return None
    numbers = zip(FIELDS, map(_number, words[1:]), strict=True)
    return {name: number for name, number in numbers if number is not None}


def _number(word: str) -> float | None:
    """None for N/A, and for whatever else is no number."""
    with suppress(ValueError):
        return number if math.isfinite(number := float(word)) else None
    return None


class Dmon:
    def __init__(self, engine: Engine, device: str, every_s: float, most_s: float) -> None:
        """OSError if it cannot be started. It ends after about `most_s` by itself, should nobody be left to end it."""
        words = ["dmon", "--host", engine.address, "-i", device, "-e", ",".join(map(str, FIELDS.values()))]
        often = ["-d", str(round(every_s * 1e3)), "-c", str(math.ceil(most_s / every_s))]
        self._process = subprocess.Popen(
            [engine.tool, *words, *often], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._rest = b""

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def rows(self) -> list[Row]:
        """What it has printed since this was last asked. Never waits."""
        with suppress(BlockingIOError):
            while more := os.read(self._pipe.fileno(), 1 << 16):
                self._rest += more
        *lines, self._rest = self._rest.split(b"\n")
        parsed = (parse(line.decode(errors="replace")) for line in lines)
        return [row for row in parsed if row is not None]

    def close(self) -> None:
        """Let go. Killed, not asked: `dmon` hears a request only after its pause, one that hangs never does."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DIE_S)
        self._pipe.close()
