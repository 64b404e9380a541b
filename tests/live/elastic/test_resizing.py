"""Real processes that are resized in place, on CPU devices and on the stand-in's GPUs without MIG."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.host.cgroups import Group, Limits
from gpuloom.gpus.host.cpu import this_machine
from gpuloom.gpus.host.cpu_driver import cpu_driver
from gpuloom.gpus.host.nvml import NoDriver
from tests.live.conftest import hardware as hardware
from tests.live.conftest import shop as shop
from tests.live.conftest import standin_tools as standin_tools
from tests.live.shop import PATIENCE_S, Shop, interrupt, until
from tests.live.test_host import let_pass

HERE = Path(__file__).parent
JOB = HERE / "stretchy_job.py"
SOURCE = HERE.parents[2] / "src"


class Gym(Shop):
    """A shop with one elastic job, called a."""

    def stretchy(self, how: str = "", **more: Any) -> None:
        self.marks.mkdir(exist_ok=True)
        fields = {"memory": "10M", "min_gpus": 1, "max_gpus": 3, "batch": 64, "resize": "in-place", **more}
        self.command("a", sys.executable, str(JOB), how, str(self.marks), **fields)

    def policy(self, sizes: str) -> str:
        return f"{HERE / 'resizer.py'}:Resizer:{sizes}"

    def mark(self, name: str) -> None:
        (self.marks / name).touch()

    def changes(self, what: str = "") -> list[dict[str, Any]]:
        path = self.store.checkpoint_dir("a") / "changes"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [change for change in found if not what or change["what"] == what]

    def sizes(self) -> list[int]:
        return [len(change["workers"]) for change in self.changes("began") + self.changes("resized")]

    def group(self) -> Group:
        launch = self.store.last_launch("a")
        assert launch is not None
        assert launch.group is not None
        return launch.group

    def rescales(self) -> int:
        return len(self.events("JobRescaled"))

    def holds(self, devices: int) -> bool:
        """Whether its group has the time and the memory of so many devices."""
        parts = self.cpu_driver().devices[:devices]
        return self.group().holds(Limits(sum(one.cpus for one in parts), sum(one.model.mem_mib for one in parts)))


@pytest.fixture(params=["cpu", "gpu"])
def gym(request: pytest.FixtureRequest, shop: Shop) -> Iterator[Gym]:
    yield from _gym(shop, request.param)


@pytest.fixture
def cpus(shop: Shop) -> Iterator[Gym]:
    yield from _gym(shop, "cpu")


@pytest.fixture
def gpus(shop: Shop) -> Iterator[Gym]:
    yield from _gym(shop, "gpu")


def _gym(shop: Shop, kind: str) -> Iterator[Gym]:
    gym = Gym(shop.hardware, shop.folder)
    gym.hardware.install("T4-16GB", "T4-16GB", "T4-16GB")
    if kind == "cpu":
        gym.device = "3xcpu"
        try:
            with cpu_driver(gym.cpu_driver().devices, shop.folder):
                pass
        except NoDriver as reason:
            pytest.skip(f"needs cgroups: {reason}")
    yield gym
    gym.close()


def test_it_grows_and_shrinks_and_stays_the_same_process(gym: Gym) -> None:
    gym.stretchy()
    runner = gym.begin(gym.policy("1-3-2-1"), resize_s=3000)
    until(lambda: gym.rescales() == 3, "it was resized three times")
    if gym.device:
        assert gym.holds(1)
    gym.mark("finish")
    gym.finish(runner)
    assert gym.sizes() == [1, 3, 2, 1]
    assert [change["batch"] for change in gym.changes("resized")] == [48, 32, 16]
    assert [change["generation"] for change in gym.changes("resized")] == [1, 2, 3]
    assert gym.changes("resumed") == []
    (began,) = gym.changes("began")
    told = began["environment"]
    assert told["GPULOOM_WORKERS_COUNT"] == "1"
    assert told["GPULOOM_BATCH"] == "16"
    (worker,) = json.loads(told["GPULOOM_WORKERS"])
    names = "GPULOOM_DEVICE" if gym.device else "CUDA_VISIBLE_DEVICES"
    assert worker["env"][names] == worker["device"] == began["workers"][0]
    gym.check_left_as_found()


def test_its_group_has_what_its_devices_have_together(cpus: Gym) -> None:
    cpus.stretchy("waits")
    runner = cpus.begin(cpus.policy("1-3-2"), resize_s=9000)
    until(lambda: (cpus.marks / "told").exists(), "it was told to grow")
    assert cpus.holds(3)  # before it grows
    assert cpus.cpu_driver().look(2).processes  # and nobody else may take what it is to get
    cpus.mark("go")
    until(lambda: cpus.rescales() == 2, "it has shrunk")
    assert cpus.holds(2)  # after it has shrunk
    assert cpus.cpu_driver().look(1).processes
    assert not cpus.cpu_driver().look(2).processes
    cpus.mark("finish")
    cpus.finish(runner)
    cpus.check_left_as_found()


def test_its_cores_are_those_of_its_devices(cpus: Gym) -> None:
    cpus.device = "2xcpu"
    if len(cpus.cpu_driver().devices[0].cores) == len(this_machine().cores):
        pytest.skip("needs cores that can be dealt out to two devices")
    cpus.stretchy(max_gpus=2)
    runner = cpus.begin(cpus.policy("1-2-1"), resize_s=9000)
    first, second = (one.cores for one in cpus.cpu_driver().devices)
    seen = []
    until(lambda: cpus.rescales() == 2, "it has grown and shrunk")
    seen.append(cpus.group().holds(Limits(cores=first)))
    cpus.mark("finish")
    cpus.finish(runner)
    assert seen == [True]
    assert not {*first} & {*second}
    cpus.check_left_as_found()


def test_nobody_else_takes_the_devices_of_a_job_whose_runner_was_killed(cpus: Gym) -> None:
    cpus.stretchy("waits")
    runner = cpus.begin(cpus.policy("1-2"), resize_s=9000)
    until(lambda: (cpus.marks / "told").exists(), "it was told to grow")
    cpus.kill(runner)
    state, cpus.state = cpus.state, cpus.folder / "other"
    other = cpus.begin(cpus.policy("1-2"))
    _, err = other.communicate(timeout=PATIENCE_S)
    assert other.returncode == 1
    assert "is in use by process" in err
    cpus.state = state
    cpus.mark("finish")
    assert cpus.run(cpus.policy("1-2"), resize_s=9000) == {"a": "completed"}
    cpus.check_left_as_found()


def python_of_anybody() -> list[str]:
    """A Python that another user can run with our package; skips where there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        words = ["env", f"PYTHONPATH={SOURCE}", python]
        with suppress(OSError):
            if subprocess.run([*words, "-c", "import gpuloom.train"], user="nobody", check=False).returncode == 0:
                return words
    pytest.skip("needs root, and a Python that nobody can run")


