"""Whether an MPS daemon still answers, asked now and then without waiting for it.

A daemon that hangs takes its clients with it: they live, and compute nothing. Nobody but the daemon can tell, so a
question that is not answered in time is the answer.
"""

import subprocess
import time

from gpuloom.gpus.host.mps.daemon import Daemon


class MpsWatch:
    def __init__(self, daemon: Daemon, every_s: float) -> None:
        """`every_s`: between two questions; so long it may take to answer, too."""
        self._daemon, self._every_s = daemon, every_s
        self._asked: subprocess.Popen[str] | None = None
        self._asked_at_s = self._answered_at_s = time.monotonic()

    def look(self) -> str | None:
        """What is wrong with it, once that is known; None before, and if it is well. It never waits."""
        now_s = time.monotonic()
        if self._asked is None:
            if now_s - self._answered_at_s >= self._every_s:
                self._asked, self._asked_at_s = self._daemon.open_question("get_server_list"), now_s
            return None
        if self._asked.poll() is None:
            return None if now_s - self._asked_at_s < self._every_s else "it does not answer"
        said, code = self._asked.communicate()[0], self._asked.returncode
        self._asked, self._answered_at_s = None, now_s
        return None if code == 0 else f"it has gone: {' '.join(said.split())}"

    def close(self) -> None:
        if self._asked is not None:
            self._asked.kill()
            self._asked.communicate()
            self._asked = None
