"""A stand-in for DCGM's host engine: `python dcgm_engine.py FOLDER [tcp]`, with the stand-in's GPUs.

It listens at FOLDER/socket or at a port of its own, and says where. It knows the GPUs and instances that there are now,
and writes into FOLDER/log what is watched, and each time that it tells something of it. How it behaves is in
FOLDER/mode, read anew at every question:

    values      of gract, smact, smocc, drama; null is blank. An instance's gract is raised by its number, in per cent
    blanks      so many times a new watch tells nothing yet
    unknown     so many times an instance is not known yet
    refuses     why nothing can be watched: [code, text]
    holds       what is watched is held open, as by a process
"""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
LOCK = threading.Lock()
Answer = dict[str, Any]


def log(*words: object) -> None:
    with LOCK, (FOLDER / "log").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def gpus() -> list[Answer]:
    shown = subprocess.run(["standinctl", "show"], capture_output=True, text=True, check=True).stdout
    return list(json.loads(shown))


@contextmanager
def held(device: str) -> Iterator[None]:
    with subprocess.Popen(
        ["standinctl", "use", device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield


class Refused(Exception):  # noqa: N818
    pass


class Client(socketserver.StreamRequestHandler):
    unknown = 0
    """How often one was said to be, of all clients."""

    def handle(self) -> None:
        self.entity, self.instance, self.device, self.asked = "", 0, "", 0
        self.stack = ExitStack()
        with self.stack, suppress(OSError):
            for line in self.rfile:
                self.wfile.write(f"{json.dumps(self.answer(json.loads(line)))}\n".encode())

    def answer(self, asked: Answer) -> Answer:
        mode = json.loads((FOLDER / "mode").read_text())
        try:
            answer: Answer = getattr(self, asked["do"])(asked, mode)
            return answer
        except Refused as reason:
            return {"code": reason.args[0], "error": reason.args[1]}

    def discovery(self, _: Answer, __: Answer) -> Answer:
        return {"gpus": [gpu["uuid"] for gpu in gpus()]}

    def find(self, asked: Answer, mode: Answer) -> Answer:
        uuid, _, number = asked["entity"].partition("/")
        for at, gpu in enumerate(gpus()):
            if gpu["uuid"] == uuid and not number:
                self.entity, self.instance, self.device = f"GPU {at}", 0, uuid
                return {}
            for part in gpu["instances"] if gpu["uuid"] == uuid else ():
                if part["id"] == int(number) and Client.unknown < mode.get("unknown", 0):
                    Client.unknown += 1
                elif part["id"] == int(number):
                    # Not NVML's number: an engine counts through all instances of the host.
                    self.entity = f"GPU-I {40 + part['id']}"
                    self.instance, self.device = part["id"], part["computes"][0]["uuid"]
                    return {}
        raise Refused(-1, f"Error: Expected numerical entityId instead of {asked['entity']}")

    def watch(self, _: Answer, mode: Answer) -> Answer:
        if "refuses" in mode:
            code, text = mode["refuses"]
            raise Refused(code, f"Error setting watches. Result: {code}: {text}\n")
        if mode.get("holds"):
            self.stack.enter_context(held(self.device))
        log("watches", self.device)
        self.stack.callback(log, "let go of", self.device)
        return {"entity": [self.entity]}

    def latest(self, _: Answer, mode: Answer) -> Answer:
        self.asked += 1
        log("tells", self.device)
        if self.asked <= mode.get("blanks", 1):
            return {"values": [None] * 4}
        first, *others = mode["values"]
        return {"values": [None if first is None else first + self.instance / 100, *others]}


class Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True


def main() -> None:
    server = Tcp(("127.0.0.1", 0), Client) if sys.argv[2:] else Unix(str(FOLDER / "socket"), Client)
    told = server.socket.getsockname()
    print(f"localhost:{told[1]}" if sys.argv[2:] else f"unix://{told}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
