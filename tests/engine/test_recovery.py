"""A run goes on from its log: every policy, at any moment, through turns of any size on a cluster that changes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.plan import NO_CHANGE, Plan
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import View
from gpuloom.engine.audit import audit
from gpuloom.engine.events import Event, JobArrived, PolicyReset, Tick
from gpuloom.engine.log import Header, Scribe, header_line, read_turns, text_of
from gpuloom.engine.machine import Decision, Engine
from gpuloom.engine.memory import changed, difference, recall
from gpuloom.engine.recovery import recover
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant
from gpuloom.policies.registry import POLICIES
from gpuloom.work.model import Job
from tests.engine.dump import dump
from tests.engine.old_lines import old_line
from tests.engine.random_world import KNOWING, MIXED, fresh, live

TURNS = 60


@pytest.mark.parametrize("policy", [*POLICIES, "miso:-migration,-telemetry", MIXED, KNOWING])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), part=st.floats(0, 1))
def test_whoever_recovers_decides_as_if_nothing_had_been(policy: str, seed: int, part: float) -> None:
    lived = live(policy, seed, TURNS if policy != "pollux" else TURNS // 2)
    killed = 1 + int(part * (len(lived.lines) - 1))
    found = recover(lived.lines[:killed], "log", fresh)
    assert found.reset is None
    assert found.turns == killed - 1
    engine = found.engine
    assert dump(engine.state) == lived.states[killed - 1]
    header, turns = read_turns(lived.lines, "log")
    memory: object = None
    for turn in turns:
        memory = changed(memory, turn.memory)
        if turn.number >= killed:
            engine.turn(turn.events)
            assert text_of(engine.decision) == text_of(turn.decision)
            assert not engine.asked or recall(engine.policy) == memory
    assert dump(engine.state) == lived.states[-1]
    assert engine.state.cluster == lived.engine.state.cluster
    assert header.begins_on() == engine.state.cluster or len(engine.state.cluster) > len(header.cluster)


@pytest.mark.parametrize("policy", [*POLICIES, MIXED, KNOWING])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_asked_again_it_says_the_same_and_no_plan_is_refused(policy: str, seed: int) -> None:
    lived = live(policy, seed, TURNS if policy != "pollux" else TURNS // 2)
    again = audit(lived.lines, "log", fresh)
    assert again.difference is None
    assert dump(again.engine.state) == lived.states[-1]
    assert lived.engine.state.plans_rejected == 0, lived.engine.last_refusal


# ---- memory that is missing, or cannot be read -------------------------------------------------------------------


class Counting(Policy):
    """Remembers how often it was asked, and gives the GPU to everybody in turn."""

    when = When(every_s=10.0)

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.asked = 0

    def decide(self, view: View) -> Plan:
        self.asked += 1
        jobs = [*view.jobs]
        chosen = jobs[self.asked % len(jobs)]
        return Plan(grants={job_id: (Grant(0),) if job_id == chosen else () for job_id in jobs})

    def remember(self) -> object:
        return {"asked": self.asked}

    def restore(self, memory: Any) -> None:
        self.asked = int(memory["asked"])


class Changed(Counting):
    """The same after an upgrade: it looks for what it did not write, after it has begun to take over."""

    def restore(self, memory: Any) -> None:
        self.asked = 1000
        self.asked = int(memory["questions"])


class Unaware:
    """A user's class that inherits nothing and remembers without saying so."""

    when = When()
    told: frozenset[str] = frozenset()

    def decide(self, view: View) -> Plan:
        idle = view.idle.copy()
        taken = {job_id: idle.take(1) for job_id in view.waiting}
        return Plan(grants={job_id: tuple(map(Grant, gpus)) for job_id, gpus in taken.items() if gpus})


HEADER = Header("1xA100-40GB", "counting", 0, freezes=True)
ROUNDS: list[Sequence[Event]] = [
    [JobArrived(0.0, "submitted", Job("a")), JobArrived(0.0, "submitted", Job("b"))],
    *([Tick(10.0 * n, "round")] for n in range(1, 8)),
]


def counted(kind: type[Counting] = Counting) -> tuple[list[str], Engine]:
    engine, scribe = Engine(HEADER.begins_on(), kind(HEADER.begins_on())), Scribe()
    lines = [header_line(HEADER)]
    for events in ROUNDS:
        engine.turn(events)
        lines.append(scribe.line(events, engine.decision, recall(engine.policy) if engine.asked else None))
    return lines, engine


def test_memory_that_cannot_be_read_means_a_fresh_policy_and_the_plans_stand() -> None:
    lines, engine = counted()
    found = recover(lines, "log", lambda _, cluster: Changed(cluster))
    assert found.reset == "what the policy remembered cannot be read: KeyError: 'questions'"
    assert isinstance(found.engine.policy, Changed)
    assert found.engine.policy.asked == 0, "nothing of what was restored by half"
    assert dump(found.engine.state) == dump(engine.state)


