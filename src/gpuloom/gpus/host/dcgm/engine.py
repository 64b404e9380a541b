"""DCGM's host engine, if one runs already: where it listens, and which GPUs it knows. None is ever started.

It is asked through `dcgmi`, NVIDIA's own client, and only where a plain connection has shown that somebody listens: so
nothing hangs on what `dcgmi` does where nobody does. Written from DCGM's documentation and source; not yet run with it.
"""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

TOOL = "dcgmi"
TOLD_BY = "DCGM_REMOTE_HOSTENGINE_INFO"
"""The variable by which dcgm-exporter, and so the GPU operator, is told the address of an engine that runs already."""
UNIX, PORT = "unix://", 5555
USUAL = ("localhost", f"{UNIX}/tmp/nv-hostengine")
"""Where an engine listens that was not told: at a port, or with -d at a socket."""
CONNECT_S, ANSWER_S = 1.0, 5.0
_UUID = re.compile(r"\bGPU-[0-9a-fA-F-]+")


class NoEngine(Exception):  # noqa: N818 (it is a reason, not a fault)
    """There is no host engine to ask; the text says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    tool: str
    address: str
    """As `dcgmi --host` takes it."""
    gpus: frozenset[str]
    """Their UUIDs. An engine of another host, which an address may lead to, does not have ours."""


def find_engine(environment: Mapping[str, str] = os.environ, answer_s: float = ANSWER_S) -> Engine:
    """The one at the address that was told, else at a usual one; NoEngine if none answers."""
    tool = shutil.which(TOOL, path=environment.get("PATH"))
    if tool is None:
        raise NoEngine(f"{TOOL} is not in the PATH")
    told, reasons = environment.get(TOLD_BY), []
    for address in (told,) if told else USUAL:
        try:
            _knock(address)
            return _ask(tool, address, answer_s)
        except NoEngine as reason:
            reasons.append(str(reason))
    raise NoEngine("; ".join(reasons))


def _knock(address: str) -> None:
    """NoEngine unless somebody listens there."""
    try:
        if address.startswith(UNIX):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CONNECT_S)
                connection.connect(os.fsencode(Path(address.removeprefix(UNIX))))
        else:
            socket.create_connection(_host_and_port(address), CONNECT_S).close()
    except OSError:
        raise NoEngine(f"no host engine listens at {address}") from None


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.path:
        raise NoEngine(f"{TOLD_BY} is {address}, which is no address; accepted are HOST, HOST:PORT and {UNIX}/PATH")
    return host, PORT if port is None else port


def _ask(tool: str, address: str, answer_s: float) -> Engine:
    try:
        done = subprocess.run(
            [tool, "discovery", "-l", "--host", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=answer_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoEngine(f"the host engine at {address} does not answer within {answer_s:g} s") from None
    except OSError as error:
        raise NoEngine(f"{tool} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        said = " ".join(done.stdout.split()) or f"exit code {done.returncode}, no explanation"
        raise NoEngine(f"the host engine at {address} does not tell its GPUs: {said}")
    return Engine(tool, address, frozenset(_UUID.findall(done.stdout)))
