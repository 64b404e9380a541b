"""Models measured from the command line: on the stand-in's GPUs with servers that take known times, on a CPU device for
real; what is written is what the planner reads, and what goes wrong is said."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuloom.gpus.host.cpu import THREADS, environment_on
from gpuloom.measure.table import from_csv
from gpuloom.serve.triton.environment import Triton
from gpuloom.work.measured.latency_profiles import read_latency_profile
from gpuloom.work.measured.mig_services import read_mig_services
from tests.live.shop import PATIENCE_S, until
from tests.measure.lab import Lab
from tests.measure.service.models import fake_model, fake_program, onnx_file
from tests.standin.hardware import GPULOOM

MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"
QUICK = ("--seconds", "2s", "--requests", "8", "--patience-s", "20s", "--repeat", "1", "--most", "1")


class Kitchen:
    """`gpuloom measure service` in the lab, with servers that take known times unless `triton` says otherwise."""

    def __init__(self, lab: Lab, triton: Path | None) -> None:
        self.lab, self.triton = lab, triton

    def start(self, *words: str) -> "subprocess.Popen[str]":
        triton = [] if self.triton is None else ["--triton", str(self.triton)]
        device = ["--device", self.lab.device] if self.lab.device else []
        quick = [word for at, word in enumerate(QUICK) if QUICK[at - at % 2] not in words]
        command = [GPULOOM, "measure", "service", "--state", self.lab.state, *device, *triton, *quick, "-o", "json"]
        return self.lab.start_other([*map(str, command), *words])

    def measure(self, *words: str, code: int = 0) -> dict[str, Any]:
        return self.lab.finish(self.start(*words), code)

    def refused(self, *words: str) -> str:
        runner = self.start(*words)
        out, err = runner.communicate(timeout=PATIENCE_S)
        assert (runner.returncode, out, err.count("\n")) == (2, "", 1), f"{out}{err}"
        return err


@pytest.fixture
def kitchen(lab: Lab) -> Kitchen:
    return Kitchen(lab, fake_program(lab.folder))


@pytest.mark.xdist_group("mps")  # another test looks at every MPS daemon of the host
def test_profiles_that_the_planner_reads(kitchen: Kitchen) -> None:
    lab = kitchen.lab
    fast, slow = fake_model(lab.folder, "fast"), fake_model(lab.folder, "slow", 8.0, 6.0)
    answer = kitchen.measure("-m", fast, "-m", slow, "--shares", "50,100", "--batches", "1,4")
    assert answer["files"] == ["profile.json"]
    assert answer["failed"] == []
    profile = read_latency_profile(lab.state / "profile.json")
    assert profile.device == "A100-40GB"
    assert {model: sorted(grid) for model, grid in profile.alone_ms.items()} == {
        model: [(1, 50.0), (1, 100.0), (4, 50.0), (4, 100.0)] for model in ("fast", "slow")
    }
    for model, fixed_ms, each_ms in (("fast", 4.0, 2.0), ("slow", 8.0, 6.0)):
        for (batch, share_pct), ms in profile.alone_ms[model].items():
            assert ms >= fixed_ms + each_ms * batch * 100 / share_pct  # nobody sleeps for less
            assert profile.p95_ms[model][batch, share_pct] >= fixed_ms
    sides = {(row.model, row.batch, row.neighbour, row.neighbour_batch) for row in profile.pairs}
    corners = [(one, other) for one in (1, 4) for other in (1, 4)]
    assert {("fast", one, "slow", other) for one, other in corners} <= sides
    assert {("slow", one, "fast", other) for one, other in corners} <= sides
    assert ("fast", 4, "fast", 4) in sides
    services = lab.folder / "services.yaml"
    services.write_text("services:\n  - {name: a, workload: fast, rate: 20, p99: 200ms}\n")
    words = ["provision", str(services), "--profile", str(lab.state / "profile.json"), "-o", "json"]
    planned = subprocess.run([GPULOOM, *words], capture_output=True, text=True, check=True)
    assert json.loads(planned.stdout)["gpu_type"] == "A100-40GB"
    assert (lab.state / "models" / "fast").resolve() == Path(fast)
    lab.check_left_as_found()


@pytest.mark.xdist_group("mps")
def test_slices_with_one_and_two_servers_in_each(kitchen: Kitchen) -> None:
    lab = kitchen.lab
    model = fake_model(lab.folder, "m", most=4)
    words = ("-m", model, "--shares", "100", "--profiles", "1g.5gb,3g.20gb", "--processes", "1,2", "--batches", "2,4,8")
    answer = kitchen.measure(*words)
    points = read_mig_services(lab.state / "mig.csv")["m"]
    assert sorted((point.slices, point.batch, point.processes) for point in points) == [
        (slices, batch, processes) for slices in (1, 3) for batch in (2, 4) for processes in (1, 2)
    ]
    for point in points:
        assert point.latency_ms >= 4.0 + 2.0 * point.batch * 7 / point.slices * point.processes
        assert point.each_rps == pytest.approx(1000 * point.batch / point.latency_ms, rel=1e-4)
    lines = (lab.state / "mig.csv").read_text().splitlines()
    assert [line for line in lines if line.startswith("m,3,8,2,")] == ["m,3,8,2,0,0,,,,3g.20gb"]
    assert any(
        "batch 8, 2 x 3g.20gb 50%: out of memory: the server answered with 500" in one for one in answer["failed"]
    )
    lab.check_left_as_found()


ODD = {
    "crash": "crashed: it ended before its first step with exit code 1, its last words: error: this model does not"
    " load",
    "deaf": "no steps: its server did not answer within 2 s",
    "dies": "crashed: it ended after step 2 with exit code 7, its last words: threads: None",
    "refuses": 'crashed: the server answered with 400: {"error":"unexpected shape for input x"}',
    "free": "crashed: a request cannot be made: input x has sizes that are free ([-1, -1]): say with --body what it"
    " takes",
}


def test_odd_servers_are_sentences(kitchen: Kitchen) -> None:
    models = [word for oddity in ODD for word in ("-m", fake_model(kitchen.lab.folder, oddity, oddity=oddity))]
    fine = ("-m", fake_model(kitchen.lab.folder, "fine"))
    words = ("--shares", "100", "--no-pairs", "--batches", "1", "--patience-s", "2s")
    answer = kitchen.measure(*models, *fine, *words)
    said = {one.partition(",")[0]: one for one in answer["failed"]}
    assert said == {oddity: f"{oddity}, batch 1, whole: {sentence}" for oddity, sentence in ODD.items()}
    assert [point["model"] for point in answer["points"]] == ["fine"]
    rows = from_csv((kitchen.lab.state / "measured.csv").read_text(), "measured.csv")
    assert {row.batches for row in rows} == {"1"}
    kitchen.lab.check_left_as_found()


def test_nothing_to_be_had(kitchen: Kitchen) -> None:
    model = fake_model(kitchen.lab.folder, "m", oddity="refuses")
    answer = kitchen.measure("-m", model, "--shares", "100", "--no-pairs", code=1)
    assert (answer["points"], answer["files"]) == ([], [])


def test_a_refusal_leaves_the_models_of_before(kitchen: Kitchen) -> None:
    lab = kitchen.lab
    first, second = fake_model(lab.folder, "m"), fake_model(lab.folder / "other", "m", 9.0)
    words = ("--shares", "100", "--no-pairs", "--batches", "1")
    kitchen.measure("-m", first, *words)
    assert "holds measurements of workload 'm'" in kitchen.refused("-m", second, *words)
    assert (lab.state / "models" / "m").resolve() == Path(first)
    assert (lab.state / "repositories" / "m" / "m" / "behaviour.json").resolve().is_relative_to(first)


def test_one_that_stops_to_answer_is_not_fine(kitchen: Kitchen) -> None:
    model = fake_model(kitchen.lab.folder, "m", oddity="hangs")
    words = ("--shares", "100", "--no-pairs", "--batches", "1", "--patience-s", "3s", "--requests", "500")
    answer = kitchen.measure("-m", model, *words, code=1)
    assert answer["failed"] == ["m, batch 1, whole: crashed: no answer within 3 s"]
    kitchen.lab.check_left_as_found()


def test_killed_and_resumed(kitchen: Kitchen) -> None:
    lab = kitchen.lab
    words = ("-m", fake_model(lab.folder, "m"), "--shares", "100", "--profiles", "1g.5gb,3g.20gb", "--no-pairs")
    runner = kitchen.start(*words)
    lab.wait_for_runs(runner, 1)
    until(lambda: (lab.state / "jobs" / "r00001-0").exists(), "the second has begun")
    lab.kill(runner)
    answer = kitchen.measure(*words)
    assert [run["number"] for run in lab.journal()] == [0, 1, 2]
    assert {(point["place"], point["batch"]) for point in answer["points"]} == {
        (place, batch) for place in ("whole", "1g.5gb", "3g.20gb") for batch in (1, 2, 4, 8)
    }
    lab.check_left_as_found()


def test_wrong_words(kitchen: Kitchen) -> None:
    folder = kitchen.lab.folder
    model = fake_model(folder, "m")
    (folder / "wrong").mkdir()
    assert "wrong: is not a model; accepted is a folder with a config.pbtxt" in kitchen.refused("-m", "wrong")
    assert "no.py: is not there" in kitchen.refused("-m", "no.py")
    assert "two are called m; name one of them otherwise: OTHER=PATH" in kitchen.refused("-m", model, "-m", model)
    assert "nobody is called 'n': expected one of m" in kitchen.refused("-m", model, "--body", "n=request.json")
    assert "request.json" in kitchen.refused("-m", model, "--body", "request.json")
    assert "--shares: '120' is no share; accepted are 1 to 100 per cent" in kitchen.refused(
        "-m", model, "--shares", "120"
    )
    assert "--batches: '0' is no batch; accepted are 1 to 100000" in kitchen.refused("-m", model, "--batches", "0,1")
    assert "expected --profiles too" in kitchen.refused("-m", model, "--processes", "2")
    assert "'9g.90gb' is not a profile" in kitchen.refused("-m", model, "--profiles", "9g.90gb")
    no_batches = Path(fake_model(folder, "single"))
    (no_batches / "config.pbtxt").write_text("max_batch_size: 0\n")
    assert "max_batch_size is 0, so the model takes no batches" in kitchen.refused("-m", str(no_batches))
    kitchen.lab.check_left_as_found()


def test_on_a_cpu_device_a_server_has_the_threads_that_it_will_be_served_with(cpu_lab: Lab) -> None:
    """With more of them than its quota is worth they wait for each other, and what is measured is that."""
    cpu_lab.device = "cpu=90%"
    kitchen = Kitchen(cpu_lab, fake_program(cpu_lab.folder))
    model = fake_model(cpu_lab.folder, "m")
    kitchen.measure("-m", model, "--shares", "25,100", "--profiles", "3c", "--batches", "1", "--no-pairs")
    (device,) = cpu_lab.cpu_driver().devices
    told = {}
    for row in from_csv((cpu_lab.state / "measured.csv").read_text(), "measured.csv"):
        said = (cpu_lab.state / "jobs" / f"r{row.run:05}-0" / "out.log").read_text()
        there = device.cpus_of(row.seat.profile) * row.seat.share_pct / 100
        told[row.seat.place] = said, f"threads: {environment_on(device, None, there)[THREADS]}\n"
    assert {*told} == {"whole", "whole 25%", "3c"}
    assert {place: said for place, (said, _) in told.items()} == {place: served for place, (_, served) in told.items()}


@pytest.mark.xdist_group("triton")
def test_for_real(cpu_lab: Lab, real_triton: Triton) -> None:  # noqa: ARG001
    kitchen = Kitchen(cpu_lab, None)
    tiny = onnx_file(cpu_lab.folder / "tiny.onnx")
    words = ("-m", str(MODELS / "mixer"), "-m", str(tiny), "--shares", "50,100", "--batches", "1,4", "--no-pairs")
    answer = kitchen.measure(*words)
    assert answer["failed"] == []
    profile = read_latency_profile(cpu_lab.state / "profile.json")
    assert {*profile.alone_ms} == {"mixer", "tiny"}
    mixer = profile.alone_ms["mixer"]
    assert mixer[4, 50.0] > mixer[1, 100.0]  # four times the work with half the time
    assert (cpu_lab.state / "models" / "tiny" / "1" / "model.onnx").is_file()
    cpu_lab.check_left_as_found()
