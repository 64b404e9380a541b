"""What a policy is: made once from (cluster, seed, argument), then asked `decide(view) -> Plan`.

The same views in the same order with the same seed must give the same plans: an audit of a log asks again and compares.

It may remember. A run that was killed goes on from its log without asking again, so a policy that remembers says what
(`remember`) and takes it back (`restore`).

GPUs may join and leave. What follows from the cluster is taken from the view of the moment, or rebuilt when
`view.cluster` is another object than it was. Its indices stay: a GPU that joins is the last one, and one that leaves
stays in it and is lost for good.
"""

from dataclasses import dataclass
from typing import Protocol

from gpuloom.contract.plan import Plan
from gpuloom.contract.view import View
from gpuloom.gpus.cluster import Cluster


@dataclass(frozen=True, slots=True)
class When:
    """When a policy wants to be asked: after every event that matters, or every so many seconds, or both."""

    every_s: float | None = None
    """None: after events only."""
    on_events: bool = False
    """After events too, where there are rounds."""
    only_if_changed: bool = False
    """Skip a round if nothing that matters has happened since the last one."""
    on_reports: bool = False
    """What jobs report matters too."""


ON_EVENTS = When()


class Policy(Protocol):
    """The whole interface. Who inherits from it says only what differs; another class may leave out all but
    `when`, `told` and `decide`.
    """

    when: When = ON_EVENTS
    told: frozenset[str] = frozenset()
    """The fields of Hints that it is given: none, for an honest policy."""
    adaptive: bool = False
    """It counts on elastic jobs that choose their batch themselves."""
    uses_mps: bool = False
    """It lets jobs share a device; a body that cannot do that refuses it."""
    cuts: bool = False
    """It has GPUs cut; a body whose GPUs cannot be cut refuses it."""

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:
        """`arg` is what follows the colon of its name: 3,2,2 of static:3,2,2."""

    def decide(self, view: View) -> Plan: ...

    def remember(self) -> object:
        """All that its next plans depend on besides the view, as JSON can hold it: what decided so far has left behind.

        None: nothing, ever. The order of an object's keys is not kept: where order matters, use a list.
        """
        return None

    def restore(self, memory: object) -> None:  # noqa: ARG002
        """To a fresh one: what `remember` gave. From then on it decides as the other one would have.

        ValueError, KeyError or TypeError if it cannot be read, as after an upgrade: then a fresh one is used, and
        the log says so.
        """
        raise ValueError("it remembers nothing, so there is nothing to be restored")
