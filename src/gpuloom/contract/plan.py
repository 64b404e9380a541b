"""What a policy says: who gets what, how GPUs are cut, who is probed, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuloom.gpus.grant import Grants
from gpuloom.gpus.model import Layout


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one thing was decided, for `gpuloom explain`."""

    subject: str
    """The job it is about."""
    chosen: str
    why: str
    value: float | None = None
    """The score of the chosen option, in the unit that `why` names."""
    alternatives: tuple[tuple[str, float | None], ...] = ()
    """Other options with their scores."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What should be. What it does not mention stays as it is, so a decision on one GPU of thousands stays small."""

    layouts: Mapping[int, Layout] = field(default_factory=dict)
    """The new layout of each GPU that is to be cut differently."""
    grants: Mapping[str, Grants] = field(default_factory=dict)
    """The new grants of each job that is to be placed, moved or, with (), paused."""
    reasons: tuple[Reason, ...] = ()
    probes: tuple[int, ...] = ()
    """GPUs whose tenants, once they all run, are to be measured under MPS; `JobView.estimates` is what comes of it."""


NO_CHANGE = Plan()
