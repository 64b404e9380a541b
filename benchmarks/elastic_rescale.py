"""Elastic training on this machine's CPUs (gloo): how long a change takes, whether it is exact, what a kill costs.

    python benchmarks/elastic_rescale.py --part pause --rounds 5
    python benchmarks/elastic_rescale.py --part all

pause      from the end of the last step before a change to the beginning of the first after it: growth from 2 to 3
           workers, shrinking from 3 to 2, another batch, in place; the same growth by a stop with a checkpoint and a
           new process (cold), or a fork of one that has imported everything (warm); all workers killed, and replaced
           by the fork server from its checkpoint (killed; from the kill on)
exact      100 random changes of workers and batch, against a plain loop of one process in 64 bits
kill       50 SIGKILLs of random workers, the first one's and during changes among them, and what it cost
batchnorm  how far plain batch norm is from the same training on one worker; the synchronised one beside it

Prints JSON. Needs PyTorch, and a machine that does nothing else.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.train.elastic.shop import Spawner, Training, seats, until  # noqa: E402

from gpuloom.train.elastic.client import Client  # noqa: E402

MODELS = ("cnn", "transformer", "resnet18")


MODELS_FILE = ROOT / "benchmarks" / "elastic_models.py"
RESTARTS = (("cold_restart", False), (None, True), ("warm_restart", True), (None, False))
"""What is stopped is of the same kind as what is started: to end a process is a part of the pause too."""
ALL = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Warm:
    """A process that has imported everything, and forks jobs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(MODELS_FILE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | ALL,
        )  # fmt: skip

    def ask(self, **asked: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class Process:
    """A training of elastic_models.py, by its contract alone."""

    def __init__(self, model: str, folder: Path, warm: Warm) -> None:
        self.model, self.folder, self.warm = model, folder, warm
        self.process: subprocess.Popen[bytes] | None = None
        self.pid = self.generation = 0

    def begin(self, names: str, resume: bool, warm: bool = False) -> None:
        """As a process of its own, or forked by the warm one."""
        self.generation = 0
        env = {
            "GPULOOM_CHECKPOINT_DIR": str(self.folder), "GPULOOM_ELASTIC_SOCKET": str(self.folder / "socket"),
            "GPULOOM_WORKERS": json.dumps(seats(*names)), "GPULOOM_RESUME": str(int(resume)),
        }  # fmt: skip
        if warm:
            self.process, self.pid = None, self.warm.ask(model=self.model, folder=str(self.folder), env=env)
            return
        command = [sys.executable, str(MODELS_FILE), self.model, str(self.folder)]
        self.process = subprocess.Popen(command, env=os.environ | ALL | env)
        self.pid = self.process.pid

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        code = self.warm.ask(wait=self.pid) if self.process is None else self.process.wait()
        assert code == 0, "it saves when it is stopped"

    def client(self) -> Client:
        return Client(self.folder / "socket", timeout_s=120)

    def resize(self, client: Client, names: str, batch: int) -> float:
        self.generation += 1
        pause_s: float = client.resize(self.generation, seats(*names), batch, timeout_s=300)["pause_s"]
        return pause_s

    def steps(self) -> list[dict[str, Any]]:
        found = []
        path = self.folder / "steps"
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found


def some_steps(process: Process, count: int = 4) -> None:
    have = len(process.steps())
    until(lambda: len(process.steps()) >= have + count, "steps", 600)


def pause_of(model: str, rounds: int) -> dict[str, Any]:
    """Medians and extremes of all ways to change one model."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        warm = Warm()
        process = Process(model, Path(folder), warm)
        process.begin("AB", resume=False)
        for _ in range(rounds):
            with process.client() as client:
                client.settled(300)
                some_steps(process)
                for change, names, batch in (("grow", "ABC", 24), ("shrink", "AB", 24), ("batch", "AB", 36)):
                    found.setdefault(change, []).append(process.resize(client, names, batch))
                    some_steps(process)
                process.resize(client, "AB", 24)
                found.setdefault("killed", []).append(killed(process, client))
                client.settled(300)
            for way, is_warm in RESTARTS:
                process.stop()
                process.begin("ABC", resume=True, warm=is_warm)
                with process.client() as client:
                    pause_s = client.settled(300)["pause_s"]
                    process.resize(client, "AB", 24)
                    some_steps(process)
                if way is not None:
                    found.setdefault(way, []).append(pause_s)
        step_s = median(row["ended"] - row["began"] for row in process.steps())
        process.stop()
        warm.close()
    summary = {
        name: {"median_s": median(all_s), "least_s": min(all_s), "most_s": max(all_s)} for name, all_s in found.items()
    }
    over = {
        f"{way}_over_grow": summary[f"{way}_restart"]["median_s"] / summary["grow"]["median_s"]
        for way in ("cold", "warm")
    }
    return {**summary, "step_s": step_s, **over, "rounds": rounds}


def killed(process: Process, client: Client) -> float:
    """All workers at once: the fork server starts others, which read the checkpoint."""
    until((process.folder / "elastic.pt").exists, "a checkpoint")
    present = client.settled()["pids"]
    at = time.monotonic()
    for pid in present:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not set(present) & set(client.settled(300)["pids"]), "other workers")
    began: float = until(lambda: [row["began"] for row in process.steps() if row["began"] > at], "a step")[0]
    return began - at


@contextmanager
def trained(spawner: Spawner, names: str, **wish: Any) -> Iterator[tuple[Training, Client]]:
    with tempfile.TemporaryDirectory() as folder:
        job = Training(spawner, Path(folder) / "job", {"epochs": 10**6, **wish})
        job.begin(*names)
        with job.client() as client:
            client.settled()
            yield job, client


def exact(spawner: Spawner, changes: int) -> dict[str, Any]:
    found = {}
    for norm in ("none", "sync"):
        dice = random.Random(7)
        with trained(spawner, "AB", norm=norm, max_local_batch=8 if norm == "none" else None) as (job, client):
            for _ in range(changes):
                job.resize(client, *dice.sample("ABCD", dice.randint(1, 3)), batch=dice.choice([None, 8, 16, 24, 40]))
            code = job.enough()
            found[norm] = {"changes": changes, "exit_code": code, **job.compared()}
    return found


def kill(spawner: Spawner, kills: int) -> dict[str, Any]:
    dice, done, cost_s = random.Random(11), dict.fromkeys(("first", "any", "change", "newcomer"), 0), []
    with trained(spawner, "ABC", max_local_batch=8, checkpoint_s=0.5) as (job, client):
        for _ in range(kills):
            step = client.settled()["step"]
            until(lambda: client.status()["step"] > step + 2, "steps")  # noqa: B023
            present, kind = client.settled()["pids"], dice.choice(list(done))
            victim = present[0] if kind == "first" else dice.choice(present)
            if kind in ("change", "newcomer"):
                job.resize(client, *dice.sample("ABCDE", dice.randint(2, 4)), wait=False)
            if kind == "newcomer":
                victim = int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[-1])
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                done[kind] += 1
            if kind in ("first", "any"):
                until(lambda: victim not in client.status()["pids"], "its end is noticed")  # noqa: B023
                cost_s.append(client.settled()["pause_s"])
        code = job.enough()
        return {"kills": done, "exit_code": code, **job.compared(), "pause_after_replacement_s": median(cost_s)}


def batchnorm(spawner: Spawner) -> dict[str, Any]:
    found = {}
    for norm in ("plain", "sync"):
        with tempfile.TemporaryDirectory() as folder:
            job = Training(spawner, Path(folder) / "job", {"epochs": 10, "norm": norm})
            job.begin("A", "B", "C")
            found[norm] = {"exit_code": job.wait(), **job.compared()}
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=["pause", "exact", "kill", "batchnorm", "all"], default="all")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--models", default=",".join(MODELS))
    wish = options.parse_args()
    parts = ["exact", "kill", "batchnorm", "pause"] if wish.part == "all" else [wish.part]
    result: dict[str, Any] = {}
    if "pause" in parts:
        result["pause"] = {model: pause_of(model, wish.rounds) for model in wish.models.split(",")}
    if parts != ["pause"]:
        spawner = Spawner()
        others = {
            "exact": lambda: exact(spawner, 100), "kill": lambda: kill(spawner, 50),
            "batchnorm": lambda: batchnorm(spawner),
        }  # fmt: skip
        result |= {part: others[part]() for part in parts if part != "pause"}
        spawner.close()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