def test_a_job_of_another_user(cpus: Gym) -> None:
    words = python_of_anybody()
    let_pass(cpus.folder)
    cpus.stretchy(user="nobody", command=[*words, str(JOB), "", str(cpus.marks)])
    cpus.marks.chmod(0o777)
    runner = cpus.begin(cpus.policy("1-2"), resize_s=9000)
    until(lambda: cpus.rescales() == 1, "it was resized")
    cpus.mark("finish")
    cpus.finish(runner)
    launch = cpus.store.last_launch("a")
    assert launch is not None
    assert launch.socket_path.owner() == "nobody"
    cpus.check_left_as_found()


@pytest.mark.parametrize(
    ("how", "why", "resize_s"),
    [
        ("deaf", "it is not done within 20 s", 20.0),
        ("fails", "no room", 3000.0),
        ("closes", "it does not listen at its socket", 3000.0),
        ("talks rubbish", "", 3000.0),
    ],
)
def test_who_cannot_is_started_again_where_it_should_be(gpus: Gym, how: str, why: str, resize_s: float) -> None:
    gpus.stretchy(how)
    runner = gpus.begin(gpus.policy("1-2"), resize_s=resize_s)
    until(lambda: bool(gpus.changes("resumed") or gpus.rescales()), "it was started again or resized")
    gpus.mark("finish")
    gpus.finish(runner)
    failed = gpus.events("RescaleFailed")
    if how == "talks rubbish":  # it is asked again
        assert gpus.sizes()[-1] == 2
        assert failed == []
    else:
        assert why in failed[0]["cause"]
        assert len(gpus.changes("resumed")[0]["workers"]) == 2
    gpus.check_left_as_found()


def test_it_is_killed_while_it_is_resized(gym: Gym) -> None:
    gym.stretchy("dies")
    runner = gym.begin(gym.policy("1-2"), resize_s=3000)
    until(lambda: bool(gym.changes("resumed")), "it was started again")
    gym.mark("finish")
    gym.finish(runner)
    assert len(gym.events("JobCrashed")) == 1
    assert gym.events("RescaleFailed") == []
    gym.check_left_as_found()


