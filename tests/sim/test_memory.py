"""Simulated runs with a memory: the log has what was handed in, the same words give the same bytes, no file changes."""

import io
from pathlib import Path

import pytest

from gpuloom.contract.policy import Policy
from gpuloom.engine.audit import audit
from gpuloom.engine.log import Header
from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.cluster import Cluster
from gpuloom.perf.slices.earlier import Rate, Row
from gpuloom.perf.slices.earlier_file import to_text
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import build_policy, simulate
from gpuloom.work.measured.figures import load_figures

A100 = find("A100-40GB")


def of_everybody() -> list[Row]:
    return [
        Row(
            name,
            A100.name,
            "run 1",
            1.0,
            rates={one: Rate(speed / known.batch_s, 5) for one, speed in known.speeds.items()},
        )
        for name, known in load_figures().workloads.items()
    ]


def logged(inputs: Inputs, policy: str = "miso") -> str:
    out = io.StringIO()
    simulate(load(inputs, 1), policy, 1, log=out)
    return out.getvalue()


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    path = tmp_path / "memory.json"
    path.write_text(to_text(of_everybody()))
    return Inputs(gpus="2xA100-40GB", jobs=20, memory=path)


def test_who_is_told_of_earlier_runs_probes_less_and_the_log_is_all_that_an_audit_needs(inputs: Inputs) -> None:
    assert inputs.memory is not None
    before = inputs.memory.read_bytes()
    log = logged(inputs)
    assert logged(inputs) == log
    assert inputs.memory.read_bytes() == before
    inputs.memory.unlink()
    without = logged(Inputs(gpus="2xA100-40GB", jobs=20))
    assert '"SeenEarlier"' in log.splitlines()[1]
    assert '"SeenEarlier"' not in without
    assert log.count('"GpuProbed"') < without.count('"GpuProbed"')

    def fresh(header: Header, cluster: Cluster) -> Policy:
        return build_policy(header.policy, cluster, header.seed, header.every_s)

    assert audit(log.splitlines(keepends=True), "log", fresh).difference is None


@pytest.mark.parametrize("policy", ["miso-paper", "whole-fifo", "miso:-memory"])
def test_a_policy_of_another_kind_does_what_it_did(inputs: Inputs, policy: str) -> None:
    lines = logged(inputs, policy).splitlines()
    told = lines.pop(1)
    assert '"SeenEarlier"' in told
    without = logged(Inputs(gpus="2xA100-40GB", jobs=20), policy).splitlines()
    assert [line.partition('"events"')[2].partition(',"crc32"')[0] for line in lines[1:]] == [
        line.partition('"events"')[2].partition(',"crc32"')[0] for line in without[1:]
    ]


def test_a_file_that_is_named_has_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist: expected a memory that gpuloom wrote"):
        load(Inputs(memory=tmp_path / "none.json"), 1)
    (tmp_path / "half.json").write_text(to_text(of_everybody())[:-5])
    with pytest.raises(InputError, match=r"half.json: is damaged, or no JSON"):
        load(Inputs(memory=tmp_path / "half.json"), 1)
