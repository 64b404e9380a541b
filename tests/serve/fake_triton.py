"""What the fleet needs of a Triton server, in a process that starts at once: it is ready, it answers, it can be killed.

With a file `crash` in its repository it ends before it is ready; with a file `hang` beside that it does not answer. A
request that says `die` kills it, once; one that says `eat` has it take more memory than it can have, once.
"""

import asyncio
import os
import sys
from pathlib import Path


def option(name: str) -> str:
    return next(word.partition("=")[2] for word in sys.argv if word.startswith(f"--{name}="))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            break
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
        if b"/infer" in head and b"die" in body and not os.path.exists(DIED):  # noqa: PTH110
            Path(DIED).touch()
            os._exit(1)
        if b"/infer" in head and b"eat" in body and not os.path.exists(DIED):  # noqa: PTH110
            Path(DIED).touch()
            bytearray(b"x") * (1 << 29)
        while os.path.exists(HANG):  # noqa: PTH110
            await asyncio.sleep(0.01)
        answer = b"%d" % os.getpid() if b"/infer" in head else b'nv_inference_count{model="m"} 6\n'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
    writer.close()


async def main() -> None:
    for port in (option("http-port"), option("metrics-port")):
        await asyncio.start_server(serve, "127.0.0.1", int(port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit("--model-repository")
    folder = Path(option("model-repository"))
    HANG, DIED = str(folder.parent / "hang"), str(folder.parent / "died")
    if (folder / "crash").exists():
        sys.exit("error: this model does not load")
    asyncio.run(main())
