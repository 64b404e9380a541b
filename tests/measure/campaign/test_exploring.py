"""Which run is next where not all are made: the advice follows from plan and journal, each place once, and it ends."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import pytest
from pydantic import TypeAdapter

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Seat
from gpuloom.measure.campaign.exploring import Explorer, order_of
from gpuloom.measure.campaign.order import Next, Run, Turns
from gpuloom.measure.explore.wanted import Exploring, read_runs, read_wanted
from gpuloom.measure.measured import places_told
from gpuloom.measure.plan import Plan, Ways, Workload, arrangements
from gpuloom.measure.results import Outcome
from tests.measure.rows import MODEL, PROFILES, run

TIMES = {"1g.5gb": 70.0, "2g.10gb": 30.0, "3g.20gb": 20.0, "4g.20gb": 18.0, "7g.40gb": 10.0}
LARGE = {"3g.20gb": 26.0, "4g.20gb": 21.0, "7g.40gb": 12.0}
JOURNAL = TypeAdapter(list[Run])


def explorer(words: str, runs: str = "40%", names: str = "a", ways: tuple[Ways, ...] = (Ways.ALONE,)) -> Explorer:
    plan = Plan(tuple(Workload(name, ("x",)) for name in names), ways)
    exploring = Exploring(read_wanted(words), *read_runs(runs))
    found = order_of(replace(plan, exploring=exploring), MODEL, arrangements(plan, MODEL)[0])
    assert isinstance(found, Explorer)
    return found


def carried_out(chosen: Next, times: Mapping[str, float], outcome: Outcome | None = None) -> Run:
    step_ms = times.get(chosen.arrangement.seats[0].place, inf)
    copies = tuple(run(chosen.number, chosen.arrangement, chosen.repetition, [step_ms]))
    if outcome is not None:
        copies = tuple(replace(copy, outcome=outcome, steps=None, seconds=None, step_ms=None) for copy in copies)
    return Run(chosen.number, chosen.arrangement, chosen.repetition, 2.0, copies)


def explore(how: Explorer, times: Mapping[str, Mapping[str, float]], forgets: bool = False) -> list[Run]:
    """One that `forgets` is killed after every run, and goes on from what is in the journal."""
    done: list[Run] = []
    while (chosen := how.next(done)) is not None:
        done.append(carried_out(chosen, times[chosen.arrangement.seats[0].workload]))
        done = JOURNAL.validate_json(JOURNAL.dump_json(done)) if forgets else done
    return done


def names(done: list[Run]) -> list[str]:
    return [one.arrangement.name for one in done]


@pytest.mark.parametrize("words", ["most-work", "one-copy", "deadline 100 in 2s", "least-speed 40"])
def test_a_kill_changes_nothing(words: str) -> None:
    how = explorer(words, "80%", "ab")
    done = explore(how, {"a": TIMES, "b": LARGE})
    assert done == explore(how, {"a": TIMES, "b": LARGE}, forgets=True)
    assert [one.number for one in done] == list(range(8))
    for name in "ab":
        own = [one.arrangement.name for one in done if one.arrangement.seats[0].workload == name]
        assert len({*own}) == len(own) == 4
    assert [one.arrangement.seats[0].workload for one in done] == ["a", "b"] * 4, "they take turns"


def test_two_of_five_for_most_work_and_why() -> None:
    how = explorer("most-work")
    first = how.next([])
    assert first is not None
    assert "served the known workloads best" in first.why
    assert {*names(explore(how, {"a": TIMES}))} == {"1g.5gb", "3g.20gb"}
    third = explorer("most-work", "3").next(explore(how, {"a": TIMES}))
    assert third is not None
    assert "expected" in third.why


def test_more_runs_later_go_on_where_it_was() -> None:
    done = explore(explorer("one-copy", "1"), {"a": TIMES})
    assert len(done) == 1
    more = explorer("one-copy", "100%")
    while (chosen := more.next(done)) is not None:
        done.append(carried_out(chosen, TIMES))
    assert sorted(names(done)) == sorted(PROFILES)


def test_what_failed_is_not_tried_again() -> None:
    how, done = explorer("most-work", "100%"), list[Run]()
    while (chosen := how.next(done)) is not None:
        done.append(carried_out(chosen, TIMES, Outcome.CRASHED))
    assert sorted(names(done)) == sorted(PROFILES)


@pytest.mark.parametrize("words", ["set", "set a,a,b"])
def test_a_set_spends_its_runs_together(words: str) -> None:
    how = explorer(words, "40%", "ab")
    done = explore(how, {"a": TIMES, "b": LARGE})
    assert done == explore(how, {"a": TIMES, "b": LARGE}, forgets=True)
    assert len(done) == 4
    assert len({one.arrangement for one in done}) == 4
    assert {one.arrangement.seats[0].workload for one in done[:2]} == {"a", "b"}, "who has not run comes first"


def test_shares_are_places_too() -> None:
    how = explorer("one-copy", "100%", ways=(Ways.SHARES,))
    assert {one.name for one in how.arrangements} == {"whole 50%", "whole 33%", "whole 14%"}
    both = explorer("one-copy", "100%", ways=(Ways.ALONE, Ways.SHARES))
    assert "whole" not in {one.name for one in both.arrangements}, "7g.40gb is as much"
    times = {one.name: 10.0 / one.seats[0].share_pct for one in both.arrangements}
    assert len(explore(both, {"a": times})) == 8


def test_an_uncut_device_is_a_place_where_it_is_the_largest() -> None:
    plan = Plan(
        (Workload("a", ("x",)),), (Ways.ALONE,), profiles=("1g.5gb",), exploring=Exploring(read_wanted("one-copy"))
    )
    how = order_of(plan, MODEL, arrangements(plan, MODEL)[0])
    assert [one.name for one in how.arrangements] == ["whole", "1g.5gb"]


@pytest.mark.parametrize("model", [find("a30"), find("V100-16GB")], ids=lambda model: str(model.name))
def test_other_devices(model: GpuModel) -> None:
    plan = Plan((Workload("a", ("x",)),), (Ways.ALONE, Ways.SHARES), exploring=Exploring(read_wanted("least-speed 2")))
    how = order_of(plan, model, arrangements(plan, model)[0])
    chosen = how.next([])
    assert chosen is not None
    assert chosen.arrangement in how.arrangements


def test_what_is_ahead_is_at_most() -> None:
    how = explorer("most-work", "80%")
    assert (how.ahead([], None).runs, how.ahead([], None).seconds) == (4, None)
    done = explore(explorer("most-work"), {"a": TIMES})
    assert how.ahead(done, None).at_most
    assert (how.ahead(done, None).runs, how.ahead(done, None).seconds) == (2, 4.0)
    assert how.ahead(done, 5.0).seconds == 1.0


def test_what_was_not_run_is_told_and_read() -> None:
    how = explorer("most-work", "40%", "ab")
    done = explore(how, {"a": TIMES, "b": LARGE})
    told = how.told(done)
    assert told["for"] == "most-work"
    assert "predicted" in str(told["says"])
    there = places_told(told)
    assert there == {name: tuple(Seat(name, profile) for profile in PROFILES) for name in "ab"}
    everything = explorer("most-work", "100%", "ab")
    assert places_told(everything.told(explore(everything, {"a": TIMES, "b": LARGE}))) == {}


def test_without_a_goal_everything_has_its_turn() -> None:
    plan = Plan((Workload("a", ("x",)),))
    assert isinstance(order_of(plan, MODEL, arrangements(plan, MODEL)[0]), Turns)


def test_a_set_that_no_layout_has_room_for() -> None:
    with pytest.raises(InputError, match="A100-40GB has no layout for 8 copies"):
        explorer("set " + ",".join(["a"] * 8))
