"""`--device cpu` as a user types it: what there is, how steady it is, cutting it, wrong words."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuloom.gpus.host.cpu import this_machine
from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools
from tests.standin.hardware import Hardware


@pytest.fixture
def host(hardware: Hardware) -> Iterator[Hardware]:
    done = hardware.gpuloom("gpus", "--device", "cpu", "--output", "json")
    if done.returncode:
        pytest.skip(done.stderr)
    yield hardware
    hardware.gpuloom("layout", "apply", "--device", "cpu", "--as-found")
    assert list((hardware.folder / "state").glob("*.[cj]*")) == [], "records of devices are left"


def shown(host: Hardware, *words: str) -> Any:
    done = host.gpuloom(*words, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cut_look_and_give_back(host: Hardware) -> None:
    cut = shown(host, "layout", "apply", "--device", "cpu", "--to", "3c@4,2,2")
    assert (cut["reached"], cut["layout"]) == (True, "2c@0,2c@2,3c@4")
    (device,) = shown(host, "gpus", "--device", "cpu")
    assert device["instances"] == ["2c@0", "2c@2", "3c@4"]
    assert [row["uuid"] for row in cut["instances"]] == [f"{device['uuid']}/{name}" for name in device["instances"]]
    dry = shown(host, "layout", "apply", "--device", "cpu", "--to", "4,3", "--dry-run")
    assert dry["would_be_refused"] is None
    assert shown(host, "gpus", "--device", "cpu") == [device]
    done = host.gpuloom("layout", "apply", "--device", "cpu", "--as-found")
    assert "device 0, CPU-" in done.stdout
    assert "whole" in done.stdout
    (device,) = shown(host, "gpus", "--device", "cpu")
    assert (device["cut"], device["instances"], device["taken_by_gpuloom"]) == (False, [], False)


def test_the_doctor_measures(host: Hardware) -> None:
    answer = shown(host, "doctor", "--device", "cpu=20%")
    (noise,) = answer["noise"].values()
    assert noise["pieces"] >= 5
    found = {row["check"]: row["detail"] for row in answer["checks"]}
    assert f"varies by {noise['spread_pct']:.1f} %" in found["noise floor"]
    assert (answer["can_cut"], answer["can_share"]) == (True, True)
    assert {row["here"] for row in answer["sharing"] if row["share"] != "caches and memory bandwidth"} == {
        "enforced",
        "not asked for",
    }


def test_the_doctor_without_cgroups(host: Hardware) -> None:
    done = host.gpuloom("doctor", "--device", "cpu", "--output", "json", GPULOOM_CGROUP="none")
    assert done.returncode == 1
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert rows["CPU devices"]["state"] == "no"
    assert "GPULOOM_CGROUP is none" in rows["CPU devices"]["detail"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("gpus", "--device", "tpu"), 2, "--device tpu: not a device; accepted are cpu"),
        (("gpus", "--device", "cpu:900"), 2, "this machine has no core 900"),
        (("gpus", "--device", "cpu=200%"), 2, "more than 0 up to 100"),
        (("doctor", "--device", "cpu", "--device", "cpu"), 2, "of which CPU-"),
        (("layout", "apply", "--to", "3"), 2, "--gpu is missing"),
        (("layout", "apply", "--device", "cpu", "--to", "3g.20gb"), 2, "'3g.20gb' is not a size of CPU-"),
        (("layout", "apply", "--device", "cpu", "--gpu", "1", "--to", "3"), 2, "this host has 1 devices"),
        (("layout", "apply", "--device", "cpu", "--as-found"), 1, "device 0 was not changed: gpuloom has not taken it"),
    ],
)
def test_wrong_words(host: Hardware, words: tuple[str, ...], code: int, sentence: str) -> None:
    done = host.gpuloom(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_several_devices_are_numbered(host: Hardware) -> None:
    if len(this_machine().cores) < 2:
        pytest.skip("needs two cores")
    first, second = shown(host, "gpus", "--device", "cpu=30%", "--device", "cpu=40%")
    assert (first["device"], second["device"]) == (0, 1)
    assert first["mem_mib"] < second["mem_mib"]
    words = ("layout", "apply", "--device", "cpu=30%", "--device", "cpu=40%", "--gpu", "1")
    assert shown(host, *words, "--to", "7")["reached"]
    assert shown(host, "gpus", "--device", "cpu=40%")[0]["instances"] == ["7c@0"]
    assert shown(host, *words, "--as-found")["reached"]
