"""An elastic job without anything to train: it speaks the protocol, and misbehaves in one way if it is told to.

`python stretchy_job.py HOW MARKS [STEPS]`: a process for each worker, which does nothing. Every change is a line in
`changes` beside the checkpoint. It is done when MARKS/finish is there; with STEPS, after so many, which it writes down
and saves as `measured_job.py` does.
"""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpuloom.train import checkpoint_dir, on_stop, report, resuming

how, marks, steps = sys.argv[1], Path(sys.argv[2]), int([*sys.argv, "0"][3])
SAVE_EVERY = 20
told = os.environ
places = {worker["device"]: worker["env"] for worker in json.loads(told["GPULOOM_WORKERS"])}
processes: dict[str, "subprocess.Popen[bytes]"] = {}
state: dict[str, Any] = {"generation": int(told["GPULOOM_GENERATION"]), "done": True, "error": None}
state["batch"] = int(told["GPULOOM_BATCH"]) if "GPULOOM_BATCH" in told else None
stop: list[int] = []
target: dict[str, Any] | None = None
clients: list[socket.socket] = []


def note(what: str, **more: Any) -> None:
    with (checkpoint_dir() / "changes").open("a") as changes:
        print(json.dumps({"what": what, "workers": list(places), "batch": state["batch"], **more}), file=changes)


def staff() -> None:
    """A process for each worker, and none for those that are not wanted any more."""
    for device in [*processes]:
        if device not in places:
            processes.pop(device).kill()
    for device, environment in places.items():
        if device not in processes:
            command = [sys.executable, "-c", "import signal; signal.pause()"]
            processes[device] = subprocess.Popen(command, env=told | environment)


def status() -> bytes:
    here = {"op": "status", "workers": [*places], "pids": [one.pid for one in processes.values()]}
    return json.dumps({**here, **state, "step": 1, "pause_s": 0.01}).encode() + b"\n"


def tell(*whom: socket.socket) -> None:
    for client in whom:
        with contextlib.suppress(OSError):  # it has gone, and will be seen to have
            client.sendall(status())


def resize(message: dict[str, Any]) -> None:
    global target
    if message["generation"] <= state["generation"]:
        return
    target = message
    state.update(generation=message["generation"], done=False, error=None)
    (marks / "told").touch()
    first = not (marks / "misbehaved").exists()
    (marks / "misbehaved").touch()
    if how == "dies" and first:
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "completes":
        sys.exit(0)
    elif how == "closes" and first:
        listener.close()
        for client in clients:
            client.close()
        clients.clear()
    elif how == "talks rubbish" and first:
        for client in clients:
            client.sendall(b"[1, 2\n")


def go_on() -> None:
    """Reach the target, unless there is a reason not to."""
    global target, places
    if target is None or how == "deaf" or (how == "waits" and not (marks / "go").exists()):
        return
    if how == "fails":
        state.update(done=True, error="no room \ud800\x1b[2J")
    elif how == "is over":
        state.update(done=True, finished=True)
    else:
        places = {worker["device"]: worker["env"] for worker in target["workers"]}
        state.update(done=True, batch=target["batch"])
        staff()
        note("resized", generation=state["generation"])
    target = None
    tell(*clients)


def hear(client: socket.socket) -> None:
    try:
        data = client.recv(1 << 16)
    except OSError:
        data = b""
    if not data:
        clients.remove(client)
        return
    for line in data.splitlines():
        message = json.loads(line)
        if message["op"] == "resize":
            resize(message)
        if client in clients:
            tell(client)


def listen() -> socket.socket:
    sock, path = socket.socket(socket.AF_UNIX), Path(told["GPULOOM_ELASTIC_SOCKET"])
    folder = os.open(path.parent, os.O_PATH)
    sock.bind(f"/proc/self/fd/{folder}/{path.name}")
    sock.listen()
    return sock


def write(line: str) -> None:
    with (checkpoint_dir() / "steps.log").open("a") as history:
        print(line, file=history)


def save() -> None:
    write(f"saving {step}")
    draft = checkpoint_dir() / "step.draft"
    draft.write_text(str(step))
    draft.replace(checkpoint_dir() / "step")
    write(f"saved {step}")


def is_done() -> bool:
    return step >= steps if steps else (marks / "finish").exists()


alone = (checkpoint_dir() / "alone").open("w")
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (checkpoint_dir() / "TWICE").touch()
    sys.exit("two at once")
on_stop(lambda: stop.append(1))
staff()
note("resumed" if resuming() else "began", environment={name: told[name] for name in told if "GPULOOM" in name})
listener = listen() if "GPULOOM_ELASTIC_SOCKET" in told else socket.socket()
saved = checkpoint_dir() / "step"
step = int(saved.read_text()) if steps and resuming() and saved.exists() else 0
while not stop and not is_done():
    with selectors.DefaultSelector() as selector:
        for sock in (listener, *clients):
            if sock.fileno() >= 0 and "GPULOOM_ELASTIC_SOCKET" in told:
                selector.register(sock, selectors.EVENT_READ)
        for key, _ in selector.select(0.005):
            if key.fileobj is listener:
                clients.append(listener.accept()[0])
            else:
                hear(key.fileobj)  # type: ignore[arg-type]
    go_on()
    step += 1
    if steps:
        write(str(step))
        if step % SAVE_EVERY == 0:
            save()
    figures = {"batch": state["batch"] or 64, "local_batch": 8 * len(places), "accumulation": 1, "nodes": 1}
    figures |= {"step_s": 0.01, "compute_s": 0.008, "grad_sqr": 0.5, "grad_var": 2.0}
    report(step, epoch=step // 100, progress=step / 2, metric=0.5, workers=len(places), **figures)
for process in processes.values():
    process.kill()
if steps:
    save()
note("stopped" if stop else "ended")
