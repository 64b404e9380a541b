"""Workers that are killed, stopped, or have a bug: no sample is lost or doubled, nothing hangs, nobody is left over."""

import os
import random
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpuloom.train.elastic.client import Client
from gpuloom.train.elastic.wire import Lines, short_name
from tests.train.elastic.shop import Training, seats, until

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


def state_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "gone"


def alive(pid: int) -> bool:
    """Not only a body that its parent has not buried."""
    return state_of(pid) not in ("Z", "gone")


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


def test_a_store_that_is_stopped_is_replaced_and_nobody_is_killed_for_it(training: Maker) -> None:
    job = training(timeout_s=2.0, pace_s=0.005)
    job.begin("A", "B")
    with job.client() as client:
        workers = client.settled()["pids"]
        (store,) = [pid for pid in children(job.pid) if pid not in workers]
        kill(store, signal.SIGSTOP)
        told = job.resize(client, "A", "B", "C")
        assert (told["workers"], told["pids"][:2], alive(store)) == (["A", "B", "C"], workers, False)
    check(job)


def test_a_store_that_is_stopped_does_not_keep_the_job_from_ending(training: Maker) -> None:
    job = training()
    job.begin("A", "B")
    with job.client() as client:
        workers = client.settled()["pids"]
        (store,) = [pid for pid in children(job.pid) if pid not in workers]
        kill(store, signal.SIGSTOP)
    assert job.enough() == 0, job.log()
    assert not alive(store)


def test_a_client_that_hangs_up_while_all_are_told_costs_nothing(training: Maker) -> None:
    job = training()
    job.begin("A", "B")
    with job.client() as client, job.client() as rude, socket.socket(socket.AF_UNIX) as asking:
        with short_name(job.socket) as name:
            asking.connect(name)
        rude.status()
        client.settled()  # after the other: who was heard last may come first in the next round
        client.status()
        kill(job.pid, signal.SIGSTOP)
        until(lambda: state_of(job.pid) == "T", "the server is stopped")
        # Settled at once, so all who are connected are told; that one has gone is heard in the same round, after it.
        Lines(asking).send({"op": "resize", "generation": 1, "workers": seats("A", "B")})
        rude.close()
        kill(job.pid, signal.SIGCONT)
        assert client.settled()["workers"] == ["A", "B"]
    check(job)


def test_a_worker_that_the_kernel_has_no_room_for_is_given_up(training: Maker) -> None:
    job = training(pace_s=0.005)
    job.begin("A")
    with job.client() as client:
        client.settled()
        usual = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
        told = job.resize(client, "A", "B")
        assert (told["done"], told["workers"]) == (True, ["A"])
        assert "no process for it: Too many open files" in told["error"]
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, usual)
        assert job.resize(client, "A", "B")["workers"] == ["A", "B"]
    check(job)


def test_a_bug_ends_the_job_with_its_traceback(training: Maker) -> None:
    job = training(fail_at=3)
    job.begin("A", "B")
    assert job.wait() == 1
    assert "RuntimeError: a bug in the training" in job.log()
    assert "training.py" in job.log()


def test_a_training_that_does_nothing_is_told_so(training: Maker) -> None:
    job = training(nothing=True)
    job.begin("A", "B")
    assert job.wait() == 1
    assert job.log().strip() == "train() returned without worker.wrap(model, optimiser, dataset)"


def test_what_dead_workers_leave_behind(training: Maker) -> None:
    """The words of one that failed; processes that hold its sockets open, and hear signals as usual."""
    job = training(child=True, stumble_at=5, pace_s=0.005)
    job.begin("A", "B")
    with job.client() as client:
        until(lambda: "RuntimeError: a stone in the way" in job.log(), "the traceback of one that was replaced")
        steps_on(client)
        killed = client.settled()["pids"][0]
        kill(killed)
        until(lambda: killed not in client.status()["pids"], "its end is noticed")
        steps_on(client)
    first = next(job.folder.glob("child-*"))
    kill(int(first.name.partition("-")[2]), signal.SIGTERM)
    until(lambda: not alive(int(first.name.partition("-")[2])), "a child that hears SIGTERM")
    check(job)


def test_a_full_disk_costs_no_training_and_a_stop_tells_of_it(training: Maker) -> None:
    job = training(checkpoint_s=0.05, pace_s=0.005)
    in_the_way = job.folder / "elastic.pt" / "something"  # a folder cannot be replaced by a file
    in_the_way.mkdir(parents=True)
    job.begin("A")
    with job.client() as client:
        until(lambda: job.log().count("training goes on") >= 2, "two checkpoints that failed")
        steps_on(client)
    assert len(list(job.folder.glob("trace-*"))) == 1  # nobody was replaced
    assert job.stop() == 1
    assert "without saving" in job.log()
    assert not list(job.folder.glob("elastic.pt.*"))


def test_two_jobs_cannot_listen_at_one_socket(training: Maker) -> None:
    job = training(pace_s=0.01)
    job.begin("A")
    with job.client() as client:
        client.settled()
        first = job.pid
        job.begin("A")
        assert job.wait() == 1
        assert "another job that runs listens there" in job.log()
        job.pid = first
        assert client.status()["workers"] == ["A"]
    assert job.enough() == 0, job.log()


def test_a_device_on_which_nothing_starts_is_told(training: Maker) -> None:
    job = training(fail_on="X", pace_s=0.01)
    job.begin("A")
    with job.client() as client:
        told = job.resize(client, "A", "X", batch=24)
        assert (told["done"], told["workers"]) == (True, ["A"])
        assert "X failed 3 times" in told["error"]
        assert job.resize(client, "A", "B")["error"] is None
    check(job)


@pytest.mark.parametrize(
    ("odd", "words"),
    [("longer", "406 samples, the others one of 203"), ("empty", "data set is empty"), ("stubborn", "be put back")],
)
def test_a_newcomer_that_cannot_join_costs_the_others_nothing(training: Maker, odd: str, words: str) -> None:
    job = training(odd_on="X", odd=odd, pace_s=0.005)
    job.begin("A", "B")
    with job.client() as client:
        present = client.settled()["pids"]
        told = job.resize(client, "A", "B", "X")
        assert (told["done"], told["workers"], told["pids"]) == (True, ["A", "B"], present)
        assert "X failed 3 times" in told["error"]
        assert words in told["error"]
        until(lambda: words in job.log(), "what is told of it")
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
