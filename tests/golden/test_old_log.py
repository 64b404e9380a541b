"""Logs that earlier versions of gpuloom wrote: read, recovered and audited to the states that their writers had.

    gpuloom simulate --trace examples/jobs.yaml --gpus 2xA100-40GB --policy miso --seed 3 --fault gpu-lost:1@400 \\
        --fault gpu-restored:1@900 --fault cut-fails:1 --fault crash:tune-bert@200 --log log_version_2.jsonl
    gpuloom simulate --trace examples/jobs.yaml --gpus 2xA100-40GB --policy miso-paper --every 33.3 --seed 3 \\
        --fault gpu-lost:1@400 --fault gpu-restored:1@900 --log log_version_2_rounds.jsonl

Those of version 1 are of the same runs.
"""

from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path

import pytest

from gpuloom.contract.policy import Policy
from gpuloom.contract.view import USUAL_COSTS
from gpuloom.engine.audit import audit
from gpuloom.engine.log import Header, Scribe, header_line, read, read_turns
from gpuloom.engine.recovery import recover
from gpuloom.gpus.cluster import Cluster
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import build_policy, simulate
from tests.engine.dump import dump
from tests.engine.old_lines import old_line

ROOT = Path(__file__).resolve().parents[2]
EVENTS, ROUNDS = "log_version_1", "log_version_1_rounds"
LOST = ("gpu-lost:1@400", "gpu-restored:1@900")


def lines_of(name: str) -> list[str]:
    return Path(__file__).with_name(f"{name}.jsonl").read_bytes().decode().splitlines(keepends=True)


def newer(name: str) -> str:
    return name.replace("version_1", "version_2")


def fresh(header: Header, cluster: Cluster) -> Policy:
    return build_policy(header.policy, cluster, header.seed, header.every_s)


@pytest.mark.parametrize("name", [EVENTS, ROUNDS])
def test_both_versions_tell_the_same(name: str) -> None:
    old, new = lines_of(name), lines_of(newer(name))
    assert [*read(old, "old")] == [*read(new, "new")]
    assert [old_line(entry) for entry in read(new, "new")] == old


@pytest.mark.parametrize("name", [EVENTS, ROUNDS])
def test_every_line_is_written_as_it_was(name: str) -> None:
    header, turns = read_turns(lines_of(newer(name)), "log")
    scribe = Scribe()
    written = [header_line(header), *(scribe.line(turn.events, turn.decision) for turn in turns)]
    assert written == lines_of(newer(name))


@pytest.mark.parametrize(
    ("name", "lines", "digest"),
    [
        (EVENTS, 97, "a930073cf0736101"),
        (EVENTS, 48, "02dd3961ba407db9"),
        (EVENTS, 32, "e3ea19f04da0e5b4"),
        (ROUNDS, 1471, "61abbcc1d2945340"),
        (ROUNDS, 735, "b96283313dc699be"),
        (ROUNDS, 490, "62f6fab4a44d3187"),
    ],
)
def test_it_leads_to_the_state_that_its_writer_had(name: str, lines: int, digest: str) -> None:
    """Whether what was decided is followed, or the policy is asked again; and whichever version has it."""
    old = lines_of(name)[:lines]
    turns = len([*read_turns(old, "log")[1]])
    for log in (old, lines_of(newer(name))[: turns + 1]):
        asked = audit(log, "log", fresh)
        assert asked.difference is None
        for engine in (asked.engine, recover(log, "log", fresh).engine):
            assert sha256(dump(engine.state)).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("name", "policy", "every_s", "faults"),
    [
        (EVENTS, "miso", None, (*LOST, "cut-fails:1", "crash:tune-bert@200")),
        (ROUNDS, "miso-paper", 33.3, LOST),
    ],
)
def test_the_same_run_writes_the_same_log(
    name: str, policy: str, every_s: float | None, faults: tuple[str, ...]
) -> None:
    trace = ROOT / "examples" / "jobs.yaml"
    log = StringIO()
    scenario = load(Inputs(trace=trace, gpus="2xA100-40GB", every_s=every_s, faults=faults), 3)
    simulate(scenario, policy, 3, log=log)
    written, kept = log.getvalue().splitlines(keepends=True), lines_of(newer(name))
    assert written[1:] == kept[1:]
    header, _ = read_turns(written, "log")
    assert header.costs == scenario.costs.told(), "headers tell since then what moving costs"
    assert header.freezes, "and what becomes of a GPU that cannot be cut"
    assert header_line(replace(header, costs=USUAL_COSTS, freezes=False)) == kept[0]
