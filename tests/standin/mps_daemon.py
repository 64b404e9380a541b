"""What the stand-ins for MPS's control daemon and server do; `mps_control.py` is how they are started.

The daemon speaks the tool's documented commands and keeps its rules: one daemon to a pipe directory, one user to a
server, 48 clients, defaults that hold for the next server only, limits that a client can only tighten, a server that
holds its device (on the stand-in for NVML, if that is there). CUDA is not here, so a client is a process that keeps a
connection open: see `connect` in `hardware.py`.
"""

import ctypes
import fcntl
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MOST_CLIENTS = 48
PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
USAGE = "Unknown command"


def start_daemon() -> int:
    if not PIPES.is_dir() or not LOGS.is_dir():
        print("Failed to access the pipe or log directory")
        return 1
    lock = os.open(PIPES / "control_lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("An instance of this daemon is already running")
        return 1
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        os.read(ready, 1)  # or the end of the pipe, if the daemon did not come up: like the real one, we do not tell
        return 0
    os.setsid()
    log = os.open(LOGS / "control.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, target in enumerate((nothing, log, log)):
        os.dup2(target, number)
    os.close(ready)
    Control().run(told)
    return 0


class Server:
    def __init__(self, uid: int, share: float, memory: str) -> None:
        self.uid, self.share, self.memory = uid, share, memory
        self.clients: dict[int, int] = {}
        """Process ids by the descriptor of their connection."""
        program = Path(sys.argv[0]).with_name("nvidia-cuda-mps-server")
        with (LOGS / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self.process.stdout is not None
        self.status = "ACTIVE" if self.process.stdout.readline() == b"ready\n" else "FAULT"


class Control:
    def __init__(self) -> None:
        self.share, self.memory = 100.0, ""
        self.servers: dict[int, Server] = {}
        self.watch = selectors.DefaultSelector()
        self.over = False

    def run(self, told: int) -> None:
        (PIPES / "control").unlink(missing_ok=True)  # of a daemon that was killed
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(PIPES / "control"))
        listener.listen(64)
        (PIPES / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
        self.watch.register(listener, selectors.EVENT_READ)
        os.write(told, b"+")
        os.close(told)
        while not self.over:
            for key, _ in self.watch.select():
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is listener:
                    self.watch.register(listener.accept()[0], selectors.EVENT_READ)
                else:
                    self.hear(connection)
        for name in ("control", "nvidia-cuda-mps-control.pid"):
            (PIPES / name).unlink(missing_ok=True)

    def hear(self, connection: socket.socket) -> None:
        text = connection.recv(4096).decode()
        if text.startswith("client "):
            connection.sendall(self.admit(connection, text.split()).encode())
            return
        for server in self.servers.values():
            server.clients.pop(connection.fileno(), None)
        with suppress(OSError):
            connection.sendall(self.answer(text.split()).encode())
        self.watch.unregister(connection)
        connection.close()

    def admit(self, connection: socket.socket, words: list[str]) -> str:
        """A client comes, with what its environment asks for: `client PID UID SHARE MEMORY`."""
        pid, uid, share, memory = int(words[1]), int(words[2]), float(words[3]), words[4]
        self.bury()
        if not self.servers:
            self.start_server(uid)
        server = next(iter(self.servers.values()))
        if server.uid != uid:
            return "refused: the server belongs to another user\n"
        if server.status != "ACTIVE":
            return "refused: the server has failed\n"
        if len(server.clients) >= MOST_CLIENTS:
            return "refused: too many clients\n"
        server.clients[connection.fileno()] = pid
        sizes = [size for size in (mib(server.memory), mib(memory)) if size is not None]
        return f"admitted {min(server.share, share):g} {min(sizes, default=0)}\n"

    def start_server(self, uid: int) -> None:
        server = Server(uid, self.share, self.memory)
        self.servers[server.process.pid] = server

    def bury(self) -> None:
        """Servers that have died: their clients are lost with them."""
        self.servers = {pid: server for pid, server in self.servers.items() if server.process.poll() is None}

    def answer(self, words: list[str]) -> str:
        self.bury()
        match words:
            case []:
                return ""
            case ["get_server_list"]:
                return "".join(f"{pid}\n" for pid in self.servers)
            case ["start_server", "-uid", uid] if uid.isdigit():
                if not self.servers:
                    self.start_server(int(uid))
                return ""
            case ["get_default_active_thread_percentage"]:
                return f"{self.share:.1f}\n"
            case ["set_default_active_thread_percentage", share] if percentage(share):
                self.share = float(share)
                return f"{self.share:.1f}\n"
            case ["get_default_device_pinned_mem_limit", "0"]:
                return f"{self.memory}\n"
            case ["set_default_device_pinned_mem_limit", "0", memory] if mib(memory):
                self.memory = memory
                return ""
            case ["quit"]:
                return self.quit(3600)
            case ["quit", "-t", seconds] if seconds.isdigit():
                return self.quit(int(seconds))
            case [command, pid, *rest] if pid.isdigit() and int(pid) in self.servers:
                return self.about(self.servers[int(pid)], command, rest)
            case [_, pid, *_] if pid.isdigit():
                return "Server not found\n"
        return f"{USAGE}: {' '.join(words)}\n"

    def about(self, server: Server, command: str, rest: list[str]) -> str:
        match command, rest:
            case "get_server_status", []:
                return f"{server.status}\n"
            case "get_client_list", []:
                return "".join(f"{pid}\n" for pid in server.clients.values())
            case "terminate_client", [pid] if pid.isdigit():
                if int(pid) not in server.clients.values():
                    return "Client not found\n"
                os.write(1, f"terminated client {pid}\n".encode())
                return ""
            case "get_active_thread_percentage", []:
                return f"{server.share:.1f}\n"
            case "set_active_thread_percentage", [share] if percentage(share):
                server.share = float(share)
                return f"{server.share:.1f}\n"
            case "set_device_pinned_mem_limit", ["0", memory] if mib(memory):
                server.memory = memory
                return ""
            case "get_device_pinned_mem_limit", ["0"]:
                return f"{server.memory}\n"
        return f"{USAGE}: {command}\n"

    def quit(self, seconds: int) -> str:
        """Wait for the clients to go; after so many seconds their server goes all the same."""
        deadline = time.monotonic() + seconds
        clients = {fd for server in self.servers.values() for fd in server.clients}
        while clients and time.monotonic() < deadline:
            for key, _ in self.watch.select(deadline - time.monotonic()):
                if key.fd in clients and isinstance(key.fileobj, socket.socket) and not key.fileobj.recv(4096):
                    clients.discard(key.fd)
                    self.watch.unregister(key.fileobj)
        for server in self.servers.values():
            server.process.terminate()
            server.process.wait()
        self.over = True
        return ""


def percentage(text: str) -> bool:
    with suppress(ValueError):
        return 0 < float(text) <= 100
    return False


def mib(text: str) -> int | None:
    found = re.fullmatch(r"([0-9]+)([GM])", text)
    return None if found is None else int(found[1]) * (1024 if found[2] == "G" else 1)


def serve() -> int:
    """Hold the device until told to go."""
    if "GPULOOM_STANDIN_STATE" in os.environ:
        device = os.environ["CUDA_VISIBLE_DEVICES"].encode()
        if ctypes.CDLL("libnvidia-ml.so.1").standinUse(device) != 0:
            return 1
    print("ready", flush=True)
    signal.pause()
    return 0
