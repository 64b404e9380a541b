"""A campaign in its own process on the stand-in's GPUs, or on a CPU device, and the promises that it has to keep."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.live.shop import PATIENCE_S, Shop, until
from tests.standin.hardware import GPULOOM

PROGRAM = Path(__file__).with_name("program.py")
QUICK = ("--seconds", "3s", "--steps", "12", "--patience-s", "20s", "--grace-s", "3s")
ONCE = ("--repeat", "1", "--most", "1")


def program(oddity: str = "steady", *words: str) -> list[str]:
    return [sys.executable, str(PROGRAM), oddity, *words]


class Lab(Shop):
    def words(self, *words: str) -> list[str]:
        """As a user would type it; the command, if any, comes last, after `--`."""
        device = ["--device", self.device] if self.device else []
        quick = QUICK if "--for" in words else (*QUICK, *ONCE)  # with it nothing is repeated anyway
        return [str(GPULOOM), "measure", "--state", str(self.state), *device, *quick, "--output", "json", *words]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return self.start_other(self.words(*words))

    def start_other(self, command: list[str]) -> "subprocess.Popen[str]":
        """Any command, as if it were a campaign's."""
        runner = subprocess.Popen(
            command,
            env=self.hardware.environment | self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._runners.append(runner)
        return runner

    def measure(self, *words: str, code: int = 0) -> dict[str, Any]:
        return self.finish(self.start(*words), code)

    def refused(self, *words: str, code: int = 2) -> str:
        """What it says then, in one line."""
        out, err = self.start(*words).communicate(timeout=PATIENCE_S)
        runner = self._runners[-1]
        assert (runner.returncode, out, err.count("\n")) == (code, "", 1), f"{out}{err}"
        return str(err)

    def plan(self, **fields: Any) -> str:
        path = self.folder / "plan.json"
        path.write_text(json.dumps(fields))
        return str(path)

    # ---- what can be seen ------------------------------------------------------------------------------------------

    def journal(self) -> list[dict[str, Any]]:
        path = self.state / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def table(self) -> list[dict[str, str]]:
        return list(csv.DictReader((self.state / "measured.csv").read_text().splitlines()))

    def reported(self, job: str) -> int:
        launch = self.store.last_launch(job)
        progress = None if launch is None else launch.progress()
        return 0 if progress is None else progress.step

    def wait_for_runs(self, runner: "subprocess.Popen[str]", number: int) -> None:
        until(lambda: len(self.journal()) >= number or runner.poll() is not None, f"{number} runs are over")
        assert runner.poll() is None, runner.communicate()


def by_arrangement(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = dict.fromkeys(row["arrangement"] for row in rows)
    return {name: [row for row in rows if row["arrangement"] == name] for name in names}
