"""A deployment in a process of its own, through the commands that a user has."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuloom.serve.state import State, read_events
from tests.standin.hardware import GPULOOM

PATIENCE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.02)


class Deployed:
    """`gpuloom serve up` in a process of its own."""

    def __init__(self, folder: Path, plan: Path, *words: str, file: str = "deployment.json") -> None:
        self.state = State(folder / "state")
        command = [str(GPULOOM), "serve", "up", str(plan), "--state", str(self.state.folder), *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until(lambda: self.process.poll() is not None or (self.state.folder / file).exists())
        assert self.process.poll() is None, self.process.communicate()[1]

    def command(self, *words: str, code: int = 0) -> str:
        done = subprocess.run([str(GPULOOM), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def load(self, *more: str) -> "subprocess.Popen[str]":
        words = [str(GPULOOM), "load", str(self.state.folder), "--requests", "300", "--output", "json", *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def events(self, what: str, **more: str) -> list[dict[str, Any]]:
        wanted = {"event": what, **more}
        return [one for one in read_events(self.state.folder) if all(one[key] == wanted[key] for key in wanted)]

    def serving(self, service: str) -> str:
        """The server that the last switch went to."""
        server: str = self.events("switched", service=service)[-1]["server"]
        return server

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            subprocess.run(
                [str(GPULOOM), "serve", "status", "--state", str(self.state.folder), "--output", "json"],
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            ).stdout
        )  # fmt: skip
        return found

    def check_nothing_is_left(self) -> None:
        mark = str(self.state.folder).encode()
        until(lambda: not any(mark in words for words in _command_lines()))
        assert not list(Path("/dev/shm").glob(f"{self.state.shm_prefix}*"))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.state.take_down()


def _command_lines() -> Iterator[bytes]:
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) != os.getpid():
            try:
                yield (folder / "cmdline").read_bytes()
            except OSError:
                continue
