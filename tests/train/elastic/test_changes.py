"""Real workers on a CPU: growth, shrinking and batches in place, against a plain loop of one process.

In 64 bits only the order of additions differs, so final weights agree to about 1e-14; with a batch norm to 1e-9.
"""

import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuloom.train.elastic.client import Client
from tests.train.elastic.shop import ROOT, Training, seats, until

pytestmark = pytest.mark.xdist_group("torch")
Maker = Callable[..., Training]
CLOSE = 1e-10


@pytest.mark.parametrize("norm", ["none", "sync"])
def test_random_changes_end_with_the_weights_of_an_undisturbed_training(training: Maker, norm: str) -> None:
    limit = 8 if norm == "none" else None  # a batch norm sees one pass at a time, so several are another training
    job, dice = training(norm=norm, max_local_batch=limit), random.Random(5)
    job.begin("A", "B")
    with job.client() as client:
        for _ in range(16):
            names = dice.sample("ABCD", dice.randint(1, 3))
            found = job.resize(client, *names, batch=dice.choice([None, 8, 24, 40]))
            assert sorted(found["workers"]) == sorted(names)
            assert found["error"] is None
    assert job.enough() == 0, job.log()
    compared = job.compared()
    assert compared["wrong_visits"] == compared["torn"] == 0
    assert compared["rounds"] > 10
    assert len(compared["batches"]) > 2
    assert compared["difference"] < (CLOSE if norm == "none" else 1e-6)  # nothing pulls weights before a norm together


def test_plain_batch_norm_is_the_same_on_all_workers_but_not_exact(training: Maker) -> None:
    job = training(norm="plain", epochs=3)
    job.begin("A", "B", "C")
    assert job.wait() == 0, job.log()
    compared = job.compared()
    assert compared["visits"] == [3.0]
    assert compared["torn"] == 0
    assert compared["difference"] > 1e-4  # each worker normalises its own part of the batch


def test_fewer_samples_than_workers_and_batches_that_do_not_divide(training: Maker) -> None:
    job = training(norm="sync", samples=30, batch=9, max_local_batch=2, epochs=4)
    job.begin("A", "B", "C", batch=2)
    assert job.wait() == 0, job.log()
    compared = job.compared()
    assert (compared["visits"], compared["batches"], compared["torn"]) == ([4.0], [2], 0)
    assert compared["difference"] < 1e-8  # the norm of two samples is badly conditioned


@pytest.mark.parametrize("drop_last", [False, True])
def test_no_batch_is_larger_than_the_data_set(training: Maker, drop_last: bool) -> None:
    """So the learning rate follows what is computed, and an epoch has a step."""
    job = training(samples=30, epochs=3, drop_last=drop_last)
    job.begin("A", "B", batch=64)
    assert job.wait() == 0, job.log()
    compared = job.compared()
    assert (compared["visits"], compared["batches"], compared["steps"]) == ([3.0], [30], 3)
    assert compared["difference"] < CLOSE


def test_what_is_reported(training: Maker) -> None:
    job = training(pace_s=0.02)
    job.begin("A", "B")

    def measured() -> Any:
        """Noise is known, and it is not the last step of an epoch, which is shorter."""
        found = job.progress()
        return found.get("grad_var") is not None and found["step"] > 30 and found["samples"] % 203 and found

    told = until(measured, "noise")
    assert job.enough() == 0
    assert (told["workers"], told["batch"], told["local_batch"], told["accumulation"], told["nodes"]) == (
        2,
        16,
        8,
        1,
        1,
    )
    assert told["step_s"] >= told["compute_s"] > 0
    assert told["grad_sqr"] >= 0 < told["grad_var"]
    assert told["progress"] == pytest.approx(told["step"])  # a step of the initial batch is worth one
    assert told["samples"] > told["epoch"] * 203
    assert job.progress()["step"] > told["step"]


def test_stopped_and_resumed_with_other_workers_it_is_the_same_training(training: Maker) -> None:
    job = training(pace_s=0.005, epochs=4)
    job.begin("A", "B", "C")
    for step, names in ((12, "B"), (25, "AD")):
        until(lambda: any(row["step"] >= step for row in job.rows()), f"step {step}")  # noqa: B023
        assert job.stop() == 0, job.log()
        job.wish["seed"] = step  # of no use: an epoch goes on as it began
        job.begin(*names, resume=True)
    assert job.wait() == 0, job.log()
    compared = job.compared()
    assert (compared["visits"], compared["torn"]) == ([4.0], 0)
    assert compared["difference"] < CLOSE
    job.begin("A", resume=True)  # it was done: nothing is left to do
    assert job.wait() == 0
    assert job.progress()["step"] == compared["steps"]


def test_any_worker_may_end_it(training: Maker) -> None:
    job = training(finish_at=7)
    job.begin("A", "B")
    assert job.wait() == 0, job.log()
    assert job.compared()["steps"] == 8
    job.begin("A", resume=True)  # it stays ended, and says so
    assert job.wait() == 0
    assert (job.progress()["step"], "nothing is left to do" in job.log()) == (8, True)


