"""A deployment in a session of its own: the one who started it waits until it serves, and may then go."""

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from gpuloom.errors import InputError
from gpuloom.serve.state import Record, State


class EndedError(Exception):
    """It ended before it served; the text is all that it said."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(log)
        self.code = code


def detach(command: Sequence[str], state: State) -> Record:
    """Run a command that serves from this folder. If we are interrupted before it does, it is ended."""
    if state.served():
        raise InputError(f"{state.folder}: something is served there already; name another --state, or take it down")
    state.folder.mkdir(parents=True, exist_ok=True)
    log_path = state.folder / "serve.log"
    with log_path.open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        while (record := _record_of(child.pid, state)) is None:
            if child.poll() is not None:
                raise EndedError(child.returncode or 1, log_path.read_text(errors="replace").strip())
            time.sleep(0.05)
    except (KeyboardInterrupt, SystemExit):
        child.terminate()
        child.wait()
        raise
    return record


def _record_of(pid: int, state: State) -> Record | None:
    """What this process serves, if it does so already."""
    with suppress(InputError):
        record = state.record()
        return record if record.pid == pid else None
    return None
