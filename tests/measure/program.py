"""What is measured in tests: `python program.py ODDITY WORDS…`. It steps at a pace that its slice sets, or is odd.

On the stand-in it is seen as a user of its device, as a CUDA program would be.
"""

import ctypes
import json
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from gpuloom.train import on_stop, report

STEP_MS = {"1": 8.0, "2": 6.0, "3": 5.0, "4": 4.5, "7": 4.0, "w": 4.0}
"""By how the profile begins."""


def occupy_the_device() -> object:
    """Keep what this returns."""
    if "GPULOOM_STANDIN_STATE" not in os.environ or "GPULOOM_DEVICE" in os.environ:
        return None
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if not Path(pipes, "control").exists():
        assert ctypes.CDLL("libnvidia-ml.so.1").standinUse(os.environ["CUDA_VISIBLE_DEVICES"].encode()) == 0
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{pipes}/control")
    share = os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    connection.sendall(f"client {os.getpid()} {os.getuid()} {share} none\n".encode())
    assert connection.recv(4096).startswith(b"admitted")
    return connection


def step(tell: Callable[[int], None], most: int = 10**9) -> None:
    stop: list[bool] = []
    on_stop(lambda: stop.append(True))
    step_s = STEP_MS[os.environ["GPULOOM_PROFILE"][0]] / 1e3
    done = 0
    tell(done)
    while done < most and not stop:
        time.sleep(step_s)
        done += 1
        tell(done)


def clocked() -> None:
    """Tells each step with the time at which it was due: its figures are the same however busy the machine is."""
    stop: list[bool] = []
    on_stop(lambda: stop.append(True))
    step_s = STEP_MS[os.environ["GPULOOM_PROFILE"][0]] / 1e3
    done, due_s = 0, time.monotonic()
    report(done, at_monotonic_s=due_s)
    while not stop:
        due_s += step_s
        time.sleep(max(due_s - time.monotonic(), 0.0))
        done += 1
        report(done, at_monotonic_s=due_s)


def with_another_clock() -> None:
    """Its times are in another unit."""
    begun_s = time.monotonic()
    step(lambda done: report(done, at_monotonic_s=begun_s + done * 1e-9))


def sleepy() -> None:
    """Waits for nearly all of its step, as for data from elsewhere: no device makes that shorter."""
    work(cpu_s=0.001, wait_s=0.1)


def saturating() -> None:
    """Computes all the time."""
    work(cpu_s=0.006, wait_s=0.0)


def work(cpu_s: float, wait_s: float) -> None:
    """Steps of so much CPU time, and of so much waiting."""
    stop: list[bool] = []
    on_stop(lambda: stop.append(True))
    done = 0
    report(done)
    while not stop:
        until_s = time.thread_time() + cpu_s
        while time.thread_time() < until_s:
            pass
        time.sleep(wait_s)
        done += 1
        report(done)


def forks() -> None:
    """With children who leave its session, are deaf, and stay when it goes."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
            os._exit(0)
    step(report)


def backwards(done: int) -> None:
    report(done if done < 10 else 3)


def by_line(done: int) -> None:
    print(f"epoch {done // 7}: step {done} of 1,000, loss {1 / (done + 1):.3f}")


def by_file(done: int) -> None:
    Path(os.environ["GPULOOM_CHECKPOINT_DIR"], "my.progress").write_text(json.dumps({"step": done, "loss": 0.5}))


def crash_at(most: int) -> None:
    step(report, most)
    print("some context\nValueError: the loss is NaN", file=sys.stderr)
    sys.exit(3)


def crash_when_told(flag: Path) -> None:
    """Whoever wants it to fail makes this file."""

    def tell(done: int) -> None:
        report(done)
        if flag.exists():
            sys.exit("CUDA error: unspecified launch failure")

    step(tell)


def hungry() -> None:
    """A device of this size is too small for it."""
    if os.environ["GPULOOM_PROFILE"][0] in "12":
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    step(report)


def daemonise() -> None:
    code = "import time; time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.DEVNULL)


def flood() -> None:
    def tell(done: int) -> None:
        report(done)
        os.write(1, b"all work and no play\n" * 20_000)

    step(tell)


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal = lambda *_: None
    step(report)


def measured(step_ms: dict[str, float], noise: float) -> None:
    """As long a step as was measured there, times this run's luck. It tells the times that it keeps to, not those at
    which a busy machine let it: so how fast it was does not depend on who else is there."""
    place = os.environ["GPULOOM_PROFILE"]
    if place not in step_ms:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    luck = Random(f"{os.environ['GPULOOM_JOB']} {place}")
    step_s = step_ms[place] / 1e3 * math.exp(luck.gauss(0.0, noise))
    stop: list[bool] = []
    on_stop(lambda: stop.append(True))
    begun_s, done = time.monotonic(), 0
    while not stop:
        at_s = begun_s + done * step_s
        time.sleep(max(at_s - time.monotonic(), 0.0))
        write_report(done, at_s)
        done += 1


def write_report(done: int, at_s: float) -> None:
    """By other means than `report`, which tells nothing that cannot be."""
    told = Path(os.environ["GPULOOM_PROGRESS"])
    draft = told.with_name("draft")
    draft.write_text(json.dumps({"step": done, "at_unix_s": time.time(), "at_monotonic_s": at_s}) + "\n")
    draft.replace(told)


def eat_memory() -> None:
    held = []
    report(0)
    while True:
        held.append(mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))


def main(oddity: str, *words: str) -> None:
    connection = occupy_the_device()
    ways: dict[str, Callable[[], None]] = {
        "steady": lambda: step(report),
        "clocked": clocked,
        "another clock": with_another_clock,
        "negative": lambda: step(lambda done: write_report(-1 - done, time.monotonic())),
        "sleepy": sleepy,
        "saturating": saturating,
        "forks": forks,
        "by line": lambda: step(by_line),
        "by file": lambda: step(by_file),
        "silent": lambda: time.sleep(1000),
        "crash": lambda: crash_at(0),
        "crash later": lambda: crash_at(12),
        "crash when told": lambda: crash_when_told(Path(words[0])),
        "backwards": lambda: step(backwards),
        "short": lambda: step(report, 3),
        "hungry": hungry,
        "daemon": daemonise,
        "flood": flood,
        "deaf": deaf,
        "eats memory": eat_memory,
        "measured": lambda: measured(json.loads(words[0]), float(words[1])),
    }
    ways[oddity]()
    del connection


if __name__ == "__main__":
    main(*sys.argv[1:])
