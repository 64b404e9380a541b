"""A printed plan is read as it was; what is wrong with one is one sentence that names the row and the field."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Replica, ServicePlan, Unplaced
from gpuloom.provision.plan_file import as_json, needs_times, read_printed
from gpuloom.provision.spread import spread
from gpuloom.provision.supply import Supply, times_of
from gpuloom.work.model import Service

TYPES = ("V100", "T4", "A100-80GB")
INSTANCES = (Instance(0, "3g.40gb"), Instance(4, "2g.20gb"), Instance(6, "1g.10gb+me"))
ROW = {"name": "a", "gpu": 0, "share_pct": 40.0, "batch": 4, "rate_rps": 10.0, "slo_ms": 20.0}
milliseconds = st.floats(1e-3, 1e6, allow_subnormal=False)


@st.composite
def some_plans(draw: st.DrawFn) -> tuple[ServicePlan, dict[str, float]]:
    """Any plan that could be printed, and the promises of its services."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    slo_ms = {name: draw(milliseconds) for name in ("a", "b b", "ö")}
    numbers: Counter[str] = Counter()
    replicas: list[Replica] = []
    for gpu in range(len(types)):
        whole: list[Instance | None] = [None]
        for instance in draw(st.just(whole) | st.lists(st.sampled_from(INSTANCES), min_size=1, unique=True)):
            sharers = draw(st.integers(1, 3))
            for _ in range(sharers):
                service = draw(st.sampled_from(sorted(slo_ms)))
                share = draw(st.floats(0.5, 100.0 / sharers))
                grant = Grant(gpu, instance, share, batch=draw(st.integers(1, 64)))
                delay_ms, rate_rps = draw(st.floats(0.0, 50.0)), draw(st.floats(1e-3, 1e6))
                replicas.append(Replica(service, numbers[service], grant, delay_ms, rate_rps, draw(milliseconds)))
                numbers[service] += 1
    several = len(set(types)) > 1
    plan = ServicePlan(
        draw(st.sampled_from(["gpuloom", "igniter"])),
        "+".join(dict.fromkeys(types)),
        len(types),
        draw(st.floats(0.0, 1e4)),
        draw(st.none() | st.integers(0, len(types))),
        tuple(replicas),
        types=tuple(types) if several else (),
        lower_bound_cost=draw(st.none() | st.floats(0.0, 1e4)),
    )
    return plan, slo_ms


@given(printed=some_plans())
@settings(max_examples=80, deadline=None)
def test_what_was_printed_is_read(printed: tuple[ServicePlan, dict[str, float]]) -> None:
    plan, slo_ms = printed
    workloads = {name: f"model of {name}" for name in slo_ms}
    times = {
        replica: BatchTimes.of(np.arange(1, (replica.grant.batch or 1) + 1) * 0.5) for replica in plan.replicas[::2]
    }
    read = read_printed(json.loads(json.dumps(as_json(plan, slo_ms, workloads, times))), "plan.json")
    assert read.plan == plan
    there = {replica.service for replica in plan.replicas}
    assert read.slo_ms == {name: slo for name, slo in slo_ms.items() if name in there}
    assert read.workloads == {name: model for name, model in workloads.items() if name in there}
    assert read.batch_ms == {
        (replica.service, replica.number): pytest.approx(known.latency_ms.tolist(), abs=1e-4)
        for replica, known in times.items()
    }


@given(printed=some_plans())
@settings(max_examples=20, deadline=None)
def test_printed_twice_is_printed_the_same(printed: tuple[ServicePlan, dict[str, float]]) -> None:
    plan, slo_ms = printed
    once = as_json(plan, slo_ms)
    assert as_json(read_printed(once, "plan.json").plan, slo_ms) == once


def test_what_follows_from_the_question_is_not_read() -> None:
    replica = Replica("a", 0, Grant(0, share_pct=50.0, mem_mib=4000, batch=2), 0.0, 5.0, 9.0)
    plan = ServicePlan("gpuloom", "V100", 1, 3.06, 1, (replica,), (Unplaced("b", "too fast"),))
    printed = as_json(plan, {"a": 20.0})
    assert printed["unplaced"] == [{"name": "b", "why": "too fast"}]
    grant = replica.grant._replace(mem_mib=None)
    assert read_printed(printed, "plan.json").plan == replace(
        plan, replicas=(replace(replica, grant=grant),), unplaced=()
    )


def test_plans_of_planners_are_read(types: list[Supply]) -> None:
    """Of both kinds of GPU, with the times that `serve` has no model of."""
    demand = Demand((Service("a", "vgg19", 50.0, 60.0), Service("b", "bert", 50.0, 60.0)))
    plan = spread(demand, types)
    assert needs_times(plan)
    times = times_of(plan, demand, types)
    read = read_printed(as_json(plan, demand.slo_ms, demand.workloads, times), "plan.json")
    assert (read.plan, read.workloads, read.slo_ms) == (plan, demand.workloads, demand.slo_ms)
    for replica in plan.replicas:
        printed_ms = read.batch_ms[replica.service, replica.number]
        assert printed_ms == pytest.approx(times[replica].latency_ms[: replica.grant.batch], abs=1e-4)
    whole = types[0].plan(demand.only(demand.services[:1]))
    assert not needs_times(whole)
    assert read_printed(as_json(whole, demand.slo_ms), "plan.json").plan == whole


