#!/usr/bin/env python3
"""A stand-in for `nvidia-cuda-mps-control`, and, under the name `nvidia-cuda-mps-server`, for the server it starts.

It is started for every single command, so it is small: what a daemon and a server do is in `mps_daemon.py`.
"""

import os
import socket
import sys

TYPE_CHECKING = False  # that of `typing` takes longer to load than all the rest
PIPES = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")


def main() -> int:
    name = os.path.basename(sys.argv[0])  # noqa: PTH119 (pathlib takes longer to load than all the rest)
    if name == "nvidia-cuda-mps-server" or sys.argv[1:] == ["-d"]:
        sys.path.insert(0, os.path.dirname(sys.argv[0]))  # noqa: PTH120
        if TYPE_CHECKING:
            from tests.standin import mps_daemon
        else:
            import mps_daemon

        return mps_daemon.start_daemon() if sys.argv[1:] else mps_daemon.serve()
    if sys.argv[1:]:
        print(f"usage: {name} [-d]")
        return 1
    return ask()


def ask() -> int:
    """Pass standard input on to the daemon, line by line."""
    for line in sys.stdin:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"{PIPES}/control")
                connection.sendall(line.encode())
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            print("Cannot find MPS control daemon process")
            return 1
        sys.stdout.write(answer.decode())
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
