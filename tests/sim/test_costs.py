"""Costs as the command line gives them."""

from dataclasses import asdict, fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.view import MoveCosts
from gpuloom.errors import InputError
from gpuloom.sim.costs import Costs, with_overrides
from gpuloom.work.source import MAX_SECONDS

NAMES = [field.name for field in fields(Costs)]
overrides = st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0.0, MAX_SECONDS)), max_size=10)


@settings(deadline=None, max_examples=60)
@given(overrides)
def test_the_last_of_each_name_counts_and_the_others_stay(told: list[tuple[str, float]]) -> None:
    costs = with_overrides(Costs(), [f"{name}={seconds!r}" for name, seconds in told])
    assert asdict(costs) == asdict(Costs()) | dict(told)


def test_whole_numbers_and_powers_are_seconds_too() -> None:
    assert with_overrides(Costs(), ["cut_s=4", "probe_s=1e2", "start_s= 3 "]) == Costs(cut_s=4, probe_s=100, start_s=3)
    assert with_overrides(Costs(cut_s=9.0), []) == Costs(cut_s=9.0)


@pytest.mark.parametrize("text", ["rent=3", "=3", "", "Cut_s=3", " cut_s=3"])
def test_a_name_that_no_cost_has(text: str) -> None:
    with pytest.raises(InputError, match="no such cost; known are checkpoint_s, cut_s, mps_start_s") as raised:
        with_overrides(Costs(), [text])
    assert str(raised.value).startswith(f"--cost {text}:")


@pytest.mark.parametrize("value", ["", "soon", "-1", "nan", "inf", "-0.001", "1e99", "4s", "1,5"])
def test_a_price_that_is_none(value: str) -> None:
    with pytest.raises(InputError, match="expected cut_s=SECONDS, from 0 to"):
        with_overrides(Costs(), [f"cut_s={value}"])


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        (Costs(start_s=30.0), MoveCosts(30.0, 30.0, 30.0)),
        (Costs(start_s=30.0, restart_s=7.0), MoveCosts(30.0, 7.0, 7.0)),
        (Costs(start_s=30.0, restart_s=7.0, rescale_s=0.5), MoveCosts(30.0, 7.0, 0.5)),
        (Costs(start_s=30.0, rescale_s=0.0), MoveCosts(30.0, 30.0, 0.0)),
    ],
)
def test_a_scheduler_is_told_three_costs(costs: Costs, told: MoveCosts) -> None:
    assert costs.told() == told
