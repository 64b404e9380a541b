"""What a policy is: made once from (cluster, seed, argument), then asked `decide(view) -> Plan`.

It may remember, but the same views in the same order with the same seed must give the same plans, so that replaying a
log rebuilds what it remembered.
"""

from dataclasses import dataclass
from typing import Protocol

from gpuloom.contract.plan import Plan
from gpuloom.contract.view import View
from gpuloom.gpus.cluster import Cluster


@dataclass(frozen=True, slots=True)
class When:
    """When a policy wants to be asked: after every event that matters, or every so many seconds."""

    every_s: float | None = None
    only_if_changed: bool = False
    """Skip a round if nothing that matters has happened since the last one."""
    on_reports: bool = False
    """What jobs report matters too."""


ON_EVENTS = When()


class Policy(Protocol):
    """The whole interface. Who inherits from it says only what differs; another class may leave out the last two."""

    when: When = ON_EVENTS
    told: frozenset[str] = frozenset()
    """The fields of Hints that it is given: none, for an honest policy."""
    adaptive: bool = False
    """It counts on elastic jobs that choose their batch themselves."""
    uses_mps: bool = False
    """It lets jobs share a device; a body that cannot do that refuses it."""

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:
        """`arg` is what follows the colon of its name: 3,2,2 of static:3,2,2."""

    def decide(self, view: View) -> Plan: ...
