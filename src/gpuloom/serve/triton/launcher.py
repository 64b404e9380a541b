"""Becomes a server that ends when the one who started it does, however that ended; in a control group, if it has one.

Run as a script, without gpuloom (`python -I -S launcher.py PARENT DOOR … -- COMMAND …`), so that it is small and starts
quickly. A door is a group's cgroup.procs. It is entered before the server begins, so all that the server starts is in.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(parent: int, doors: list[str], command: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked to be told
        os._exit(1)
    for door in doors:
        descriptor = os.open(door, os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)
    os.execv(command[0], command)


if __name__ == "__main__":
    words = sys.argv[2:]
    end = words.index("--")
    become(int(sys.argv[1]), words[:end], words[end + 1 :])
