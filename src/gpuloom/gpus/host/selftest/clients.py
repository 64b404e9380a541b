"""Processes that the self-test starts on a device: they hold a CUDA context until they are told to end, or killed."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuloom.gpus.host.selftest.recording import Call, Recorder

SCRIPT = Path(__file__).with_name("cuda_client.py")
ANSWERS_WITHIN_S = 60.0
"""The first context on a device may take long; a client that hangs must not take the self-test along."""


class ClientError(Exception):
    """A client did not do what was asked; the text says what."""


class NoCuda(Exception):  # noqa: N818 (it is a reason, not a fault)
    """No process can use a device on this host; the text says why."""


@dataclass(slots=True)
class Client:
    process: "subprocess.Popen[str]"
    recorder: Recorder

    @property
    def pid(self) -> int:
        return self.process.pid

    def work(self, mib: int) -> list[Call]:
        """Have it allocate so much and give it back; the calls that this took."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{mib}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ClientError("the CUDA client has ended by itself") from None
        return self.hear()[1]

    def hear(self) -> tuple[str | None, list[Call]]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWERS_WITHIN_S)
        if not ready:
            raise ClientError(f"the CUDA client does not answer within {ANSWERS_WITHIN_S:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise ClientError(f"the CUDA client has ended with {self.process.wait()}")
        told = json.loads(line)
        calls = [Call(**call) for call in told.get("calls", ())]
        for call in calls:
            self.recorder.add(call)
        return told["reason"], calls

    def kill(self) -> None:
        """End it as nothing can hold up."""
        self.process.kill()
        self.process.wait()


@contextmanager
def client(device: str, environment: Mapping[str, str], recorder: Recorder) -> "Iterator[tuple[Client, list[Call]]]":
    """A process on a device and what its beginning took; ended, if need be killed, with the block."""
    with subprocess.Popen(
        [sys.executable, "-I", str(SCRIPT)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": device, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: the clients end when the part that they are in does
    ) as process:
        try:
            begun = Client(process, recorder)
            recorder.pseudonyms.pid(process.pid)
            reason, calls = begun.hear()
            if reason is not None and not calls:
                raise NoCuda(reason)
            if reason is not None:
                raise ClientError(f"the CUDA client got no context: {reason}")
            yield begun, calls
        finally:
            process.kill()
