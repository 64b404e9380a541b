"""A runner in its own process on the stand-in's GPUs, jobs for it, and the promises it has to keep."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuloom.gpus.host.cgroups import Group, Home, NoCgroups, mounts_here
from gpuloom.gpus.host.cpu import parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from gpuloom.gpus.host.mps.daemon import Daemon
from gpuloom.gpus.host.processes import born_ticks
from gpuloom.live import processes
from gpuloom.live.store import Store
from tests.standin.hardware import GPULOOM, Hardware

MEASURED_JOB = Path(__file__).parents[2] / "examples" / "measured_job.py"
ODD_JOB = Path(__file__).with_name("odd_job.py")
PATIENCE_S = 40.0
SAVE_EVERY = 20
QUICK = {"poll_real_s": 0.01, "grace_s": 100.0, "up_s": 200.0, "level_s": 4.0, "report_s": 5.0, "restore_s": 2.0}
QUICK |= {"share_real_s": 2.0}
PACE = 40.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)


class Shop:
    def __init__(self, hardware: Hardware, folder: Path) -> None:
        self.hardware, self.folder = hardware, folder
        self.state = folder / "s"
        self.marks = folder / "marks"
        """Where odd jobs leave a file for what they have done."""
        self.device = ""
        """Instead of the stand-in's GPUs: `cpu`, as on the command line."""
        self.environment: dict[str, str] = {}
        """More of it, for the runner."""
        self.options: list[str] = []
        """More words of its command line."""
        self.owner: int | None = None
        """Whose work file it is."""
        self.working_dir: Path | None = None
        """Of the runner; None: that of the tests."""
        self.store = Store(self.state)
        self.jobs: dict[str, int] = {}
        self._entries: list[dict[str, Any]] = []
        self._runners: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        for runner in self._runners:
            runner.kill()
            runner.wait()
            for pipe in (runner.stdout, runner.stderr):
                if pipe is not None:
                    pipe.close()
        processes.end(self.store.jobs_dir)
        for group in self.groups():
            assert group.end(PATIENCE_S)
        with suppress(NoCgroups):
            leave_home(find_home(key_of(self.store.folder)))
        for folder in self.store.mps_dir.glob("*"):
            Daemon("none", folder).stop()
        for home in self.device_homes():
            for group in home.groups():
                assert group.end(PATIENCE_S)
            leave_home(home)

    def cpu_driver(self) -> CpuDriver:
        """As the runner sees its CPU devices."""
        return CpuDriver(parse_devices([self.device], this_machine()), self.hardware.folder / "state")

    def device_homes(self) -> list[Home]:
        """Of CPU devices that are cut or used."""
        driver = self.cpu_driver() if self.device else None
        found = [] if driver is None else [driver.home(device) for device in driver.devices]
        return [home for home in found if home is not None]

    def home(self) -> Home:
        """Where the runner's launches live, if it has made that."""
        mounts = mounts_here()
        own = (mounts.unified or Path("/none")) / mounts.own.get("", "/").lstrip("/")
        return Home(own / "gpuloom" / key_of(self.store.folder))

    def groups(self) -> list[Group]:
        return self.home().groups()

    def odd_job(self, name: str, oddity: str, workload: str, steps: int, *words: str, **more: Any) -> None:
        """One that misbehaves, and that sees to it that it is alone."""
        self.marks.mkdir(exist_ok=True)
        script = [sys.executable, str(ODD_JOB), "" if oddity == "wrapper" else oddity, str(self.marks)]
        command = [*script, "--save-every", str(SAVE_EVERY), "--workload", workload, "--steps", str(steps), *words]
        if oddity == "wrapper":
            mark = f"touch '{self.marks}/wrapper.$$'"
            command = ["bash", "-c", f"trap 'exit 7' TERM; {mark}; {shlex.join(command)}; exit $?"]
        self._entries.append({"name": name, "workload": workload, "command": command, **more})
        self.jobs[name] = steps

    def job(self, name: str, workload: str = "resnet 128", steps: int = 60, *words: str, **more: Any) -> None:
        """A measured job: `words` are further arguments for it, `more` further fields of its entry in the work file."""
        # One that is deaf is deaf from its first moment, however long Python takes to start.
        deaf = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh"] if "--ignore-sigterm" in words else []
        script = [*deaf, sys.executable, str(MEASURED_JOB), "--save-every", str(SAVE_EVERY)]
        command = [*script, "--workload", workload, "--steps", str(steps), *words]
        self._entries.append({"name": name, "workload": workload, "command": command, **more})
        self.jobs[name] = steps

    def command(self, name: str, *words: str, **more: Any) -> None:
        self._entries.append({"name": name, "memory": "4G", "command": list(words), **more})

    def command_line(self, policy: str, pace: float = PACE, **timing: float) -> list[str]:
        """As a user would type it; the work file is written."""
        work = self.folder / "jobs.json"
        work.write_text(json.dumps({"jobs": self._entries}))  # JSON is YAML
        if self.owner is not None:
            os.chown(work, self.owner, -1)
        words = [str(GPULOOM), "run", str(work), "--policy", policy, "--state", str(self.state), "--pace", f"{pace:g}"]
        words += ["--device", self.device] if self.device else []
        for name, seconds in (QUICK | timing).items():
            words += ["--timing", f"{name}={seconds:g}"]
        return [*words, "--output", "json", *self.options]

    def begin(self, policy: str, faults: str = "", pace: float = PACE, **timing: float) -> "subprocess.Popen[str]":
        words = self.command_line(policy, pace, **timing)
        environment = self.hardware.environment | {
            "GPULOOM_STANDIN_FAULTS": faults,
            "GPULOOM_STANDIN_FIRED": str(self.folder / "fired"),
        }
        environment |= self.environment
        runner = subprocess.Popen(
            words,
            env=environment,
            cwd=self.working_dir,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._runners.append(runner)
        return runner

    def finish(self, runner: "subprocess.Popen[str]", code: int = 0, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        out, err = runner.communicate(timeout=patience_s)
        assert runner.returncode == code, f"{out}{err}{self.story()}"
        assert "Traceback" not in err, err
        answer: dict[str, Any] = json.loads(out)
        return answer

    def run(self, policy: str, code: int = 0, faults: str = "", pace: float = PACE, **timing: float) -> dict[str, str]:
        """To the end: the state of each job."""
        answer = self.finish(self.begin(policy, faults, pace, **timing), code)
        return {row["job"]: row["state"] for row in answer["jobs"]}

    def kill(self, runner: "subprocess.Popen[str]") -> None:
        runner.send_signal(signal.SIGKILL)
        runner.communicate()

    # ---- what can be seen --------------------------------------------------------------------------------------

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        path = self.state / "log.jsonl"
        lines = path.read_text().split("\n") if path.exists() else []
        entries: list[dict[str, Any]] = []
        for line in map(json.loads, lines[1:-1]):
            turn = line.get("Turn", {"events": [line]})  # a line of version 1 is an entry itself
            entries += turn["events"]
            entries += [{"Decision": turn["decision"]}] if "decision" in turn else []
        return [entry if not kind else entry[kind] for entry in entries if not kind or kind in entry]

    def story(self) -> str:
        """The log without the decisions, for a test that fails."""
        return "\n".join(str(entry)[:200] for entry in self.events() if "Decision" not in entry)

    def history(self, name: str) -> list[str]:
        """Of a measured job: a number for each step, `saving N` before and `saved N` after each checkpoint."""
        path = self.state / "jobs" / name / "checkpoint" / "steps.log"
        return path.read_text().splitlines() if path.exists() else []

    def steps(self, name: str) -> list[int]:
        return [int(line) for line in self.history(name) if line.isdecimal()]

    def check_jobs(self) -> None:
        """Every measured job was done once, and nothing again that a checkpoint had kept."""
        completed = [event["job_id"] for event in self.events("JobCompleted")]
        assert sorted(completed) == sorted(self.jobs), self.story()
        for name, wanted in self.jobs.items():
            done, saved = 0, {0}
            for line in self.history(name):
                word, _, number = line.rpartition(" ")
                if word:  # killed between the two, nobody knows which checkpoint is there
                    saved = {int(number)} if word == "saved" else {*saved, int(number)}
                    continue
                step = int(line)
                assert step == done + 1 or step - 1 in saved, f"{name}: step {step} after {done}, saved {saved}"
                done = step
            assert done == wanted

    def check_left_as_found(self, found: "list[dict[str, Any]] | None" = None) -> None:
        """No process, no MPS daemon, no instance but those that were there."""
        assert processes.marked(self.store.jobs_dir) == {}
        assert not self.home().unified.exists()
        assert self.device_homes() == []
        assert list(self.store.jobs_dir.glob("*/checkpoint/TWICE")) == [], "a job was run twice at once"
        assert list((self.state / "mps").glob("*/pipe/*")) == []
        shown = json.loads(self.hardware.ctl("show").stdout)
        used = [gpu["pids"] for gpu in shown]
        assert used == [[] for _ in shown], f"{used}: {[_what(pid) for pids in used for pid in pids]}"
        if found is None:
            assert [(gpu["mig"], gpu["instances"]) for gpu in shown] == [(False, []) for _ in shown]
        else:
            assert [(gpu["mig"], _parts(gpu)) for gpu in shown] == [(gpu["mig"], _parts(gpu)) for gpu in found]
        assert list((self.hardware.folder / "state").glob("*.json")) == []
        assert list((self.hardware.folder / "state").glob("*.cpu")) == [], "a CPU device is not as it was found"


def _parts(gpu: dict[str, Any]) -> list[tuple[int, str]]:
    return sorted((part["start"], part["profile"]) for part in gpu["instances"])


def _what(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text() if Path(f"/proc/{pid}").exists() else "gone"


def ended(pid: int) -> bool:
    return born_ticks(pid) is None


def interrupt(runner: "subprocess.Popen[str]") -> None:
    os.kill(runner.pid, signal.SIGINT)
