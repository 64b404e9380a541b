"""Pretended hardware for a test: GPUs in a file, processes that use them, workers that cut them, faults.

It is driven as real hardware would be: by separate processes. `show` asks the stand-in itself, not gpuloom.
"""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuloom.gpus.model import Instance, Layout
from tests.standin.replay import describe_gpu

GPULOOM = Path(sys.executable).with_name("gpuloom")
WORKER = Path(__file__).with_name("worker.py")
PATIENCE_S = 20


class Worker:
    """A process with the stand-in loaded; see `worker.py`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, do: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any] | None:
        """Its answer; None if it has died instead."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert ready, "the worker hangs"
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.send(do, **more)
        answer = self.receive()
        assert answer is not None, "the worker has died"
        return answer

    def apply(self, target: Layout, **more: Any) -> dict[str, Any]:
        return self.ask("apply", target=target, **more)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


class Hardware:
    def __init__(self, tools: Path, folder: Path) -> None:
        self.tools, self.folder, self.workers = tools, folder, list[Worker]()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GPULOOM_")} | {
            "LD_LIBRARY_PATH": str(tools),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "GPULOOM_STANDIN_STATE": str(folder / "hardware"),
            "GPULOOM_STATE_DIR": str(folder / "state"),
            "GPULOOM_HOST_ROOT": str(folder / "root"),  # nobody but a test's own process manages its GPUs or holds them
            "DCGM_REMOTE_HOSTENGINE_INFO": f"unix://{folder}/dcgm/socket",  # see `dcgm.py`; never one of this machine's
        }

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def ctl(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        command = [str(self.tools / "standinctl"), *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=check, timeout=PATIENCE_S
        )

    def install(self, *models: str) -> None:
        """New hardware, and no memory of the old: see `standinctl.c` for how models are written."""
        self.ctl("init", *models)
        for record in (self.folder / "state").glob("*.json"):
            record.unlink()
        (self.folder / "state" / "memory" / "memory.json").unlink(missing_ok=True)

    def replay(self, transcript: Path) -> None:
        """New hardware as a transcript of the self-test describes it: see `replay.py`."""
        found = describe_gpu(transcript, self.environment["GPULOOM_STANDIN_STATE"])
        self.environment |= found.environment
        self.install(*found.models)

    def show(self, gpu: int = 0) -> dict[str, Any]:
        shown: list[dict[str, Any]] = json.loads(self.ctl("show").stdout)
        return shown[gpu]

    def layout(self, gpu: int = 0) -> Layout:
        """The instances; fails if one of them cannot be used as what it is."""
        usable, half_made, _ = self.instances(gpu)
        assert half_made == ()
        return usable

    def instances(self, gpu: int = 0) -> tuple[Layout, Layout, dict[str, str]]:
        """Usable instances, half-made ones, and the UUIDs of the usable ones."""
        usable, half_made, uuids = list[Instance](), list[Instance](), dict[str, str]()
        for part in self.show(gpu)["instances"]:
            instance = Instance(part["start"], part["profile"])
            if [compute["slices"] for compute in part["computes"]] == [part["slices"]]:
                usable.append(instance)
                uuids[str(instance)] = part["computes"][0]["uuid"]
            else:
                half_made.append(instance)
        return tuple(sorted(usable)), tuple(sorted(half_made)), uuids

    def uuids(self, gpu: int = 0) -> dict[str, str]:
        return self.instances(gpu)[2]

    def worker(self) -> Worker:
        self.workers.append(Worker(self.environment))
        return self.workers[-1]

    @contextmanager
    def job(self, uuid: str) -> Iterator["subprocess.Popen[str]"]:
        """A process that runs on a device."""
        environment = self.environment | {"CUDA_VISIBLE_DEVICES": uuid}
        command = [str(self.tools / "standinctl"), "use"]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
            process.kill()

    def gpuloom(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """The command line, as a user would type it on this hardware."""
        return subprocess.run(
            [str(GPULOOM), *words],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )


@contextmanager
def connect(environment: dict[str, str], uid: int = 0) -> Iterator[str]:
    """An MPS client with this environment, as far as the stand-in goes: what it was told, connected until the end."""
    memory = environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=none").partition("=")[2]
    share = environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(f"{environment['CUDA_MPS_PIPE_DIRECTORY']}/control")
        connection.sendall(f"client {os.getpid()} {uid} {share} {memory}\n".encode())
        yield connection.recv(4096).decode().strip()
