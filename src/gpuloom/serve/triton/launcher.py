"""Becomes a server that ends when the one who started it does, however that ended.

Run as a script, without gpuloom (`python -I -S launcher.py PARENT COMMAND …`), so that it is small and starts quickly.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(parent: int, command: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked to be told
        os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