def test_a_log_of_version_1_has_no_memory() -> None:
    lines, engine = counted()
    header, turns = read_turns(lines, "log")
    told = [entry for turn in turns for entry in (*turn.events, turn.decision) if entry is not None]
    old = [old_line(header), *map(old_line, told)]
    found = recover(old, "log", lambda _, cluster: Counting(cluster))
    assert found.reset == "the log does not have what the policy remembered"
    assert dump(found.engine.state) == dump(engine.state)
    assert recover(old[:3], "log", lambda _, cluster: Counting(cluster)).reset is None, "it had not been asked yet"


def test_with_another_policy_jobs_stay_where_they_are() -> None:
    """After an upgrade a policy may want something else: what was decided stands, and it is no traceback."""
    lines, engine = counted()

    class Other(Counting):
        def decide(self, view: View) -> Plan:  # noqa: ARG002
            return NO_CHANGE

    found = recover(lines, "log", lambda _, cluster: Other(cluster))
    assert dump(found.engine.state) == dump(engine.state)
    differs = audit(lines, "log", lambda _, cluster: Other(cluster)).difference
    assert differs is not None
    assert (differs.turn, differs.what, differs.now) == (2, "decision", "null")


def test_an_audit_begins_anew_where_the_policy_did() -> None:
    lines, _ = counted()
    found = recover(lines, "log", lambda _, cluster: Changed(cluster))
    scribe = Scribe(found.turns)
    after: list[list[Event]] = [[PolicyReset(70.0, found.reset or "")], [Tick(80.0, "round")], [Tick(90.0, "round")]]
    for events in after:
        found.engine.turn(events)
        memory = recall(found.engine.policy) if found.engine.asked else None
        lines.append(scribe.line(events, found.engine.decision, memory))
    assert audit(lines, "log", lambda _, cluster: Counting(cluster)).difference is None
    again = recover(lines, "log", lambda _, cluster: Counting(cluster))
    assert again.reset is None
    assert recall(again.engine.policy) == {"asked": 2}
    assert dump(again.engine.state) == dump(found.engine.state)


def test_a_policy_that_says_nothing_of_memory_is_recovered_too() -> None:
    engine, scribe = Engine(HEADER.begins_on(), Unaware()), Scribe()  # type: ignore[arg-type]
    lines = [header_line(HEADER)]
    for events in ROUNDS:
        engine.turn(events)
        lines.append(scribe.line(events, engine.decision, recall(engine.policy)))
    found = recover(lines, "log", lambda *_: Unaware())  # type: ignore[arg-type]
    assert found.reset is None
    assert dump(found.engine.state) == dump(engine.state)


def test_what_json_cannot_hold_is_said_at_once() -> None:
    class Strange(Counting):
        def remember(self) -> object:
            return {"asked": {1, 2}}

    with pytest.raises(InputError, match="policy Strange: remember returned what JSON cannot hold"):
        recall(Strange(HEADER.begins_on()))


# ---- logs that cannot be -----------------------------------------------------------------------------------------


def logged(*turns: tuple[Sequence[Event], Decision | None]) -> list[str]:
    scribe = Scribe()
    return [header_line(HEADER), *(scribe.line(events, decision) for events, decision in turns)]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            logged((ROUNDS[0], Decision(0.0, "?", Plan(grants={"a": (Grant(0),), "b": (Grant(0),)})))),
            "log: turn 1 cannot have happened after those before it: GPU 0",
        ),
        (logged(([Tick(5.0, "?")], None), ([Tick(4.0, "?")], None)), "log: turn 2 cannot have happened"),
        ([header_line(HEADER), Scribe(1).line([Tick(1.0, "?")])], "log:2: turn 2 follows turn 0"),
        ([header_line(replace(HEADER, gpus="3xNothing"))], "Nothing"),
    ],
)
def test_a_log_that_cannot_have_been_written_is_refused_in_one_sentence(lines: list[str], says: str) -> None:
    with pytest.raises(InputError) as refused:
        recover(lines, "log", lambda _, cluster: Counting(cluster))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


# ---- changes of memory -------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_change_leads_from_one_memory_to_the_other(before: Any, after: Any) -> None:
    reached = changed(before, difference(before, after))
    assert (repr_of(reached), difference(after, after)) == (repr_of(after), None)


def repr_of(value: Any) -> str:
    """As JSON would print it, whatever the order of keys: 1, 1.0 and True are three."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{key!r}:{repr_of(inner)}" for key, inner in value.items())) + "}"
    return "[" + ",".join(map(repr_of, value)) + "]" if isinstance(value, list) else repr(value)


def test_little_is_written_when_little_has_changed() -> None:
    jobs = {f"job {n}": [n, 1.5] for n in range(1000)}
    change = difference({"jobs": jobs, "last_s": 1.0}, {"jobs": jobs | {"job 7": [7, 2.5]}, "last_s": 1.0})
    assert change == {"in": {"jobs": {"in": {"job 7": {"is": [7, 2.5]}}}}}
