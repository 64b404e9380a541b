"""A real browser without a window, told what to do through a pair of pipes; nothing but the standard library."""

import json
import os
import shutil
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from select import select
from signal import SIGTERM
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_S = 60.0
READY = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(document.readyState))))"


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page at a time. `complaints` are what it refused or what went wrong in a script since the page was opened."""

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._say = os.pipe()
        self._hear, answers = os.pipe()
        # The browser reads from descriptor 3 and writes to 4; from high ones, neither copy can hit the other's source.
        ends = [fcntl(end, F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]
        quiet = [(os.POSIX_SPAWN_OPEN, end, os.devnull, os.O_WRONLY, 0) for end in (1, 2)]
        copies = [(os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(ends, (3, 4), strict=True)]
        words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._pid = os.posix_spawn(program, words, os.environ, file_actions=[*quiet, *copies])
        for end in (commands, answers, *ends):
            os.close(end)
        self._sent = 0
        self._heard = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._say, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._sent:
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(answer["params"]))
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._heard:
            assert select([self._hear], [], [], PATIENCE_S)[0], "the browser does not answer"
            more = os.read(self._hear, 1 << 16)
            assert more, "the browser is gone"
            self._heard += more
        message, _, self._heard = self._heard.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def show(self, path: Path, width: int, height: int, dark: bool = False, paper: bool = False) -> None:
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.complaints.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[theme])
        self.send("Page.navigate", url=path.as_uri())
        for _ in range(1000):
            if self.ask(READY) == "complete":
                return
        raise AssertionError(f"{path} is never complete")

    def ask(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self) -> None:
        os.kill(self._pid, SIGTERM)
        os.waitpid(self._pid, 0)
        os.close(self._say)
        os.close(self._hear)