def test_the_socket(training: Maker) -> None:
    job = training(folder="/".join(["a folder with a long name"] * 6), pace_s=0.01)
    job.folder.mkdir(parents=True)
    assert len(str(job.socket)) > 107
    job.socket.touch()  # left behind by one that was killed
    job.begin("A")
    until(lambda: stat.S_ISSOCK(job.socket.stat().st_mode), "the socket")
    assert stat.S_IMODE(job.socket.stat().st_mode) == 0o600
    with job.client() as first, job.client() as second:
        assert first.settled()["workers"] == ["A"]
        refused = first.resize(5, seats("MIG-1", "MIG-2"))
        assert refused["refused"]
        assert "MIG" in refused["error"]
        job.resize(second, "A", "B", batch=20)
        told = first.settled()
        assert (told["generation"], told["workers"], told["batch"], len(told["pids"])) == (1, ["A", "B"], 20, 2)
        assert first.resize(1, seats("C"))["workers"] == ["A", "B"]  # not newer: nothing changes
        with job.client() as rude:
            rude._lines.sock.sendall(b"no JSON\n")
        with job.client() as deep:
            deep._lines.sock.sendall(b"[" * 200_000 + b"\n")
        bad = {"device": "B", "env": {"A=B": "c"}}
        assert "no variable of an environment" in first.resize(9, [bad])["error"]
        with Client(job.socket) as gone:
            job.resize(gone, "B", batch=24, wait=False)
        until(lambda: second.status()["workers"] == ["B"], "what one who vanished had asked for")
        assert second.settled()["batch"] == 24
    assert job.enough() == 0, job.log()
    until(lambda: not job.socket.exists(), "the end of the socket")
    assert job.compared()["wrong_visits"] == 0


def test_a_script_that_goes_on_after_training_is_answered_for(training: Maker) -> None:
    """Until it exits; also when it trains once more, forks, or becomes another program."""
    job = training(epochs=2, goes_on=True, pace_s=0.005)
    job.begin("A", "B")
    with job.client() as client:
        assert not client.settled()["finished"]
        until((job.folder / "over").exists, "the end of training")
        told = job.resize(client, "A", "B", "C")
        assert (told["done"], told["finished"], told["generation"], told["error"]) == (True, True, 1, None)
    with job.client() as client:
        assert client.resize(9, [])["refused"]
        (job.folder / "again").touch()
        until((job.folder / "other").exists, "another program")
    with job.client() as client:
        assert client.status()["finished"]
        assert client.resize(3, seats("A"))["generation"] == 3
    (job.folder / "end").touch()
    assert job.wait() == 0, job.log()
    until(lambda: not job.socket.exists(), "the end of the socket")


def test_the_example_runs_alone(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "elastic_job.py"), "--epochs", "1", "--workers", "2"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPULOOM")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "epoch 0: 2 workers, batch 64" in done.stdout


TORCHRUN = """
import os, torch, torch.distributed as dist
from pathlib import Path
from typing import Any

def train():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    saved, steps = Path(os.environ["GPULOOM_CHECKPOINT_DIR"], "checkpoint.pt"), 0
    if os.environ.get("GPULOOM_RESUME") == "1" and saved.exists():
        state = torch.load(saved, weights_only=True)
        steps = state["steps"]
        model.load_state_dict(state["model"])
    for _ in range(3):
        model(torch.ones(4, 2)).sum().backward()
        steps += 1
    if dist.get_rank() == 0:
        torch.save({"steps": steps, "model": model.state_dict()}, saved)
        print("workers", dist.get_world_size(), "steps", steps, flush=True)

dist.init_process_group("gloo")
train()
dist.barrier()
os._exit(0)  # torch's own clean-up of a gloo group aborts now and then
"""


def test_an_unchanged_torchrun_job_is_resized_by_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    (tmp_path / "train.py").write_text(TORCHRUN)
    command = (
        f"exec {sys.executable} -m torch.distributed.run --standalone --nproc-per-node=$GPULOOM_WORKERS_COUNT train.py"
    )
    told = []
    for resume, workers in enumerate((1, 2)):
        env = {"GPULOOM_CHECKPOINT_DIR": str(tmp_path), "GPULOOM_RESUME": str(resume), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
            env=os.environ | env | {"GPULOOM_WORKERS_COUNT": str(workers)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.strip())
    assert told == ["workers 1 steps 3", "workers 2 steps 6"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_terminal_that_closes_are_stops_too(training: Maker, number: int) -> None:
    job = training(pace_s=0.01)
    job.begin("A", "B")
    until(lambda: len(job.rows()) > 5, "some steps")
    os.killpg(job.pid, number)  # workers hear it too
    assert job.wait() == 130
    assert (job.folder / "elastic.pt").exists()
