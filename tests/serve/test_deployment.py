"""The plan's file: what is read, and the one sentence for whatever is wrong."""

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.model import Instance
from gpuloom.provision.plan import ServicePlan
from gpuloom.provision.plan_file import as_json
from gpuloom.serve.deployment import MOST_REPLICAS, model_name, read_plan
from tests.serve.plans import replica, row, write_plan


def test_a_row_becomes_a_replica_and_a_promise(tmp_path: Path) -> None:
    found = read_plan(write_plan(tmp_path, row(), row(replica=1, gpu=1, rate_rps=100, device="3g.20gb@4")))
    first, second = found.plan.replicas
    assert (first.grant.share_pct, first.grant.batch, first.queue_delay_ms) == (30.0, 2, 0.5)
    assert second.grant.instance == Instance(4, "3g.20gb")
    assert found.promises["W6"].rate_rps == 300.0
    assert found.promises["W6"].slo_ms == 40.0
    assert found.batch_ms["W6", 0] == (4.2, 6.9)
    assert found.plan.gpus == 2


def test_what_provision_prints_is_read_back(tmp_path: Path) -> None:
    plan = ServicePlan("gpuloom", "V100", 2, 6.12, 2, (replica("a"), replica("b"), replica("b", 1, gpu=1)))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(as_json(plan, {"a": 10.0, "b": 20.0})))
    found = read_plan(path, {"a": "alexnet"})
    assert found.plan.replicas == plan.replicas
    assert found.promises["a"].workload == "alexnet"
    assert found.promises["b"].workload is None
    assert not found.batch_ms


def test_what_may_be_missing(tmp_path: Path) -> None:
    bare = row(predicted_p99_ms=None, queue_delay_ms=None, workload=None, batch_ms=None, replica=None)
    found = read_plan(write_plan(tmp_path, bare, bare))
    assert [one.number for one in found.plan.replicas] == [0, 1]
    assert found.plan.replicas[0].predicted_p99_ms == math.inf


WRONG: dict[str, list[object]] = {
    "name": ["", None, 3, "a\nb", "x" * 300],
    "gpu": [-1, 0.5, None, True, "0"],
    "device": ["3g.20gb", 3, "half", "3g.20gb@"],
    "share_pct": [0, 101, None, "30", math.inf],
    "batch": [0, 2.5, None, 10**9],
    "queue_delay_ms": [-1, "0", math.nan],
    "replica": [-1, 1.5],
    "rate_rps": [0, -5, None, 1e300],
    "slo_ms": [0, None, -1],
    "predicted_p99_ms": [-1, "soon", math.nan],
    "workload": ["", 3, ["resnet50"]],
    "gpu_type": ["", 100, "A100-40GB"],
    "batch_ms": [[4.2], [0, 1], [5, 4], "4.2", [4.2, None], []],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_a_wrong_field_is_named(tmp_path: Path, field: str, value: Any) -> None:
    path = write_plan(tmp_path, row("good", share_pct=10), row(**{field: value}))
    with pytest.raises(InputError, match=rf"plan\.json: services\[1\]\.{field}"):
        read_plan(path)


def test_every_field_of_a_row_is_tried_with_wrong_values() -> None:
    assert set(WRONG) == {*row(), "gpu_type"}


def test_more_replicas_than_a_host_serves(tmp_path: Path) -> None:
    rows = [row(replica=number, share_pct=0.01) for number in range(MOST_REPLICAS + 1)]
    with pytest.raises(InputError, match=r"plan\.json has 1001 replicas: one host serves at most 1000"):
        read_plan(write_plan(tmp_path, *rows))
    assert len(read_plan(write_plan(tmp_path, *rows[:-1])).plan.replicas) == MOST_REPLICAS


def test_rows_that_contradict_each_other(tmp_path: Path) -> None:
    for second, told in [
        (row(slo_ms=30, replica=1), "slo_ms is 30, but must be 40"),
        (row(), "no other replica"),
        (row("W 6"), None),
        (row("W_6", share_pct=80), "sum to 110 %"),
    ]:
        if told is not None:
            with pytest.raises(InputError, match=told):
                read_plan(write_plan(tmp_path, row(), second))
    with pytest.raises(InputError, match="same address"):
        read_plan(write_plan(tmp_path, row("W 6"), row("W_6")))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"services": []}', '{"services": [1]}', '{"services": {}}', "{", "\0"]
)
def test_what_is_no_plan_at_all(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"plan\.json"):
        read_plan(path)
    with pytest.raises(InputError, match="does not exist"):
        read_plan(tmp_path / "absent.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(row())), value=JSON)
def test_any_value_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: Any
) -> None:
    path = write_plan(tmp_path_factory.mktemp("p"), row(**{field: value}))
    with suppress(InputError):
        assert len(read_plan(path).plan.replicas) == 1


@given(st.text(min_size=1))
@example(".")
@example("..")
def test_a_models_name_can_be_a_folder_and_part_of_an_address(service: str) -> None:
    name = model_name(service)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    assert name not in (".", "..")
    assert model_name(name) == name
