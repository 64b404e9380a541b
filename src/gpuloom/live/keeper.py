"""The parent of one job's process: passes SIGTERM on to it, and writes down how it ended even if nobody watches.

Run as a script, without gpuloom (`python -I -S keeper.py FOLDER COMMAND …`), so that it is small and starts quickly.
The folder belongs to one launch. Its file `started` is created exclusively: a launch happens once, whoever asks for it
again. Its file `exit` says the exit code, and whether the job had been asked to stop before it ended.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

NOT_EXECUTABLE = 127
"""The shell's exit code for a command that cannot be run."""


def keep(folder: Path, command: list[str]) -> int:
    try:
        os.close(os.open(folder / "started", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return 0
    child, asked = 0, False

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal asked
        if not asked and child:
            os.kill(child, signal.SIGTERM)
        asked = True

    # Blocked (by the runner already) until the child is known here and deaf to nothing there: none may fall between.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, ask)
    forked = os.fork()
    if forked == 0:
        _become(command)
    child = forked
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _, status = os.waitpid(forked, 0)
    child = 0
    code = os.waitstatus_to_exitcode(status)
    draft = folder / "exit.draft"
    draft.write_text(json.dumps({"code": code, "asked": asked}) + "\n", encoding="utf-8")
    draft.replace(folder / "exit")
    return code if code >= 0 else 128 - code


def _become(command: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"gpuloom: {command[0]} cannot be run: {error.strerror}\n".encode())
        os._exit(NOT_EXECUTABLE)


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:]))
