"""One Triton server: its process, its ports, whether it is ready. What it is for is decided in `fleet`."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpuloom.gpus.grant import Grant
from gpuloom.serve.deployment import Level
from gpuloom.serve.gateway.http_client import LostError, Peer
from gpuloom.serve.gateway.http_message import get
from gpuloom.serve.gateway.pool import Backend
from gpuloom.serve.seats import Seat
from gpuloom.serve.triton import launcher
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.scrape import Counters, parse

LAUNCHER = [sys.executable, "-I", "-S", launcher.__file__]
HOST = "127.0.0.1"
STARVED = "the kernel killed it for want of memory"


class Phase(StrEnum):
    DOWN = "down"
    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"
    """It lost a request: not asked until it has answered us."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    name: str
    """Unique in the deployment, and fit for a folder."""
    service: str
    model: str
    level: Level
    grant: Grant
    repository: Path
    log: Path
    weight: float
    standin: bool
    grpc: bool = False
    """Whether it also speaks gRPC."""


@dataclass(frozen=True, slots=True)
class Ports:
    http: int
    metrics: int
    grpc: int | None


def command(triton: Triton, spec: ServerSpec, ports: Ports, shm_prefix: str) -> list[str]:
    """Loopback only: by default Triton listens on every interface, and it has no passwords."""
    grpc = [f"--grpc-address={HOST}", f"--grpc-port={ports.grpc}"] if ports.grpc else ["--allow-grpc=false"]
    backends = [] if triton.backends is None else [f"--backend-directory={triton.backends}"]
    # A stand-in's configuration is complete; asking the model for the rest takes a second. A user's may need it.
    complete = ["--disable-auto-complete-config"] if spec.standin else []
    return [
        str(triton.binary),
        f"--model-repository={spec.repository}",
        *backends,
        f"--http-address={HOST}",
        f"--http-port={ports.http}",
        "--http-thread-count=2",
        *grpc,
        f"--metrics-address={HOST}",
        f"--metrics-port={ports.metrics}",
        "--allow-cpu-metrics=false",
        "--allow-gpu-metrics=false",
        *complete,
        "--exit-timeout-secs=5",
        "--log-info=false",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        "--backend-config=python,shm-default-byte-size=1048576",
    ]


class Server:
    """A place for a server: its process may come and go."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.phase = Phase.DOWN
        self.backend: Backend | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.seat: Seat | None = None
        """Where that runs."""
        self.since_s = 0.0
        """When its phase began."""
        self.asked_s = 0.0
        """When it was last asked whether it is ready."""
        self.asking = False
        self.silent = 0
        """How often in a row it did not answer that."""
        self.failures = 0
        """Crashes in a row, without a time of peace between them."""
        self.starved = False
        """Whether the last of them was for want of memory."""
        self.retry_s = 0.0
        self.counters: Counters | None = None
        self.recent: Counters | None = None
        """Between the last two scrapes."""
        self._metrics: Peer | None = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def enter(self, phase: Phase, now_s: float) -> None:
        self.phase, self.since_s = phase, now_s

    def launch(self, triton: Triton, seat: Seat, alive: int, shm_prefix: str) -> None:
        """From the main thread: the server ends together with the thread that started it."""
        http, metrics, grpc = free_ports(3)
        ports = Ports(http, metrics, grpc if self.spec.grpc else None)
        words = command(triton, self.spec, ports, shm_prefix)
        # Whoever has no share is not to become a client of a daemon that we happen to know.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "PYTHON"))}
        inherited |= triton.environment(inherited)
        self.seat = seat
        with self.spec.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*LAUNCHER, str(os.getpid()), *seat.doors, "--", *words],
                env=inherited | dict(seat.environment),
                cwd=self.spec.repository,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(alive,),
            )
        self.backend = Backend(self.spec.name, HOST, ports.http, self.spec.weight, ports.grpc)
        self._metrics = Peer(HOST, ports.metrics)
        self.counters = self.recent = None
        self.silent, self.asking = 0, False

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def lacked_memory(self) -> bool:
        return self.seat is not None and self.seat.lacked_memory()

    async def is_ready(self, timeout_s: float) -> bool:
        assert self.backend is not None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.backend.peer.ask(get(f"/v2/models/{self.spec.model}/ready"))
        except (LostError, TimeoutError):
            return False
        return answer.status == 200

    async def scrape(self, timeout_s: float) -> None:
        if self._metrics is None:
            return
        with suppress(LostError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                answer = await self._metrics.ask(get("/metrics"))
            before, self.counters = self.counters, parse(answer.body.decode("utf-8", "replace"))
            self.recent = self.counters.since(before)

    def kill(self) -> None:
        """End it and all that it started; what it was asked must have been answered, or is asked of another."""
        if self._metrics is not None:
            self._metrics.close()
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.seat is not None:
            self.seat.end()
        self.process = self.seat = None

    def last_words(self) -> str:
        """Why it ended: what its log says of it, unless it could not say anything any more."""
        if self.starved:
            return STARVED
        try:
            lines = self.spec.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "it left no log"
        errors = [line for line in lines[-200:] if line.startswith("E") or "rror" in line]
        return (errors or lines or ["its log is empty"])[-1].strip()[:300]


def free_ports(number: int) -> list[int]:
    """Nobody's at this moment. A server that finds its port taken ends, and is started again on others."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
