"""Policies by name, by argument and by file; and wrong ones."""

from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.gpus.cluster import parse_cluster
from gpuloom.policies.registry import POLICIES, describe_all, make_policy

A100S = parse_cluster("2xA100-40GB")


@pytest.mark.parametrize("name", [*POLICIES, "static:4,3", "mps-only:7"])
def test_every_policy_can_be_made(name: str) -> None:
    policy = make_policy(name, A100S, seed=1)
    assert callable(policy.decide)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("whole-fifi", "did you mean whole-fifo"),
        ("", "unknown"),
        ("static:9", "9"),
        ("static:7,7", "7,7"),
        ("mps-only:0", "from 1 to 48"),
        ("mps-only:many", "from 1 to 48"),
        ("nowhere.py:Mine", "no such file"),
        ("nowhere.py", "name the class"),
    ],
)
def test_a_wrong_name_gets_one_sentence(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_policy(name, A100S)


@pytest.mark.parametrize("name", ["oracle", "static:3,3"])
def test_cutting_policies_need_gpus_that_can_be_cut(name: str) -> None:
    with pytest.raises(InputError):
        make_policy(name, parse_cluster("2xV100"))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = 1", "has no class Mine"),
        ("import nothing_like_this", "cannot be imported"),
        ("from gpuloom.contract import Policy\nclass Mine(Policy): ...", "lacks decide"),
    ],
)
def test_a_file_without_the_policy_gets_one_sentence(tmp_path: Path, code: str, says: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    with pytest.raises(InputError, match=says):
        make_policy(f"{path}:Mine", A100S)


def test_a_policy_of_ones_own_need_not_say_everything(tmp_path: Path) -> None:
    """One that was written before the contract had a room, does not inherit, and lets nobody set anything on it."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from gpuloom.policies.contract import ON_EVENTS, Estimate, GpuView, JobView, Plan, Reason, View, When\n"
        "from gpuloom.policies.miso import Miso\n"
        "from gpuloom.policies.pollux import Pollux\n"
        "class Frozen(type):\n"
        "    def __setattr__(cls, name, value): raise TypeError('nothing is set here')\n"
        "class Mine(metaclass=Frozen):\n"
        "    told = frozenset()\n"
        "    when = ON_EVENTS\n"
        "    def __init__(self, cluster, seed, arg): ...\n"
        "    def decide(self, view): return Plan()\n"
    )
    assert make_policy(f"{path}:Mine", A100S).told == frozenset()
    assert make_policy(f"{path}:Miso", A100S).uses_mps


def test_all_are_described() -> None:
    rows = describe_all()
    assert len(rows) == len(POLICIES) + 1
    assert all(row["what it does"] != "." for row in rows)
