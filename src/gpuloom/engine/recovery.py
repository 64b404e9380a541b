"""From a log to an engine that goes on: what was decided is applied, nobody is asked, and the policy remembers again.

So neither an upgrade nor a policy that would decide otherwise today stands in the way of jobs that live. Who wants to
know whether it would decide the same asks for an `audit`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from gpuloom.contract.policy import Policy
from gpuloom.engine.events import Event, PolicyReset
from gpuloom.engine.log import Header, Turn, read_turns
from gpuloom.engine.machine import Engine, IllegalDecision, IllegalEvent
from gpuloom.engine.memory import changed, recall
from gpuloom.engine.state import State
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster

MakePolicy = Callable[[Header, Cluster], Policy]
"""A fresh policy for what the header names."""


@dataclass(frozen=True, slots=True)
class Recovered:
    engine: Engine
    header: Header
    turns: int
    """How many the log has."""
    reset: str | None
    """Why the policy remembers nothing of what it was asked, to be told as a PolicyReset; None if it remembers all."""


@dataclass(slots=True)
class _Remembered:
    """What the log says of the policy's memory, as far as it was read."""

    asked: bool = False
    memory: object = None

    def take(self, turn: Turn, *, asked: bool, name: str) -> None:
        if any(isinstance(event, PolicyReset) for event in turn.events):
            self.asked, self.memory = False, None
        self.asked |= asked
        try:
            self.memory = changed(self.memory, turn.memory)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{name}: turn {turn.number}: memory: not a change of what was remembered") from None


def recover(
    lines: Iterable[str],
    name: str,
    policy_of: MakePolicy,
    cluster: Cluster | None = None,
    on_event: Callable[[State, Event], None] = lambda *_: None,
) -> Recovered:
    """The engine as the log left it. `cluster` only where the log does not describe its GPUs: in version 1.

    `on_event` hears of each event once it is applied.
    """
    header, turns = read_turns(lines, name)
    if cluster is None or header.cluster:
        cluster = header.begins_on()
    engine = Engine(cluster, policy_of(header, cluster), costs=header.costs, freezes=header.freezes)
    remembered, last = _Remembered(), 0
    for turn in turns:
        follow(engine, turn, name, partial(on_event, engine.state))
        remembered.take(turn, asked=engine.asked, name=name)
        last = turn.number
    reset = _restore(engine.policy, remembered)
    if reset is not None:
        engine.policy = policy_of(header, cluster)  # what could not be restored may have been restored by half
    return Recovered(engine, header, last, reset)


def follow(engine: Engine, turn: Turn, name: str, on_event: Callable[[Event], None] = lambda _: None) -> None:
    """Bring an engine through a turn as it was; `on_event` hears of each event once it is applied.

    InputError, with the log's name, if that cannot have happened.
    """
    try:
        for event in turn.events:
            engine.apply(event)
            on_event(event)
        engine.follow(turn.decision)
    except (IllegalEvent, IllegalDecision) as error:
        raise InputError(f"{name}: turn {turn.number} cannot have happened after those before it: {error}") from None


def _restore(policy: Policy, remembered: _Remembered) -> str | None:
    """Give the policy back what it remembered; why that cannot be, if so."""
    if remembered.memory is None:
        lacks = remembered.asked and recall(policy) is not None
        return "the log does not have what the policy remembered" if lacks else None
    try:
        policy.restore(remembered.memory)
    except Exception as error:  # of a user's policy it may be any: jobs live, and have to be picked up
        return f"what the policy remembered cannot be read: {type(error).__name__}: {error}"
    return None
