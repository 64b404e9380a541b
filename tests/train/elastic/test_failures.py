"""Workers that are killed, stopped, or have a bug: no sample is lost or doubled, nothing hangs, nobody is left over."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpuloom.train.elastic.client import Client
from tests.train.elastic.shop import Training, until

pytestmark = pytest.mark.xdist_group("torch")
Maker = Callable[..., Training]


def steps_on(client: Client, count: int = 2) -> None:
    """Wait until training goes on."""
    step = client.status()["step"]
    until(lambda: not step <= client.status()["step"] < step + count, "some steps")


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def check(job: Training) -> None:
    assert job.enough() == 0, job.log()
    compared = job.compared()
    assert compared["wrong_visits"] == compared["torn"] == 0
    assert max(compared["visits"]) - min(compared["visits"]) <= 1
    assert compared["difference"] < 1e-6


def test_any_worker_may_be_killed_at_any_time(training: Maker) -> None:
    """The first, another, two at once, all of them (then the checkpoint counts), and during a change."""
    job, dice = training(checkpoint_s=0.2, norm="sync", max_local_batch=None), random.Random(3)
    job.begin("A", "B", "C")
    with job.client() as client:
        for kind in ("first", "any", "change", "two", "newcomer", "all", "change", "any"):
            steps_on(client)
            present = client.settled()["pids"]
            match kind:
                case "first":
                    kill(present[0])
                case "any":
                    kill(dice.choice(present))
                case "two":
                    for pid in present[:2]:
                        kill(pid)
                case "all":
                    until((job.folder / "elastic.pt").exists, "a checkpoint")
                    for pid in present:
                        kill(pid)
                case _:
                    job.resize(client, *dice.sample("ABCDE", 3), wait=False)
                    kill(children(job.pid)[-1] if kind == "newcomer" else dice.choice(present))
            steps_on(client)
        client.settled()
    check(job)


def test_a_stopped_worker_is_taken_for_dead(training: Maker) -> None:
    job = training(timeout_s=1.0)
    job.begin("A", "B", "C")
    with job.client() as client:
        for number in (0, 2):
            stopped = client.settled()["pids"][number]
            kill(stopped, signal.SIGSTOP)
            until(lambda: stopped not in client.status()["pids"], "the stopped one is gone")  # noqa: B023
            steps_on(client)
            assert len(client.settled()["workers"]) == 3
        job.resize(client, "A")
        (alone,) = client.settled()["pids"]
        kill(alone, signal.SIGSTOP)
        until(lambda: client.settled()["pids"] != [alone], "the lone one is replaced")
    assert job.enough() == 0, job.log()


def test_the_store_is_replaced(training: Maker) -> None:
    job = training(timeout_s=4.0)
    job.begin("A", "B")
    with job.client() as client:
        workers = client.settled()["pids"]
        (store,) = [pid for pid in children(job.pid) if pid not in workers]
        kill(store)
        until(lambda: [pid for pid in children(job.pid) if pid not in (store, *workers)], "another store")
        assert job.resize(client, "A", "B", "C")["workers"] == ["A", "B", "C"]
    check(job)


def test_a_bug_ends_the_job_with_its_traceback(training: Maker) -> None:
    job = training(fail_at=3)
    job.begin("A", "B")
    assert job.wait() == 1
    assert "RuntimeError: a bug in the training" in job.log()
    assert "training.py" in job.log()


def test_a_device_on_which_nothing_starts_is_told(training: Maker) -> None:
    job = training(fail_on="X", pace_s=0.01)
    job.begin("A")
    with job.client() as client:
        told = job.resize(client, "A", "X", batch=24)
        assert (told["done"], told["workers"]) == (True, ["A"])
        assert "X failed 3 times" in told["error"]
        assert job.resize(client, "A", "B")["error"] is None
    check(job)


def test_nobody_outlives_the_fork_server(training: Maker) -> None:
    job = training(pace_s=0.01)
    job.begin("A", "B")
    with job.client() as client:
        client.settled()
    left = children(job.pid)
    assert len(left) == 3
    assert job.stop(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), "all are gone")
