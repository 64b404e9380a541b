"""What is asked: questions that make sense are kept as they are, the others are one sentence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.provision.demand import (
    LONGEST_SLO_MS,
    MAX_RATE_RPS,
    SHORTEST_SLO_MS,
    Demand,
    Pattern,
    Problem,
    check_services,
)
from gpuloom.provision.offer import Offer
from gpuloom.work.model import Service
from tests.provision.drawn import demands

A = Service("a", "ssd", 1.0, 10.0)


@given(demand=demands())
def test_names_find_promises_and_models(demand: Demand) -> None:
    for service in demand.services:
        assert demand.slo_ms[service.id] == service.slo_p99_ms
        assert demand.workloads[service.id] == service.workload
    assert demand.only(demand.services[:1]).services == demand.services[:1]
    assert demand.only(demand.services[:1]).pattern == demand.pattern


@given(
    rate_rps=st.floats(0.0, MAX_RATE_RPS, exclude_min=True),
    slo_ms=st.floats(SHORTEST_SLO_MS, LONGEST_SLO_MS),
)
def test_all_that_can_be_asked_is_accepted(rate_rps: float, slo_ms: float) -> None:
    check_services([Service("a", "ssd", rate_rps, slo_ms)])


@pytest.mark.parametrize(
    ("services", "sentence"),
    [
        ([], "there are no services to plan for: expected one or more under 'services:'"),
        ([A, A], "two services are called 'a': names must be unique"),
        ([Service("b", "ssd", 0.0, 10.0)], "service b: the rate is 0 requests per second, but must be above 0"),
        ([Service("b", "ssd", -1.0, 10.0)], "service b: the rate is -1 requests per second"),
        ([Service("b", "ssd", float("nan"), 10.0)], "service b: the rate is nan requests per second"),
        ([Service("b", "ssd", 2e9, 10.0)], "service b: the rate is 2e\\+09 .* at most 1e\\+09"),
        ([Service("b", "ssd", 1.0, 0.0)], "service b: the p99 is 0 ms, but must be from 0.001 to 1e\\+07 ms"),
        ([Service("b", "ssd", 1.0, float("nan"))], "service b: the p99 is nan ms"),
        ([Service("b", "ssd", 1.0, 1e9)], "service b: the p99 is 1e\\+09 ms"),
    ],
)
def test_questions_that_make_no_sense(services: list[Service], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Demand(tuple(services))


def test_a_trace_has_gaps() -> None:
    with pytest.raises(InputError, match="no trace was given: expected trace:FILE"):
        Demand((A,), Pattern.TRACE)
    own, others = np.ones(3), np.full(4, 1.0)
    demand = Demand((A,), Pattern.TRACE, {"a": own, "": others})
    assert demand.gaps_of("a") is own
    assert demand.gaps_of("b") is others


def test_a_problem_is_a_demand_for_one_type(offer: Offer) -> None:
    problem = Problem((A,), offer, Pattern.REGULAR)
    assert problem.demand == Demand((A,), Pattern.REGULAR)
    assert problem.slo_ms == {"a": 10.0}
    with pytest.raises(InputError, match=r"service a: there is no profile of the model 'gpt'.*, on V100"):
        Problem((Service("a", "gpt", 1.0, 10.0),), offer)
    for margin in (-0.1, 3.1, float("nan")):
        with pytest.raises(InputError, match="expected 0 to 3 error bars"):
            Problem((A,), offer, margin=margin)
