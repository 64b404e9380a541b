"""Would it be decided the same again? Every turn of a log, with the policy asked anew; the answers compared as bytes.

A difference means that the policy is another one than it was, or that it is not deterministic. Recovery does not ask.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from gpuloom.engine.events import PolicyReset
from gpuloom.engine.log import Turn, read_turns, text_of
from gpuloom.engine.machine import Engine, IllegalEvent
from gpuloom.engine.memory import changed, recall
from gpuloom.engine.recovery import MakePolicy
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Difference:
    """The first turn that would come out otherwise."""

    turn: int
    at_s: float
    what: str
    """decision, or memory."""
    logged: str
    """As JSON; null if there was none."""
    now: str


@dataclass(frozen=True, slots=True)
class Audit:
    engine: Engine
    """As the policy, asked again, has left it."""
    turns: int
    decisions: int
    difference: Difference | None


def audit(lines: Iterable[str], name: str, policy_of: MakePolicy, cluster: Cluster | None = None) -> Audit:
    """Ask again up to the first difference."""
    header, turns = read_turns(lines, name)
    if cluster is None or header.cluster:
        cluster = header.begins_on()
    engine = Engine(cluster, policy_of(header, cluster), costs=header.costs, freezes=header.freezes)
    count = decisions = 0
    memory: object = None
    for turn in turns:
        if any(isinstance(event, PolicyReset) for event in turn.events):
            engine.policy, memory = policy_of(header, cluster), None
        _again(engine, turn, name)
        count, decisions = turn.number, decisions + (turn.decision is not None)
        found = _compare(turn, "decision", text_of(turn.decision), text_of(engine.decision), engine)
        if found is None and turn.memory is not None:
            memory = changed(memory, turn.memory)
            found = _compare(turn, "memory", _sorted(memory), _sorted(recall(engine.policy)), engine)
        if found is not None:
            return Audit(engine, count, decisions, found)
    return Audit(engine, count, decisions, None)


def _again(engine: Engine, turn: Turn, name: str) -> None:
    try:
        engine.turn(turn.events)
    except IllegalEvent as error:
        raise InputError(f"{name}: turn {turn.number} cannot have happened after those before it: {error}") from None


def _compare(turn: Turn, what: str, logged: str, now: str, engine: Engine) -> Difference | None:
    return None if logged == now else Difference(turn.number, engine.state.now_s, what, logged, now)


def _sorted(memory: object) -> str:
    return json.dumps(memory, sort_keys=True, separators=(",", ":"))
