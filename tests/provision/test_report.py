"""The page of a plan: lanes as wide as the shares, bars as long as the times, and nothing left out in silence."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.provision.demand import Demand
from gpuloom.provision.plan import Replica, ServicePlan, Unplaced
from gpuloom.provision.report import MOST_GPUS, MOST_REPLICAS, page
from gpuloom.work.model import Service
from tests.pages.seen import Attributes, Seen


def place(found: Attributes) -> tuple[float, float]:
    """Left edge and width, in percent."""
    left, width = (float((found[name] or "").removesuffix("%")) for name in ("x", "width"))
    return left, width


def replica(service: str, grant: Grant, p99_ms: float = 10.0, number: int = 0) -> Replica:
    return Replica(service, number, grant, 0.0, 50.0, p99_ms)


def shown(
    *replicas: Replica,
    slo_ms: float = 20.0,
    gpu_type: str = "V100",
    batch_ms: float = 4.0,
    unplaced: tuple[Unplaced, ...] = (),
    verified: dict[str, tuple[str, bool]] | None = None,
) -> str:
    names = dict.fromkeys([*(one.service for one in replicas), *(missing.service for missing in unplaced)])
    demand = Demand(tuple(Service(name, "net", 100.0, slo_ms) for name in names))
    gpus = max((one.grant.gpu for one in replicas), default=-1) + 1
    plan = ServicePlan("gpuloom", gpu_type, gpus, 3.06 * gpus, 1, replicas, unplaced)
    return page(plan, demand, {one: BatchTimes.of([batch_ms]) for one in replicas}, verified=verified)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 25), min_size=1, max_size=4))
def test_shares_lie_side_by_side(shares: list[int]) -> None:
    text = shown(*(replica(f"s{at}", Grant(0, share_pct=share, batch=1)) for at, share in enumerate(shares)))
    pieces = [place(found) for found in Seen(text).of("foreignobject")]
    assert [width for _, width in pieces] == shares
    assert [left for left, _ in pieces] == [sum(shares[:at]) for at in range(len(shares))]


def test_instances_lie_where_they_are_in_memory() -> None:
    text = shown(
        replica("a", Grant(0, Instance(0, "3g.20gb"), 60.0, batch=1)),
        replica("b", Grant(0, Instance(0, "3g.20gb"), 40.0, batch=1)),
        replica("c", Grant(0, Instance(6, "1g.5gb"), batch=1)),
        gpu_type="A100-40GB",
    )
    seen = Seen(text)
    assert [place(found) for found in seen.of("svg", "frame")] == [(0, 50), (75, 12.5)]
    assert [place(found) for found in seen.of("foreignobject") if "x" in found] == [(0, 60), (60, 40), (0, 100)]
    assert {"3g.20gb@0", "1g.5gb@6"} <= set(seen.said("div"))
    assert "<dd>57 %</dd>" in text  # 3 + 1 of 7 compute slices


def test_twelve_services_have_twelve_colours() -> None:
    text = shown(*(replica(f"s{at}", Grant(at, batch=1)) for at in range(12)))
    assert len({found["class"] for found in Seen(text).of("div", "piece")}) == 12


@settings(deadline=None, max_examples=50)
@given(st.floats(0.1, 40.0), st.floats(0.1, 40.0), st.floats(1.0, 40.0))
def test_a_budget_is_as_long_as_the_p99_is_of_the_promise(batch_ms: float, p99_ms: float, slo_ms: float) -> None:
    text = shown(replica("a", Grant(0, batch=1), p99_ms), slo_ms=slo_ms, batch_ms=batch_ms)
    (first, second) = Seen(text).of("rect")
    assert first["class"] == "batch"
    assert second["class"] == ("over" if p99_ms > slo_ms else "waiting")
    assert sum(place(second)) == pytest.approx(100 * min(p99_ms / slo_ms, 1), abs=0.01)
    assert place(first)[1] == pytest.approx(100 * min(batch_ms, p99_ms) / max(p99_ms, slo_ms), abs=0.01)


def test_a_replica_that_cannot_keep_up_fills_its_bar() -> None:
    text = shown(replica("a", Grant(0, batch=1), inf))
    assert [found["class"] for found in Seen(text).of("rect")] == ["over"]
    assert "nan" not in text.partition("</head>")[2]


def test_a_promise_that_was_broken_in_the_simulation_is_marked() -> None:
    both = replica("kept", Grant(0, share_pct=50.0, batch=1)), replica("broken", Grant(0, share_pct=50.0, batch=1))
    text = shown(*both, verified={"kept": ("9.0 ± 0.1", True), "broken": ("30.0 ± 0.1", False)})
    assert '<td class="number">9.0 ± 0.1</td>' in text
    assert '<td class="number"><span class="bad">30.0 ± 0.1</span></td>' in text


def test_what_was_not_placed_is_said_with_its_reason() -> None:
    text = shown(replica("a", Grant(0, batch=1)), unplaced=(Unplaced("b", "it asks for too much"),))
    assert "it asks for too much" in text
    assert "<dd>1 of 2</dd>" in text
    assert "Not placed" not in shown(replica("a", Grant(0, batch=1)))


def test_a_plan_of_nothing_makes_a_page() -> None:
    assert "<dd>0 of 1</dd>" in shown(unplaced=(Unplaced("b", "it asks for too much"),))


def test_what_is_cut_is_said() -> None:
    gpus = MOST_GPUS + 5
    seen = Seen(text := shown(*(replica("a", Grant(gpu, batch=1), number=gpu) for gpu in range(gpus))))
    assert len(seen.of("svg", "row")) == MOST_GPUS
    assert f"The first {MOST_GPUS} of {gpus} GPUs." in text
    one = tuple(replica("a", Grant(0, share_pct=1.0, batch=1), number=at) for at in range(MOST_REPLICAS + 1))
    text = shown(*one)
    assert f"The first {MOST_REPLICAS:,} of {len(one):,} replicas." in text
