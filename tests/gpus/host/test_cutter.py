"""Cutting GPUs for real, as far as a machine without any can: gpuloom's own code in separate processes, with the
unmodified nvidia-ml-py on the stand-in for the driver. What gpuloom reports is held against what the stand-in shows.
"""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.layouts import add, check, every, parse
from gpuloom.gpus.model import GpuModel, Instance, Layout
from tests.standin.build import build_sanitized
from tests.standin.hardware import Hardware, Worker

A100 = MODELS["A100-40GB"]
H100 = MODELS["H100-SXM-80GB"]
CUT = parse(A100, "3g.20gb@4,2g.10gb@0,2g.10gb@2")
RECUT = parse(A100, "3g.20gb@4,1g.5gb@0,1g.5gb@1,1g.10gb@2")
CHANGES = (
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
)


@pytest.fixture(scope="module")
def worker(hardware: Hardware) -> Worker:
    return hardware.worker()


def as_layout(answer: Any) -> Layout:
    return tuple(Instance(start, profile) for start, profile in answer)


def test_the_stand_in_is_clean_under_sanitizers(hardware: Hardware, tmp_path: Path) -> None:
    program = build_sanitized("exercise.c", tmp_path)
    hardware.install("A100-40GB+resets", "T4-16GB")
    done = subprocess.run([program], env=hardware.environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_the_driver_and_the_catalogue_say_the_same(hardware: Hardware, worker: Worker) -> None:
    names = [name for name, model in MODELS.items() if model.mig] + ["T4-16GB"]
    hardware.install(*names)
    assert worker.ask("same-model", names=names) == {"same": [True] * len(names)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([model for model in MODELS.values() if model.mig]))
def test_the_driver_and_the_rules_accept_the_same(
    hardware: Hardware, worker: Worker, data: st.DataObject, model: GpuModel
) -> None:
    """Any profile at any unit, right or wrong, one after the other."""
    hardware.install(f"{model.name}+mig")
    wishes = data.draw(
        st.lists(st.builds(Instance, st.integers(0, model.units), st.sampled_from(list(model.by_name))), max_size=12)
    )
    layout: Layout = ()
    expected: list[bool] = []
    for wish in wishes:
        larger = add(layout, wish)
        expected.append(check(model, larger) is None)
        layout = larger if expected[-1] else layout
    asked = [(model.by_name[name].nvml_id, start, model.by_name[name].size) for start, name in wishes]
    assert worker.ask("create", instances=asked) == {"accepted": expected}


def test_a_gpu_that_the_catalogue_does_not_know_is_cut_by_the_drivers_word(hardware: Hardware, worker: Worker) -> None:
    hardware.install("unknown-mig")
    model = worker.ask("look")["model"]
    assert (model["name"], model["units"]) == ("NVIDIA X900", 8)
    assert sorted(name for name, _, _ in model["profiles"]) == sorted(A100.by_name)
    assert worker.apply(CUT)["reached"]
    assert hardware.layout() == CUT


def test_a_cut_is_made_with_placements_and_can_be_used(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig", "A100-40GB+mig")
    answer = worker.apply(CUT, gpu=1)
    assert (answer["reason"], as_layout(answer["layout"])) == (None, CUT)
    assert hardware.layout(1) == CUT
    assert answer["uuids"] == hardware.uuids(1)
    assert all(uuid.startswith("MIG-") for uuid in answer["uuids"].values())
    assert hardware.layout(0) == ()
    for uuid in answer["uuids"].values():
        with hardware.job(uuid):
            assert len(hardware.show(1)["pids"]) == 1


def test_applying_twice_changes_nothing(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    assert worker.apply(CUT)["reached"]
    # Were anything destroyed or created again, these would fail.
    forbidden = ",".join(f"{function}:1+:UNKNOWN" for function in CHANGES)
    again = worker.apply(CUT, faults=forbidden)
    assert again["reached"]
    assert as_layout(again["before"]) == CUT


def test_work_on_an_instance_that_stays_is_not_touched(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    with hardware.job(hardware.uuids()["3g.20gb@4"]) as job:
        assert worker.apply(RECUT)["reached"]
        assert hardware.layout() == RECUT
        assert job.poll() is None
        assert hardware.show()["pids"] == [job.pid]


def test_mig_mode_where_no_reset_is_needed(hardware: Hardware, worker: Worker) -> None:
    hardware.install("H100-SXM-80GB")
    target = parse(H100, "4,3")
    assert worker.apply(target)["reached"]
    assert (hardware.show()["mig"], hardware.layout()) == (True, target)
    assert worker.apply((), keep_mig=True)["mig"] is True
    whole = worker.apply(())
    assert (whole["reached"], whole["mig"], hardware.show()["mig"]) == (True, False, False)
    with hardware.job(hardware.show()["uuid"]):
        refused = worker.apply(target)["refused"]
        assert "MIG mode cannot change while the GPU is in use by process" in refused
        assert "standinctl" in refused


def test_mig_mode_that_waits_for_a_reset(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB", "A30-24GB+mig")
    answer = worker.apply(CUT)
    assert answer["reason"] == (
        "switch MIG mode on: it takes effect at a GPU reset; run `nvidia-smi --gpu-reset -i 0` and apply again"
    )
    assert (answer["mig"], answer["layout"]) == (False, [])
    assert (hardware.show()["mig"], hardware.show()["mig_pending"]) == (False, True)
    hardware.ctl("reset", "0")
    assert worker.apply(CUT)["reached"]
    assert hardware.layout() == CUT
    off = worker.apply((), gpu=1)
    assert "takes effect at a GPU reset" in off["reason"]
    hardware.ctl("reset", "1")
    assert worker.apply((), gpu=1)["reached"]


def test_mig_mode_in_use_is_not_left_pending(hardware: Hardware, worker: Worker) -> None:
    hardware.install("H100-SXM-80GB")
    answer = worker.apply(parse(H100, "7"), faults="activation:1+:IN_USE")
    assert "the GPU is in use" in answer["reason"]
    assert (hardware.show()["mig"], hardware.show()["mig_pending"]) == (False, False)


def test_whose_gpu_it_is(hardware: Hardware, worker: Worker, tmp_path: Path) -> None:
    hardware.install("A100-40GB+mig", "T4-16GB", "A100-40GB")
    assert worker.ask("managed") == {"reason": None}
    assert worker.ask("managed", gpu=1) == {"reason": "Tesla T4 has no MIG, so it cannot be cut"}
    assert "look at GPU 7" in worker.apply(CUT, gpu=7)["refused"]
    with hardware.job(hardware.show(2)["uuid"]) as job:
        reason = worker.apply(CUT, gpu=2)["refused"]
        assert reason == f"it is in use by process {job.pid} (standinctl), and gpuloom takes only idle GPUs"
        assert worker.ask("managed", gpu=2) == {"reason": reason}
    plugin = tmp_path / "var/lib/kubelet/device-plugins/nvidia-gpu.sock"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    assert "device plugin" in worker.apply(CUT, root=str(tmp_path))["refused"]
    plugin.unlink()
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/comm").write_text("nvidia-mig-mana\n")
    assert worker.apply(CUT, root=str(tmp_path))["refused"] == "NVIDIA's MIG manager is running (process 77)"
    assert hardware.layout() == ()
    assert list((hardware.folder / "state").glob("*.json")) == []


def test_work_that_would_be_lost_is_a_reason_to_refuse(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    with hardware.job(hardware.uuids()["2g.10gb@0"]) as job:
        refused = worker.apply(RECUT)["refused"]
        assert refused == f"process {job.pid} (standinctl) runs on 2g.10gb@0: stop it first"
        assert hardware.layout() == CUT
        job.send_signal(signal.SIGKILL)
        job.wait()
        assert worker.apply(RECUT)["reached"]


def test_one_gpuloom_at_a_time(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig", "A100-40GB")
    other = hardware.worker()
    with hardware.job(hardware.show(1)["uuid"]):
        assert other.ask("hold", gpus=[0, 1]) == {"taken": [0]}
    reason = f"another gpuloom (process {other.process.pid}) is working on it"
    assert worker.apply(CUT) == {"refused": reason}
    assert worker.ask("managed") == {"reason": reason}
    assert worker.ask("managed", gpu=1) == {"reason": None}  # what was refused is not kept locked
    other.close()  # killed: its lock goes with it
    assert worker.apply(CUT)["reached"]


def test_two_at_once_never_mix(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    other = hardware.worker()
    for _ in range(15):
        worker.send("apply", target=CUT)
        other.send("apply", target=RECUT)
        answers = [(worker.receive(), CUT), (other.receive(), RECUT)]
        reached = [target for answer, target in answers if answer and answer.get("reached")]
        assert reached
        assert hardware.layout() in reached
        assert all(
            answer and (answer.get("reached") or "another gpuloom" in answer["refused"]) for answer, _ in answers
        )


def test_without_the_right_to_change_nothing_is_changed(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    assert "only to root" in worker.apply(CUT, user="nobody")["refused"]
    assert hardware.layout() == ()


def test_as_found(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig", "H100-SXM-80GB")
    found = parse(A100, "2g.10gb@4,1g.5gb@0")
    worker.apply(found)
    for record in (hardware.folder / "state").glob("*.json"):
        record.unlink()  # as if somebody else had cut it
    worker.apply(CUT)
    worker.apply(RECUT)
    assert worker.ask("leave")["reached"]
    assert hardware.layout() == found
    worker.apply(parse(H100, "3,3"), gpu=1)
    assert worker.ask("leave", gpu=1)["mig"] is False
    assert hardware.show(1)["mig"] is False
    assert list((hardware.folder / "state").glob("*.json")) == []


def test_a_record_that_is_damaged_is_not_guessed_at(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    (record,) = (hardware.folder / "state").glob("*.json")
    record.write_text('{"mig": tr')
    assert f"its record {record} cannot be understood" in worker.apply(RECUT)["refused"]
    assert hardware.layout() == CUT


def test_an_error_at_any_one_call_is_overcome_or_reported(hardware: Hardware, worker: Worker) -> None:
    """And leaks nothing. The n-th call fails, for every n there is."""
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    worker.apply(RECUT)
    calls = worker.ask("calls")["calls"]
    before = RECUT
    for number in range(1, calls + 1):
        target = (CUT, RECUT)[number % 2]
        answer = worker.apply(target, faults=f"*:{number}:UNKNOWN")
        usable, half_made, uuids = hardware.instances()
        assert half_made == ()
        if "refused" in answer:
            assert usable == before
        else:
            assert answer["reached"], (number, answer)
            assert (usable, uuids) == (target, answer["uuids"])
        before = usable


@pytest.mark.parametrize("function", CHANGES)
@pytest.mark.parametrize("fault", ["UNKNOWN", "UNKNOWN:late", "IN_USE", "INSUFFICIENT_RESOURCES:late"])
def test_a_change_that_never_works(hardware: Hardware, worker: Worker, function: str, fault: str) -> None:
    """From its n-th use on. What is left is reported as it is, and the next attempt gets there."""
    hardware.install("A100-40GB+mig")
    for number in (1, 2, 3):
        worker.apply(CUT)
        answer = worker.apply(RECUT, faults=f"{function}:{number}+:{fault}")
        usable, half_made, uuids = hardware.instances()
        assert (as_layout(answer["layout"]), as_layout(answer["half_made"])) == (usable, half_made)
        assert answer["uuids"] == uuids
        # Where it is reached all the same, the driver did what it said it could not.
        assert answer["reached"] == (usable == RECUT and not half_made)
        assert worker.apply(RECUT)["reached"]
        assert hardware.layout() == RECUT


def test_what_was_there_before_is_restored(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    # The target's last instance cannot be created, now or at the second attempt; everything afterwards works.
    faults = ",".join(f"nvmlDeviceCreateGpuInstanceWithPlacement:{number}:UNKNOWN" for number in (3, 4))
    answer = worker.apply(RECUT, faults=faults)
    assert "create 1g.10gb@2" in answer["reason"]
    assert as_layout(answer["layout"]) == CUT == hardware.layout()


def test_success_that_is_not_to_be_seen_is_a_failure(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    worker.apply(parse(A100, "2g.10gb@4"))
    answer = worker.apply((), keep_mig=True, faults="nvmlGpuInstanceDestroy:1+:NOTHING")
    assert answer["reason"] == "read back: the driver reported success, but the GPU shows 2g.10gb@4"
    assert hardware.layout() == parse(A100, "2g.10gb@4")


def test_an_instance_without_its_compute_instance_is_completed_or_removed(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    fault = "nvmlGpuInstanceCreateComputeInstance:1+:UNKNOWN,nvmlGpuInstanceDestroy:1+:IN_USE"
    answer = worker.apply(parse(A100, "3g.20gb@4"), faults=fault)
    assert (answer["layout"], answer["half_made"]) == ([], [[4, "3g.20gb"]])
    assert worker.apply(parse(A100, "3g.20gb@4"))["reached"]
    assert hardware.layout() == parse(A100, "3g.20gb@4")


def test_an_instance_that_somebody_split(hardware: Hardware, worker: Worker) -> None:
    """3g.20gb@4, with a compute instance over one of its three slices."""
    hardware.install("A100-40GB+mig")
    target = parse(A100, "3g.20gb@4,2g.10gb@0")
    worker.apply((), keep_mig=True)  # makes the GPU ours
    worker.ask("split")
    (part,) = hardware.show()["instances"]
    with hardware.job(part["computes"][0]["uuid"]) as job:
        assert worker.ask("look")["layout"] == []
        refused = worker.apply(target)["refused"]
        assert refused == f"process {job.pid} (standinctl) runs on 3g.20gb@4: stop it first"
    assert worker.apply(target)["reached"]
    assert hardware.layout() == target


def test_a_gpu_that_is_lost_in_the_middle(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    worker.apply(CUT)
    calls = worker.ask("calls")["calls"]
    hardware.install("A100-40GB+mig")
    answer = worker.apply(CUT, faults=f"*:{calls * 3 // 4}+:GPU_IS_LOST")
    assert (answer["layout"], answer["uuids"]) == (None, {})
    assert "the GPU is lost" in answer["reason"]
    hardware.ctl("lose", "0")
    assert "the GPU is lost" in worker.apply(CUT)["refused"]
    hardware.ctl("find", "0")
    assert worker.apply(CUT)["reached"]


def test_killed_in_the_middle_the_next_one_gets_there(hardware: Hardware, worker: Worker) -> None:
    hardware.install("A100-40GB+mig")
    for function in CHANGES:
        for number in (1, 2):
            worker.apply(CUT)
            victim = hardware.worker()
            victim.send("apply", target=RECUT, faults=f"{function}:{number}:KILL")
            assert victim.receive() is None
            assert victim.process.wait() == -signal.SIGKILL
            assert worker.apply(RECUT)["reached"]
            assert hardware.layout() == RECUT
            assert worker.ask("leave")["reached"]
            assert hardware.layout() == ()


LAYOUTS = st.sampled_from(every(A100))
FAULTS = st.none() | st.tuples(
    st.sampled_from(["*", "activation", "nvmlDeviceSetMigMode", *CHANGES]),
    st.integers(1, 150),
    st.sampled_from(["", "+"]),
    st.sampled_from(["UNKNOWN", "IN_USE", "TIMEOUT", "INSUFFICIENT_RESOURCES"]),
    st.sampled_from(["", ":late"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LAYOUTS, st.booleans(), FAULTS), min_size=1, max_size=5))
def test_whatever_happens_the_report_is_the_truth(
    hardware: Hardware, worker: Worker, story: list[tuple[Layout, bool, tuple[str, int, str, str, str] | None]]
) -> None:
    hardware.install("A100-40GB+mig+resets")
    before = hardware.instances()
    for target, keep_mig, fault in story:
        faults = "" if fault is None else "{}:{}{}:{}{}".format(*fault)
        answer = worker.apply(target, faults=faults, keep_mig=keep_mig)
        usable, half_made, uuids = after = hardware.instances()
        if "refused" in answer:
            assert after == before
        elif answer["layout"] is None:
            assert not answer["reached"]
        else:
            assert (as_layout(answer["layout"]), as_layout(answer["half_made"])) == (usable, half_made)
            assert answer["uuids"] == uuids
            mig = bool(target) or keep_mig
            assert answer["reached"] == (usable == target and not half_made and answer["mig"] == mig)
        before = after
        if fault is None:
            assert answer["reached"]
    assert worker.apply((), keep_mig=True)["reached"]
    assert hardware.layout() == ()


def test_a_gpu_that_was_used_a_moment_ago_is_waited_for(hardware: Hardware) -> None:
    """The driver says "in use" for a while after a process has gone: who has patience gets there."""
    hardware.environment["GPULOOM_STANDIN_LINGER_S"] = "0.6"
    try:
        hardware.install("A100-40GB+mig")
        worker = hardware.worker()
        worker.apply(parse(A100, "3g.20gb@0"))
        with hardware.job(hardware.uuids()["3g.20gb@0"]):
            pass
        hurried = worker.apply(parse(A100, "7"))
        assert not hurried["reached"]
        assert "in use" in hurried["reason"]
        assert hurried["layout"] == [[0, "3g.20gb"]]
        assert worker.apply(parse(A100, "7"), patience_s=20)["reached"]
    finally:
        del hardware.environment["GPULOOM_STANDIN_LINGER_S"]
