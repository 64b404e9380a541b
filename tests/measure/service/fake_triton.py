"""What `measure service` needs of a Triton server, in a process that starts at once and takes as long as it is told.

Beside its model's configuration lies behaviour.json: `fixed_ms` and `each_ms` of a batch on all of the device; on a
smaller part of it items take as much longer. `most` items in a batch are as many as its memory holds. `oddity` is one
of: crash, deaf (never ready), dies (at the third request), hangs (after twenty), refuses (every request), free (an
input has a free size).
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any


def option(name: str) -> str:
    return next(word.partition("=")[2] for word in sys.argv if word.startswith(f"--{name}="))


def part() -> float:
    """Of the device, as a process with such an environment has it."""
    profile = os.environ.get("GPULOOM_PROFILE", "whole")
    slices = 7 if profile == "whole" else int(profile[0])
    return slices / 7 * float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")) / 100


class Model:
    def __init__(self, folder: Path) -> None:
        self.told: dict[str, Any] = json.loads((folder / "behaviour.json").read_text())
        self.oddity = self.told.get("oddity")
        self.asked = 0

    async def infer(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        if self.oddity == "dies" and self.asked == 3:
            os._exit(7)
        if self.oddity == "hangs" and self.asked > 20:
            await asyncio.Event().wait()
        if self.oddity == "refuses":
            return 400, b'{"error":"unexpected shape for input x"}'
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"inference-header-content-length:")]
        text = body[: int(length[0].split(b":")[1])] if length else body
        items = json.loads(text)["inputs"][0]["shape"][0]
        if items > self.told.get("most", items):
            return 500, b'{"error":"CUDA out of memory. Tried to allocate 2.00 GiB"}'
        await asyncio.sleep((self.told["fixed_ms"] + self.told["each_ms"] * items / part()) / 1e3)
        return 200, b'{"outputs":[]}'

    async def answer(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        path = head.split(b" ")[1]
        if path.endswith(b"/infer"):
            return await self.infer(head, body)
        if path.endswith(b"/ready"):
            return (503 if self.oddity == "deaf" else 200), b""
        size = -1 if self.oddity == "free" else 3
        return 200, json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, size]}]}).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
            status, answer = await self.answer(head, body)
            writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(answer)) + answer)
        writer.close()


async def main() -> None:
    (folder,) = Path(option("model-repository")).iterdir()
    model = Model(folder)
    if model.oddity == "crash":
        sys.exit("error: this model does not load")
    print(f"threads: {os.environ.get('OMP_NUM_THREADS')}", flush=True)
    await asyncio.start_server(model.serve, "127.0.0.1", int(option("http-port")))
    await asyncio.Event().wait()


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit("--model-repository")
    asyncio.run(main())
