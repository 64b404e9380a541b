"""A pretended host engine for a test: started, told how to behave, made to hang, killed; and what was watched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuloom.gpus.host.dcgm.engine import Engine, find_engine
from tests.standin.hardware import PATIENCE_S, Hardware

ENGINE = Path(__file__).with_name("dcgm_engine.py")
VALUES = (0.5, 0.4, 0.25, 0.125)


class HostEngine:
    def __init__(self, hardware: Hardware, *words: str) -> None:
        """`words`: tcp, to listen at a port."""
        self.hardware, self.folder = hardware, hardware.folder / "dcgm"
        self.folder.mkdir(exist_ok=True)
        for name in ("socket", "log"):
            (self.folder / name).unlink(missing_ok=True)
        self.behave()
        command = [sys.executable, str(ENGINE), str(self.folder), *words]
        self.process = subprocess.Popen(command, env=hardware.environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def behave(self, values: tuple[float | None, ...] = VALUES, **how: Any) -> None:
        """From the next question on; see `dcgm_engine.py`."""
        draft = self.folder / "mode.draft"
        draft.write_text(json.dumps({"values": values, **how}))
        draft.rename(self.folder / "mode")

    def found(self, **more: str) -> Engine:
        return find_engine(self.hardware.environment | more)

    def _log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def watched(self) -> list[str]:
        """What was watched and let go, in that order."""
        return [line for line in self._log() if not line.startswith("tells")]

    def answers(self) -> int:
        """How often it has told something."""
        return sum(line.startswith("tells") for line in self._log())

    def hang(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def host_engine(hardware: Hardware, *words: str) -> Iterator[HostEngine]:
    engine = HostEngine(hardware, *words)
    try:
        yield engine
    finally:
        engine.close()


def clients() -> list[int]:
    """Of this process, those that are not buried yet: its children that are no engine.

    One that was just started has no name yet.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid() and os.fsencode(ENGINE) not in words:
            found.append(int(folder.name))
    return found