def test_it_completes_while_it_is_resized(gym: Gym) -> None:
    gym.stretchy("completes")
    assert gym.run(gym.policy("1-2"), resize_s=3000) == {"a": "completed"}
    assert gym.events("RescaleFailed") == gym.events("JobCrashed") == []
    gym.check_left_as_found()


def test_a_job_whose_training_is_over_is_left_to_its_end(cpus: Gym) -> None:
    cpus.stretchy("is over")
    runner = cpus.begin(cpus.policy("1-2"), resize_s=3000)
    until(lambda: cpus.rescales() == 1, "it has answered")
    cpus.mark("finish")
    cpus.finish(runner)
    assert "its training is over" in cpus.events("JobRescaled")[0]["cause"]
    assert cpus.events("RescaleFailed") == cpus.changes("resumed") == []
    cpus.check_left_as_found()


def test_the_runner_is_killed_while_it_is_resized(gym: Gym) -> None:
    """The job goes on, and is told again."""
    gym.stretchy("waits")
    runner = gym.begin(gym.policy("1-3-1"), resize_s=9000)
    until(lambda: (gym.marks / "told").exists(), "it was told to grow")
    gym.kill(runner)
    gym.mark("go")
    until(lambda: gym.sizes() == [1, 3], "it has grown while nobody looked")
    again = gym.begin(gym.policy("1-3-1"), resize_s=9000)
    until(lambda: gym.rescales() == 2, "it has shrunk again")
    gym.mark("finish")
    gym.finish(again)
    assert gym.sizes()[-1] == 1
    assert gym.changes("resumed") == []
    gym.check_left_as_found()


def test_the_runner_is_killed_and_the_job_ends_before_it_comes_back(gym: Gym) -> None:
    gym.stretchy("waits")
    runner = gym.begin(gym.policy("1-2"), resize_s=9000)
    until(lambda: (gym.marks / "told").exists(), "it was told to grow")
    gym.kill(runner)
    gym.mark("finish")
    until(lambda: bool(gym.changes("ended")), "it has ended")
    assert gym.run(gym.policy("1-2"), resize_s=9000) == {"a": "completed"}
    gym.check_left_as_found()


def test_ctrl_c_while_it_is_resized(gym: Gym) -> None:
    gym.stretchy("waits")
    runner = gym.begin(gym.policy("1-2"), resize_s=9000)
    until(lambda: (gym.marks / "told").exists(), "it was told to grow")
    interrupt(runner)
    gym.finish(runner, 130)
    assert gym.changes("stopped")
    gym.mark("go")
    again = gym.begin(gym.policy("1-2"), resize_s=9000)
    until(lambda: bool(gym.changes("resumed")), "it was started again")
    gym.mark("finish")
    gym.finish(again)
    gym.check_left_as_found()


def test_without_in_place_it_is_stopped_and_started_again(gym: Gym) -> None:
    gym.stretchy(resize="restart")
    runner = gym.begin(gym.policy("1-3"))
    until(lambda: bool(gym.changes("resumed")), "it was started again")
    gym.mark("finish")
    gym.finish(runner)
    (resumed,) = gym.changes("resumed")
    assert len(resumed["workers"]) == 3
    assert resumed["environment"]["GPULOOM_WORKERS_COUNT"] == "3"
    assert "GPULOOM_ELASTIC_SOCKET" not in resumed["environment"]
    gym.check_left_as_found()


def test_what_it_reports_reaches_the_policy(gpus: Gym) -> None:
    gpus.stretchy(max_batch=512, max_local_batch=32)
    runner = gpus.begin(gpus.policy("1-2"), resize_s=3000)
    until(lambda: any(event["report"].get("goodput") for event in gpus.events("JobReported")), "a model was fitted")
    gpus.mark("finish")
    gpus.finish(runner)
    reports = [event["report"] for event in gpus.events("JobReported")]
    model = next(report["goodput"] for report in reports if report.get("goodput"))
    assert model["limits"] == {"init_batch": 64, "max_batch": 512, "min_local": 1, "max_local": 32}
    assert model["grad_sqr"] == 0.5
    assert reports[-1]["metric"] == 0.5
    assert reports[-1]["progress"] > 0


@pytest.mark.parametrize("policy", ["miso", "static:3,2,2"])
def test_policies_that_cut_refuse_gpus_that_cannot_be_cut(gpus: Gym, policy: str) -> None:
    gpus.stretchy()
    runner = gpus.begin(policy)
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 2
    assert "MIG" in err
    gpus.check_left_as_found()