def test_what_may_be_left_out() -> None:
    read = read_printed({"services": [ROW, ROW, ROW | {"name": "b", "gpu": 1}]}, "by_hand.json")
    assert read.plan.strategy == "by hand"
    assert (read.plan.gpu_type, read.plan.gpus, read.plan.lower_bound_gpus) == ("V100", 2, None)
    assert [(replica.service, replica.number) for replica in read.plan.replicas] == [("a", 0), ("a", 1), ("b", 0)]
    assert [(replica.queue_delay_ms, replica.predicted_p99_ms) for replica in read.plan.replicas] == [(0.0, np.inf)] * 3
    assert (read.workloads, read.batch_ms) == ({}, {})
    assert read_printed({"services": []}, "by_hand.json").plan.gpus == 0


def test_rows_that_name_a_type_speak_for_their_gpu() -> None:
    rows = [ROW | {"gpu_type": "T4"}, ROW | {"gpu": 1, "gpu_type": "V100"}]
    assert read_printed({"services": rows}, "p").plan.types == ("T4", "V100")
    assert read_printed({"services": rows[:1]}, "p").plan.gpu_type == "T4"


FIELDS = (*ROW, "replica", "queue_delay_ms", "predicted_p99_ms", "device", "batch_ms")
WRONG: tuple[Any, ...] = ("", "x", -1, [], {}, True, 1e300, float("nan"))
RIGHT = [("name", "x"), ("predicted_p99_ms", 1e300)]


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field in FIELDS for value in WRONG if (field, value) not in RIGHT]
)
def test_wrong_values_are_told_with_row_and_field(field: str, value: Any) -> None:
    with pytest.raises(InputError) as refusal:
        read_printed({"services": [ROW | {"name": "b"}, ROW | {field: value}]}, "plan.json")
    sentence = str(refusal.value)
    assert sentence.startswith(f"plan.json: services[1].{field} is ")
    assert ", but must be " in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("field", ROW)
def test_what_may_not_be_left_out(field: str) -> None:
    with pytest.raises(InputError, match=rf"plan\.json: services\[0\].{field} is "):
        read_printed({"services": [{name: value for name, value in ROW.items() if name != field}]}, "plan.json")


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"slo_ms": 21.0}, r"services\[1\].slo_ms is 21.0, but must be 20.0 as in the service's other rows"),
        ({"workload": "n"}, r"services\[1\].workload is 'n', but must be m as in the service's other rows"),
        ({"gpu_type": "T4"}, r"services\[1\].gpu_type is 'T4', but must be V100 as in the GPU's other rows"),
        ({"replica": 0}, r"services\[1\].replica is 0, but must be a number that no other replica"),
        ({"share_pct": 70.0}, "p: the shares on GPU 0 sum to 110 %, but must be at most 100"),
        ({"batch_ms": [1.0, 2.0]}, r"services\[1\].batch_ms is .* a list of at least 4 times"),
        ({"batch_ms": [3.0, 2.0, 4.0, 5.0]}, r"services\[1\].batch_ms is .* that do not fall"),
        ({"device": "3g.40gb"}, r"services\[1\].device is '3g.40gb', but must be whole, or a MIG instance such as"),
        ({"gpu": 2_000_000}, r"services\[1\].gpu is 2000000, but must be a whole number from 0 to 1000000"),
        ({"batch": 5000}, r"services\[1\].batch is 5000, but must be a whole number from 1 to 4096"),
    ],
)
def test_rows_that_contradict_each_other(second: dict[str, object], sentence: str) -> None:
    rows = [ROW | {"workload": "m", "gpu_type": "V100"}, ROW | {"workload": "m"} | second]
    with pytest.raises(InputError, match=sentence):
        read_printed({"services": rows}, "p")


def test_shares_of_an_instance_are_of_that_instance() -> None:
    rows = [ROW | {"device": "3g.40gb@0", "share_pct": 60.0}, ROW | {"device": "3g.40gb@4", "share_pct": 60.0}]
    assert len(read_printed({"services": rows}, "p").plan.replicas) == 2
    with pytest.raises(InputError, match=r"the shares on 3g\.40gb@0 of GPU 0 sum to 120 %"):
        read_printed({"services": [rows[0], rows[0]]}, "p")


@pytest.mark.parametrize("content", [None, [], "plan", 3, {}, {"services": {}}, {"services": [1]}, {"services": "a"}])
def test_what_is_no_plan(content: object) -> None:
    with pytest.raises(InputError, match=r"plan\.json has no list of services: expected a plan as `gpuloom provision"):
        read_printed(content, "plan.json")


@pytest.mark.parametrize("name", ["cost_per_hour", "lower_bound_gpus", "lower_bound_cost", "strategy", "gpu_type"])
def test_facts_about_the_whole_are_not_needed(name: str) -> None:
    """They are for people: nonsense there does not keep a plan from being carried out."""
    assert read_printed({"services": [ROW], name: None}, "p").plan.replicas == (
        Replica("a", 0, Grant(0, share_pct=40.0, batch=4), 0.0, 10.0, np.inf),
    )
