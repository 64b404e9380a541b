"""`gpuloom doctor --selftest` as the first user with a GPU runs it: what it tells, what it leaves, when it refuses."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuloom.cli.main import main
from tests.standin.build import CUDA
from tests.standin.hardware import GPULOOM, PATIENCE_S, Hardware
from tests.standin.replay import main as replay_main
from tests.standin.transcripts import Told, TranscriptError, differences, read_transcript

pytestmark = [
    pytest.mark.xdist_group("mps"),  # one of those looks at every MPS daemon of the host
    pytest.mark.skipif(os.geteuid() != 0, reason="the self-test is for root"),
]


class Bench:
    """Hardware whose processes can open devices, and self-tests on it."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.with_cuda = {"LD_LIBRARY_PATH": f"{hardware.tools}:{hardware.tools / CUDA}"}

    def start(self, *words: str, cwd: Path | None = None, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [GPULOOM, "doctor", "--selftest", *words],
            env=self.hardware.environment | self.with_cuda | environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        with self.start(*words, cwd=cwd, **environment) as process:
            out, said = process.communicate(timeout=3 * PATIENCE_S)
            return process.returncode, out, said

    def python(self, script: str) -> str:
        environment = self.hardware.environment | self.with_cuda
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def test(self, file: Path, **environment: str) -> tuple[int, Told]:
        code, out, said = self.run("--gpu", "0", "--yes", "--write", str(file), "-o", "json", cwd=None, **environment)
        assert json.loads(out)["transcript"] == str(file), said
        return code, read_transcript(file)


def results(told: Told) -> dict[str, str]:
    return {part.part: part.verdict for part in told.parts}


@pytest.fixture(scope="module")
def hardware(standin_tools: Path) -> Iterator[Hardware]:
    """With a short path, because of the sockets of MPS."""
    with tempfile.TemporaryDirectory(prefix="loom") as folder:
        hardware = Hardware(standin_tools, Path(folder))
        yield hardware
        hardware.close()


@pytest.fixture
def bench(hardware: Hardware) -> Iterator[Bench]:
    environment = dict(hardware.environment)
    yield Bench(hardware)
    hardware.environment = environment  # without what replays have added


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


NAMES = {"USER": "grace-hopper", "SUDO_USER": "ada", "HOSTNAME": "turing.example.org"}


@pytest.fixture(scope="module")
def transcript(hardware: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an A100 that can reset itself, in the place and under the name that it has if nothing is said."""
    hardware.install("A100-40GB+resets")
    before, here = hardware.show(), tmp_path_factory.mktemp("projectx")
    code, out, said = Bench(hardware).run("--gpu", "0", "--yes", cwd=here, **NAMES)
    assert (code, hardware.show()) == (0, before), said
    assert list((hardware.folder / "state").glob("*.json")) == []
    assert out.startswith("self-test of GPU 0\n")
    file = here / "gpuloom-selftest-A100-40GB.json"
    assert said == f"the transcript is in {file.name}\n"
    return file


def test_a_transcript_becomes_a_gpu_that_gives_the_same_transcript(
    bench: Bench, transcript: Path, tmp_path: Path
) -> None:
    told = read_transcript(transcript)
    assert set(results(told).values()) == {"ok"}
    bench.hardware.replay(transcript)
    _, again = bench.test(tmp_path / "again.json")
    assert differences(told, again) == []
    assert bench.hardware.gpuloom("layout", "apply", "--gpu", "0", "--to", "3g.20gb@4,1g.10gb@2").returncode == 0
    (row,) = json.loads(bench.hardware.gpuloom("gpus", "--host", "--output", "json").stdout)
    assert (row["name"], row["instances"]) == ("NVIDIA A100-SXM4-40GB", ["1g.10gb@2", "3g.20gb@4"])
    assert bench.hardware.gpuloom("doctor").returncode == 0


@pytest.mark.parametrize(
    ("board", "driver", "differ"),
    [
        ("A30-24GB+resets", {"GPULOOM_STANDIN_LINGER_S": "0.7"}, set()),
        ("H100-SXM-80GB", {}, set()),
        ("unknown-mig", {"GPULOOM_STANDIN_DRIVER": "535.183.01"}, {"versions", "profiles, MIG off"}),
    ],
)
def test_so_do_others(bench: Bench, board: str, driver: dict[str, str], differ: set[str], tmp_path: Path) -> None:
    bench.hardware.install(board)
    code, told = bench.test(tmp_path / "first.json", **driver)
    assert (code, {part for part, result in results(told).items() if result != "ok"}) == (0, differ)
    in_use_s = told.facts("process on an instance")["in_use_s"]
    assert in_use_s >= float(driver.get("GPULOOM_STANDIN_LINGER_S", "0"))
    bench.hardware.replay(tmp_path / "first.json")
    assert differences(told, bench.test(tmp_path / "second.json")[1]) == []


def test_what_it_tells(transcript: Path) -> None:
    told = read_transcript(transcript)
    versions, made = told.facts("versions"), told.facts("each profile")["profiles"]
    assert (versions["product"], versions["driver"]) == ("NVIDIA A100-SXM4-40GB", "580.65.06")
    assert {row["profile"]: row["made_at"] for row in made}["2g.10gb"] == [0, 2, 4]
    assert told.facts("profiles, MIG off")["profiles"][0]["name"] == "1g.5gb"
    under = told.facts("process on an instance")
    assert under["code_while_it_lives"] == 19
    assert under["listed_on_its_instance"]
    assert under["gpuloom_refuses"]
    for part in ("MPS, whole GPU", "MPS, slice"):
        mps = told.facts(part)
        assert mps["daemon"] == {"share_pct": 60.0, "mem_mib": 4096}
        assert [each["processors"] for each in mps["clients"]] == [50, 25]
        assert [(each["within"], each["beyond"]) for each in mps["clients"]] == [(0, 2), (0, 2)]
        assert (mps["share"], mps["mem_limit"], mps["status"]) == ("60.0", "4096M", "ACTIVE")
        assert mps["killed"] == {"forgotten": True, "other_works": True, "status": "ACTIVE"}
    calls = [call for part in told.parts for call in part.calls]
    made_calls = [call for call in calls if call.call == "nvmlDeviceCreateGpuInstanceWithPlacement"]
    assert {"start": 4, "size": 4} in [call.args[2] for call in made_calls]
    assert made_calls[0].answer == "<GpuInstance>"
    assert all(call.us >= 0 for call in calls)


def test_nothing_in_the_file_says_whose_machine_it_is(hardware: Hardware, transcript: Path) -> None:
    text = transcript.read_text()
    private = [
        *NAMES.values(),
        str(transcript.parent),
        "projectx",
        str(hardware.folder),
        str(hardware.tools),
        "5ca1ab1e",
    ]
    assert [word for word in private if word in text] == []
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    assert '"GPU-1"' in text
    assert '"MIG-1"' in text


def test_a_change_of_mode_that_waits_for_a_reset_is_taken_back(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("A100-40GB")
    code, told = bench.test(tmp_path / "first.json")
    found = results(told)
    assert (code, found["MIG on"], found["each profile"], found["MPS, whole GPU"]) == (0, "not here", "not here", "ok")
    assert "nvidia-smi --gpu-reset -i 0" in next(part.detail for part in told.parts if part.part == "MIG on")
    assert not bench.hardware.show()["mig_pending"]
    bench.hardware.install("A100-40GB+mig")
    code, told = bench.test(tmp_path / "second.json")
    found = results(told)
    assert (code, found["MIG off"], found["each profile"], found["MPS, slice"]) == (0, "not here", "ok", "ok")
    assert bench.hardware.show()["mig"]
    assert bench.hardware.show()["mig_pending"]


def test_a_gpu_without_mig_is_tested_with_mps(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("T4-16GB")
    code, told = bench.test(tmp_path / "t4.json")
    found = results(told)
    assert (code, {part for part, result in found.items() if result == "ok"}) == (
        0,
        {"versions", "MPS, whole GPU", "restore"},
    )


def test_a_layout_that_was_there_is_there_again(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("H100-SXM-80GB")
    assert bench.hardware.gpuloom("layout", "apply", "--gpu", "0", "--to", "3g.40gb@4,1g.10gb@0").returncode == 0
    code, _, said = bench.run("--gpu", "0", "--yes", "--write", str(tmp_path / "no.json"))
    assert code == 1
    assert "gpuloom has taken it already" in said
    for record in (bench.hardware.folder / "state").glob("*.json"):
        record.unlink()  # as if somebody else had made it
    before = bench.hardware.layout()
    code, told = bench.test(tmp_path / "yes.json")
    assert (code, results(told)["restore"]) == (0, "ok")
    assert bench.hardware.layout() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_half_way_it_restores(bench: Bench, number: int, tmp_path: Path) -> None:
    bench.hardware.install("A100-40GB+resets")
    with bench.start("--gpu", "0", "--yes", "--write", str(tmp_path / "t.json")) as process:
        until(lambda: bench.hardware.show()["instances"])
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    told = read_transcript(tmp_path / "t.json")
    assert process.returncode == 130, said
    assert told.interrupted
    assert (results(told)["MPS, slice"], results(told)["restore"]) == ("not here", "ok")
    shown = bench.hardware.show()
    assert (shown["mig"], shown["instances"], shown["pids"]) == (False, [], [])


def test_killed_half_way_it_can_be_restored(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("A100-40GB+resets")
    with bench.start("--gpu", "0", "--yes", "--write", str(tmp_path / "t.json")) as process:
        until(lambda: bench.hardware.show()["instances"])
        process.kill()
    until(lambda: not bench.hardware.show()["pids"])
    assert bench.hardware.gpuloom("layout", "apply", "--gpu", "0", "--as-found").returncode == 0
    shown = bench.hardware.show()
    assert (shown["mig"], shown["instances"]) == (False, [])


def test_it_ends_in_time_and_restores(bench: Bench) -> None:
    bench.hardware.install("A100-40GB+resets")
    script = (
        "from gpuloom.gpus.host.selftest.run import SelfTest\n"
        "told = SelfTest(0).run(lambda _: None, lambda _: None, limit_s=0)\n"
        "print(told.stopped, told.failed, [str(part.verdict) for part in told.parts])"
    )
    told = bench.python(script)
    assert told == f"stopped: not done within 0 s True {['not here'] * 9 + ['ok']}\n"
    assert list((bench.hardware.folder / "state").glob("*.json")) == []


def test_it_is_for_root(bench: Bench) -> None:
    bench.hardware.install("A100-40GB+resets")
    script = "from gpuloom.gpus.host.selftest.run import SelfTest\nprint(SelfTest(0, uid=1000).look()[2])"
    assert bench.python(script) == "the self-test switches MIG mode and cuts, which needs root\n"


def test_an_error_half_way_is_told_and_the_gpu_restored(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("A100-40GB+resets")
    faults = "nvmlDeviceCreateGpuInstanceWithPlacement:1+:UNKNOWN"
    code, told = bench.test(tmp_path / "t.json", GPULOOM_STANDIN_FAULTS=faults)
    found = results(told)
    assert (code, found["each profile"], found["process on an instance"], found["restore"]) == (
        1, "failed", "failed", "ok",
    )  # fmt: skip
    shown = bench.hardware.show()
    assert (shown["mig"], shown["instances"]) == (False, [])


def test_without_cuda_it_tests_the_rest(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("A100-40GB+resets")
    code, told = bench.test(tmp_path / "t.json", LD_LIBRARY_PATH=str(bench.hardware.tools))
    found = results(told)
    assert (code, found["each profile"], found["process on an instance"]) == (0, "ok", "not here")
    assert told.facts("MPS, slice")["daemon"] == {"share_pct": 60.0, "mem_mib": 4096}


def test_it_refuses_in_one_sentence_and_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    hardware, free = bench.hardware, str(tmp_path / "free.json")
    hardware.install("H100-SXM-80GB", "H100-SXM-80GB+mig")
    hardware.worker().ask("split", gpu=1)
    before = hardware.show(0), hardware.show(1)
    (tmp_path / "taken.json").write_text("mine")

    def refused(*words: str, **environment: str) -> tuple[int, str]:
        code, out, said = bench.run(*words, cwd=None, **environment)
        assert (out, said.count("\n")) == ("", 1), said
        return code, said

    with hardware.job(hardware.show(0)["uuid"]) as job:
        code, said = refused("--gpu", "0", "--yes", "--write", free)
        assert (code, f"in use by process {job.pid}" in said) == (1, True)
    for code, word, words, environment in (
        (1, "is not one whole instance", ["--gpu", "1", "--yes"], {}),
        (2, "--gpu 7: this host has 2 GPUs", ["--gpu", "7", "--yes"], {}),
        (2, "accepted is --yes", ["--gpu", "0"], {}),
        (2, "is there already", ["--gpu", "0", "--yes", "--write", str(tmp_path / "taken.json")], {}),
        (1, "root", ["--gpu", "0", "--yes"], {"GPULOOM_STANDIN_USER": "nobody"}),
        (
            1,
            "not installed",
            ["--gpu", "0", "--yes"],
            {"GPULOOM_STANDIN_FAULTS": "nvmlInitWithFlags:1+:LIBRARY_NOT_FOUND"},
        ),
    ):
        written = [] if "--write" in words else ["--write", free]
        got, said = refused(*words, *written, **environment)
        assert (got, word in said) == (code, True), said
    assert (tmp_path / "taken.json").read_text() == "mine"
    assert not Path(free).exists()
    assert (hardware.show(0), hardware.show(1)) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--selftest", "--yes"], "--gpu is missing"),
        (["--selftest", "--gpu", "0", "--yes", "--device", "cpu"], "is for GPUs"),
        (["--yes"], "are for --selftest"),
        (["--gpu", "0"], "are for --selftest"),
    ],
)
def test_what_does_not_go_together(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["doctor", *words])
    printed = capsys.readouterr()
    assert (stop.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert says in printed.err


def test_on_a_terminal_it_asks(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.install("A100-40GB+resets")
    before = bench.hardware.show()
    ours, theirs = pty.openpty()
    environment = bench.hardware.environment | bench.with_cuda
    with subprocess.Popen(
        [GPULOOM, "doctor", "--selftest", "--gpu", "0", "--write", str(tmp_path / "t.json")],
        env=environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.write(ours, b"n\n")
        _, said = process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert "every profile is made and removed" in said
    assert "--as-found" in said
    assert not (tmp_path / "t.json").exists()
    assert bench.hardware.show() == before


def changed(transcript: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    told = json.loads(transcript.read_text())
    change(told)
    to.write_text(json.dumps(told))
    return to


def part_of(told: dict[str, Any], name: str) -> dict[str, Any]:
    return next(part for part in told["parts"] if part["part"] == name)


def profiles_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = part_of(told, "profiles, MIG on")["facts"]["profiles"]
    return rows


def test_what_a_real_gpu_does_otherwise_the_replay_does_too(bench: Bench, transcript: Path, tmp_path: Path) -> None:
    def otherwise(told: dict[str, Any]) -> None:
        for part in told["parts"]:
            for call in part["calls"]:
                if call["call"] == "nvmlDeviceGetComputeMode":
                    call["code"] = 3
                if call["call"] == "nvmlDeviceGetGpuInstanceProfileInfo" and call["args"][1] == 0x11:
                    call["code"] = 2
        profiles_of(told)[0]["sms"] = 15
        part_of(told, "MIG on")["facts"]["waits_for_reset"] = True
        part_of(told, "versions")["facts"] |= {"driver": "575.1", "gpus": 3}

    bench.hardware.replay(changed(transcript, tmp_path / "other.json", otherwise))
    assert len(json.loads(bench.hardware.ctl("show").stdout)) == 3
    _, told = bench.test(tmp_path / "again.json")
    versions, found = told.facts("versions"), results(told)
    assert (versions["driver"], versions["compute_mode"], found["MIG on"]) == ("575.1", None, "not here")
    without = next(part for part in told.parts if part.part == "profiles, MIG off")
    assert (without.verdict, "1g.5gb has sms 15, not 14" in without.detail) == ("differs", True)
    info = [call for call in without.calls if call.call == "nvmlDeviceGetGpuInstanceProfileInfo"]
    assert {call.code for call in info if call.args[1] == 0x11} == {2}


def test_how_two_transcripts_differ(transcript: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def slower(told: dict[str, Any]) -> None:
        part_of(told, "restore")["calls"][0]["us"] += 7

    def denied(told: dict[str, Any]) -> None:
        part_of(told, "restore")["calls"][0]["code"] = 4

    assert replay_main([str(transcript), str(changed(transcript, tmp_path / "slower.json", slower))]) == 0
    assert capsys.readouterr().out == ""
    assert replay_main([str(transcript), str(changed(transcript, tmp_path / "denied.json", denied))]) == 1
    assert "restore: nvml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: told.update(format="nvidia-smi"), "is not a transcript"),
        (lambda told: told.update(version=9), "has version 9 of the format; accepted is 1"),
        (lambda told: told["parts"][0]["calls"][0].pop("code"), "parts.0.calls.0.code"),
        (lambda told: told["parts"][0]["facts"].pop("product"), "cannot be replayed: 'product'"),
        (lambda told: profiles_of(told)[3].update(placements=[[0, 2], [2, 2], [5, 2]]), "places at [0, 2, 5]"),
    ],
)
def test_a_transcript_that_cannot_be_used(
    hardware: Hardware, transcript: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    with pytest.raises(TranscriptError) as refusal:
        hardware.replay(changed(transcript, tmp_path / "t.json", change))
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_half_a_transcript_is_refused(hardware: Hardware, transcript: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.json"
    half.write_text(transcript.read_text()[:-5000])
    with pytest.raises(TranscriptError, match="is not whole"):
        hardware.replay(half)
