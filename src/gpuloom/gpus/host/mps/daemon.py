"""MPS daemons: one for each device that is shared by SM percentages, driven through `nvidia-cuda-mps-control`.

A daemon has a folder of its own, so that daemons of different devices never meet. Its limits hold for everyone who
connects; a client's environment can only tighten them, and is read once, when the client creates its CUDA context.
A client that is not given the pipe directory does not connect, and then nothing of this binds it.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TOOL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
_SOCKET_PATH_BYTES = 107
"""Longer paths of sockets do not exist; the daemon then ends without saying why."""
_LONGEST_SOCKET = "control_privileged"


class MpsError(Exception):
    """MPS cannot do what was asked; the text says why."""


class NotRunningError(MpsError):
    """There is no daemon for this device."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the next server will allow each client; None: not told, or no limit."""

    share_pct: float | None
    mem_mib: int | None


@dataclass(frozen=True, slots=True)
class Daemon:
    device: str
    """UUID of the GPU or of the MIG device; an index would mean something else once devices are hidden."""
    folder: Path
    """Holds this daemon's pipes and logs, and nothing else."""

    @property
    def pipe_dir(self) -> Path:
        return self.folder / "pipe"

    @property
    def log_dir(self) -> Path:
        return self.folder / "log"

    def start(
        self,
        share_pct: float = 100.0,
        mem_mib: int | None = None,
        timeout_s: float = 10.0,
        uid: int | None = None,
    ) -> None:
        """Start the daemon with these limits for every client. One that runs already is kept, and its limits set.

        With `uid`, its server too, for clients of that user: else the first of them waits while it comes up.
        """
        _check_limits(share_pct, mem_mib)
        reason = _too_long(self.pipe_dir)
        if reason is not None:
            raise MpsError(reason)
        if not self._is_well(timeout_s):
            self.kill(timeout_s)
            for folder in (self.folder.parent, self.folder, self.pipe_dir, self.log_dir):
                if not folder.exists():
                    folder.mkdir(parents=True)
                    # Whatever the umask: clients of other users pass, nobody else writes.
                    folder.chmod(0o700 if folder == self.log_dir else 0o711)
            done = self._run(["-d"], None, timeout_s)
            if done.returncode != 0:
                raise MpsError(f"the MPS daemon for {self.device} does not start: {_said(done)}")
        self.limit(share_pct, mem_mib, timeout_s)
        if uid is not None and not self.servers(timeout_s):
            self._start_server(uid, timeout_s)

    def _start_server(self, uid: int, timeout_s: float) -> None:
        """It answers at once and takes a moment to come up."""
        self.ask(f"start_server -uid {uid}", timeout_s)
        if not _until(lambda: self.trouble(timeout_s) is None and bool(self.servers(timeout_s)), timeout_s):
            why = self.trouble(timeout_s) or f"it is not there after {timeout_s:g} s"
            raise MpsError(f"the MPS server for {self.device} does not start: {why}")

    def _is_well(self, timeout_s: float) -> bool:
        """It runs, and answers. One that hangs would let every client hang, so it is as good as none."""
        try:
            return self.alive(timeout_s)
        except MpsError:
            return False

    def trouble(self, timeout_s: float = 10.0) -> str | None:
        """Why clients cannot work now; None if they can, as far as the daemon says."""
        try:
            states = {server: self.ask(f"get_server_status {server}", timeout_s) for server in self.servers(timeout_s)}
        except MpsError as error:
            return str(error)
        failed = [server for server, state in states.items() if "FAULT" in state.upper()]
        return f"MPS server {failed[0]} has failed" if failed else None

    def terminate_client(self, client: int, timeout_s: float = 2.0) -> None:
        """Take back what this process has on the device, before it is killed: a client that is killed while it
        computes can take the server, and all other clients, with it.
        """
        for server in self.servers(timeout_s):
            if client in self.clients(server, timeout_s):
                self.ask(f"terminate_client {server} {client}", timeout_s)

    def alive(self, timeout_s: float = 10.0) -> bool:
        try:
            self.ask("get_server_list", timeout_s)
        except NotRunningError:
            return False
        return True

    def ask(self, command: str, timeout_s: float = 10.0) -> str:
        """The daemon's answer to one command of the control tool."""
        done = self._run([], f"{command}\n", timeout_s)
        said = _said(done)
        if "cannot find mps control daemon" in said.lower():
            raise NotRunningError(f"no MPS daemon runs for {self.device}")
        if done.returncode != 0:
            raise MpsError(f"MPS refuses `{command}`: {said}")
        return done.stdout.strip()

    def limit(self, share_pct: float, mem_mib: int | None = None, timeout_s: float = 10.0) -> None:
        """Set what clients that connect from now on may use at most; without `mem_mib` the memory limit stays as it is.

        Clients that are connected keep what they have.
        """
        _check_limits(share_pct, mem_mib)
        self.ask(f"set_default_active_thread_percentage {share_pct:g}", timeout_s)
        if mem_mib is not None:
            self.ask(f"set_default_device_pinned_mem_limit 0 {mem_mib}M", timeout_s)
        for server in self.servers(timeout_s):  # defaults only hold for servers still to come
            self.ask(f"set_active_thread_percentage {server} {share_pct:g}", timeout_s)
            if mem_mib is not None:
                self.ask(f"set_device_pinned_mem_limit {server} 0 {mem_mib}M", timeout_s)
        # The tool's exit code says that the daemon was reached, not that it agreed.
        now = self.limits(timeout_s)
        if now.share_pct is not None and abs(now.share_pct - share_pct) > 0.05:
            raise MpsError(f"MPS was told a share of {share_pct:g} % and has {now.share_pct:g} %")
        if mem_mib is not None and now.mem_mib is not None and now.mem_mib != mem_mib:
            raise MpsError(f"MPS was told a memory limit of {mem_mib} MiB and has {now.mem_mib} MiB")

    def limits(self, timeout_s: float = 10.0) -> Limits:
        share = self.ask("get_default_active_thread_percentage", timeout_s)
        memory = self.ask("get_default_device_pinned_mem_limit 0", timeout_s)
        return Limits(_number(share), _mib(memory))

    def servers(self, timeout_s: float = 10.0) -> tuple[int, ...]:
        """Process ids of the servers: none until the first client comes, then one for each user."""
        return _pids(self.ask("get_server_list", timeout_s))

    def clients(self, server: int, timeout_s: float = 10.0) -> tuple[int, ...]:
        return _pids(self.ask(f"get_client_list {server}", timeout_s))

    def client_environment(self, share_pct: float = 100.0, mem_mib: int | None = None) -> dict[str, str]:
        """What a process needs in its environment to run as a client with at most this share and memory."""
        _check_limits(share_pct, mem_mib)
        environment = {"CUDA_VISIBLE_DEVICES": self.device, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir)}
        if share_pct < 100:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{share_pct:g}"
        if mem_mib is not None:
            size = f"{mem_mib}M" if mem_mib % 1024 else f"{mem_mib // 1024}G"
            environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={size}"
        return environment

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the daemon and its servers; clients still there after the timeout lose their device. Twice is fine."""
        seconds = max(1, round(timeout_s))
        try:
            # The tool returns when the servers are gone, or have been made to go after so many whole seconds.
            self.ask(f"quit -t {seconds}", seconds + 2)
            _until(lambda: not self._processes(), timeout_s)
        except MpsError:
            pass  # killed earlier, or it hangs: cleaning up is the same, and says what remains
        self.kill(timeout_s)

    def kill(self, timeout_s: float = 10.0) -> None:
        """End daemon and servers without asking them, and remove their files: of one that was killed, or hangs."""
        self._end(self._processes(), timeout_s)
        if self.pipe_dir.is_dir():
            for entry in self.pipe_dir.iterdir():
                entry.unlink(missing_ok=True)

    def _processes(self) -> list[int]:
        """The daemon and servers of this folder. Found by their environment, so never somebody else's."""
        mark = f"CUDA_MPS_PIPE_DIRECTORY={self.pipe_dir}".encode()
        return [pid for pid, words, environment in _mps_processes() if mark in environment and _stays(words)]

    def _end(self, pids: list[int], timeout_s: float) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = [pid for pid in pids if pid in self._processes()]
            for pid in left:
                _signal(pid, number)
            if _until(lambda: not set(pids) & set(self._processes()), timeout_s):
                return
        raise MpsError(f"processes {pids} of the MPS daemon for {self.device} do not end")

    def open_question(self, command: str) -> "subprocess.Popen[str]":
        """Ask, and do not wait for the answer, which is short."""
        process = subprocess.Popen(
            [_tool()],
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{command}\n")
            process.stdin.close()
        process.stdin = None  # else `communicate` would want to write to it
        return process

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | {
            "CUDA_VISIBLE_DEVICES": self.device,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log_dir),
        }

    def _run(self, arguments: list[str], command: str | None, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                [_tool(), *arguments],
                input=command if command is not None else "",
                env=self._environment(),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MpsError(f"the MPS daemon for {self.device} does not answer within {timeout_s:g} s") from None


def no_daemon(folder: Path) -> dict[str, str]:
    """The environment of whoever has no share: a folder in which no daemon is.

    Without it a process finds the daemon at MPS's usual place, whoever has started that.
    """
    nobody = folder / "none"
    for path in (folder, nobody):
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(0o711)
    return {"CUDA_MPS_PIPE_DIRECTORY": str(nobody)}


def daemon_for(device: str, folder: Path) -> Daemon:
    """The daemon of a device, running or not, in its place under the folder of all daemons."""
    if not re.fullmatch(r"(GPU|MIG)-[0-9A-Za-z/-]+", device):
        raise MpsError(f"{device!r} is not the UUID of a GPU or MIG device")
    # Not the UUID itself: it would take half of what a socket's path may be long.
    digest = hashlib.sha256(device.encode()).hexdigest()[:12]
    return Daemon(device, folder / f"{device[:3].lower()}-{digest}")


def end_daemons(devices: Iterable[str], folder: Path) -> None:
    """Those of these devices, running or not; what does not end says so when the device is needed."""
    for device in devices:
        with suppress(MpsError):
            daemon_for(device, folder).kill()


def why_unusable(folder: Path) -> str | None:
    """Why no device can be shared with daemons under this folder, known before one is started; None if one can."""
    if available() is None:
        return f"{TOOL} is not in the PATH: jobs cannot share a device, as this policy has them do"
    return _too_long(daemon_for("GPU-0", folder).pipe_dir)


def _too_long(pipe_dir: Path) -> str | None:
    excess = len(os.fsencode(pipe_dir / _LONGEST_SOCKET)) - _SOCKET_PATH_BYTES
    return f"{pipe_dir} is {excess} bytes too long for sockets; use a shorter folder" if excess > 0 else None


def running() -> tuple[Path, ...]:
    """Pipe directories of the MPS daemons on this host, whoever started them; only root sees those of others."""
    prefix = b"CUDA_MPS_PIPE_DIRECTORY="
    found = set[Path]()
    for _, words, environment in _mps_processes():
        if b"-d" in words:
            told = next((entry for entry in environment if entry.startswith(prefix)), prefix + b"/tmp/nvidia-mps")
            found.add(Path(os.fsdecode(told.removeprefix(prefix))))
    return tuple(sorted(found))


def available(environment: Mapping[str, str] = os.environ) -> str | None:
    """Where the control tool is; None if MPS is not installed."""
    return shutil.which(TOOL, path=environment.get("PATH"))


def _tool() -> str:
    path = available()
    if path is None:
        raise MpsError(f"MPS is not installed: there is no {TOOL} in the PATH")
    return path


def _check_limits(share_pct: float, mem_mib: int | None) -> None:
    if not 0 < share_pct <= 100:
        raise MpsError(f"a share of {share_pct:g} % is not possible; accepted are more than 0 up to 100")
    if mem_mib is not None and mem_mib <= 0:
        raise MpsError(f"a memory limit of {mem_mib} MiB is not possible; accepted are at least 1")


def _said(done: "subprocess.CompletedProcess[str]") -> str:
    return " ".join(f"{done.stdout} {done.stderr}".split()) or f"exit code {done.returncode}, no explanation"


def _pids(text: str) -> tuple[int, ...]:
    words = text.split()
    if not all(word.isascii() and word.isdigit() for word in words):
        raise MpsError(f"MPS answers {text!r} where process ids were expected")
    return tuple(map(int, words))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _mib(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]+)\s*([GM])i?B?", text.strip())
    return None if match is None else int(match[1]) * (1024 if match[2] == "G" else 1)


def _mps_processes() -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Process id, command line and environment of everything that belongs to MPS and that we may look at."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if not (folder / "comm").read_bytes().startswith(TOOL[:15].encode()):  # the kernel keeps 15 characters
                continue
            words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if words:  # a process that has ended and is not buried yet has none
            yield int(folder.name), words, environment


def _stays(words: list[bytes]) -> bool:
    """A daemon or a server; the same tool without -d only asks a question and ends."""
    return b"-d" in words or any(Path(os.fsdecode(word)).name == SERVER for word in words)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise MpsError(f"process {pid} of MPS belongs to another user") from error


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition; whether it came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True
