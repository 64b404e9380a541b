"""Somebody sets the date while jobs run: a real process under the stand-in's wall clock, and its speed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuloom.gpus.grant import Grant
from gpuloom.live.jobs import LiveJob
from gpuloom.live.store import Launch, Progress, Store
from tests.live.shop import until
from tests.standin.build import WALLCLOCK

HOUR_S, DAY_S = 3_600, 86_400
BATCHES = 20
"""Done and seen between two changes of the clock."""

OURS = """
import time
from gpuloom.train import report
step = 0
while True:
    step += 1
    report(step)
    time.sleep(0.005)
"""
ANOTHERS = """
import json, os, time
step, path = 0, os.environ["GPULOOM_PROGRESS"]
while True:
    step += 1
    with open(path + ".draft", "w") as file:
        json.dump({"step": step, "at_unix_s": time.time()}, file)
    os.replace(path + ".draft", path)
    time.sleep(0.005)
"""


@contextmanager
def running(program: str, launch: Launch, clock: Path, tools: Path) -> Iterator[None]:
    environment = os.environ | {
        "LD_PRELOAD": str(tools / WALLCLOCK),
        "GPULOOM_STANDIN_CLOCK": str(clock),
        "GPULOOM_PROGRESS": str(launch.progress_path),
    }
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        try:
            yield
        finally:
            process.kill()


class Watcher:
    """Looks at a job as the runner does, and remembers what it saw and told."""

    def __init__(self, launch: Launch) -> None:
        self.job = LiveJob("a", (Grant(0),), launch, None)
        self.reports: list[Progress] = []
        self.speeds: list[float] = []

    def look(self) -> None:
        progress = self.job.launch.progress()
        if progress is None or (self.reports and progress == self.reports[-1]):
            return
        self.reports.append(progress)
        rate = self.job.batches_per_s(progress, time.monotonic(), 0.05, 1.0)
        if rate is not None:
            self.speeds.append(rate)

    def watch(self) -> None:
        reports, speeds = len(self.reports) + BATCHES, len(self.speeds) + 2

        def enough() -> bool:
            self.look()
            return len(self.reports) >= reports and len(self.speeds) >= speeds

        until(enough, "it has worked for a while")


@pytest.mark.parametrize("program", [OURS, ANOTHERS], ids=["with the monotonic clock", "without it"])
def test_setting_the_date_does_not_change_what_is_measured(folder: Path, program: str, standin_tools: Path) -> None:
    clock = folder / "clock"
    clock.write_text("0")
    launch = Store(folder / "state").new_launch("a", 1, 1, None)
    watcher = Watcher(launch)
    began_s = time.monotonic()
    with running(program, launch, clock, standin_tools):
        for set_by_s in (0, HOUR_S, -DAY_S):
            draft = clock.with_suffix(".draft")
            draft.write_text(str(set_by_s))
            draft.replace(clock)
            watcher.watch()
    passed_s = time.monotonic() - began_s
    walls = [report.at_unix_s - time.time() for report in watcher.reports]
    assert max(walls) > HOUR_S - 600  # the clock was set indeed
    assert min(walls) < 600 - DAY_S
    # A batch was done between any two that were compared, in less time than all of this took. With an hour among the
    # seconds none would seem that fast; after a day was taken away none would be told, and `watch` would wait in vain.
    assert min(watcher.speeds) > 1 / passed_s
