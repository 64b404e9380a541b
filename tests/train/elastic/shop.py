"""Elastic jobs as the tests and the benchmark see them: a process, its socket, its report and its trace."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuloom.train.elastic.client import Client

ROOT = Path(__file__).resolve().parents[3]
MOST_S = 120.0


def until(condition: Callable[[], Any], what: str, most_s: float = MOST_S) -> Any:
    """Wait for it; the limit only ends a test that would never end."""
    end = time.monotonic() + most_s
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {most_s:.0f} s for {what}")
        time.sleep(0.005)
    return found


def seats(*names: str) -> list[dict[str, Any]]:
    return [{"device": name, "env": {"GPULOOM_TEST_SEAT": name}} for name in names]


class Spawner:
    """Forks trainings from a process that has imported PyTorch."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.train.elastic.spawner"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@dataclass(slots=True)
class Training:
    """One job with its folder, begun as often as it takes."""

    spawner: Spawner
    folder: Path
    wish: dict[str, Any] = field(default_factory=dict)
    pid: int = 0
    generation: int = 0

    def begin(self, *names: str, batch: int | None = None, resume: bool = False) -> None:
        self.folder.mkdir(exist_ok=True, parents=True)
        env = {
            "GPULOOM_CHECKPOINT_DIR": str(self.folder),
            "GPULOOM_PROGRESS": str(self.folder / "progress"),
            "GPULOOM_ELASTIC_SOCKET": str(self.socket),
            "GPULOOM_WORKERS": json.dumps(seats(*names)) if names else "",
            "GPULOOM_BATCH": str(batch or ""),
            "GPULOOM_RESUME": "1" if resume else "0",
        }
        self.pid = self.spawner.ask(do="begin", wish=self.wish, folder=str(self.folder), env=env)["pid"]

    @property
    def socket(self) -> Path:
        return self.folder / "elastic.sock"

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with Client(self.socket, timeout_s=30) as client:
            yield client

    def resize(self, client: Client, *names: str, batch: int | None = None, wait: bool = True) -> dict[str, Any]:
        self.generation += 1
        return client.resize(self.generation, seats(*names), batch, timeout_s=MOST_S, wait=wait)

    def wait(self) -> int:
        code: int = self.spawner.ask(do="wait", pid=self.pid)["code"]
        return code

    def enough(self) -> int:
        """Let it end after the step that it is at."""
        (self.folder / "enough").touch()
        return self.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        os.kill(self.pid, number)
        return self.wait()

    def compared(self) -> dict[str, Any]:
        """Its final state against an undisturbed training of one process."""
        pid = self.spawner.ask(do="compare", wish=self.wish, folder=str(self.folder))["pid"]
        assert self.spawner.ask(do="wait", pid=pid)["code"] == 0, self.log()
        found: dict[str, Any] = json.loads((self.folder / "compared").read_text())
        return found

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for path in self.folder.glob("trace-*"):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the last line of one that was killed
                    found.append(json.loads(line))
        return found

    def progress(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.folder / "progress").read_text())
            return found
        return {"step": 0}

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""
