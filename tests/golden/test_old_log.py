"""Logs that gpuloom wrote before its rooms were built: read, replayed and written again to the same bytes.

    gpuloom simulate --trace examples/jobs.yaml --gpus 2xA100-40GB --policy miso --seed 3 --fault gpu-lost:1@400 \\
        --fault gpu-restored:1@900 --fault cut-fails:1 --fault crash:tune-bert@200 --log log_version_1.jsonl
    gpuloom simulate --trace examples/jobs.yaml --gpus 2xA100-40GB --policy miso-paper --every 33.3 --seed 3 \\
        --fault gpu-lost:1@400 --fault gpu-restored:1@900 --log log_version_1_rounds.jsonl
"""

from hashlib import sha256
from io import StringIO
from pathlib import Path

import pytest

from gpuloom.engine.log import from_line, replay, to_line
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.run import build_policy, simulate
from tests.engine.dump import dump

ROOT = Path(__file__).resolve().parents[2]
EVENTS, ROUNDS = "log_version_1", "log_version_1_rounds"
LOST = ("gpu-lost:1@400", "gpu-restored:1@900")


def lines_of(name: str) -> list[str]:
    return Path(__file__).with_name(f"{name}.jsonl").read_bytes().decode().splitlines(keepends=True)


@pytest.mark.parametrize("name", [EVENTS, ROUNDS])
def test_every_line_is_written_as_it_was(name: str) -> None:
    assert [to_line(from_line(line, "log")) for line in lines_of(name)] == lines_of(name)


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
def test_it_replays_to_the_state_that_its_writer_had(name: str, lines: int, digest: str) -> None:
    engine = replay(
        lines_of(name)[:lines],
        "log",
        parse_cluster,
        lambda header, cluster: build_policy(header.policy, cluster, header.seed, header.every_s),
    )
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
    simulate(load(Inputs(trace=trace, gpus="2xA100-40GB", every_s=every_s, faults=faults), 3), policy, 3, log=log)
    assert log.getvalue().splitlines(keepends=True) == lines_of(name)
