"""The nouns of a conductor: what it knows of a worker, and what it may ask for."""

from dataclasses import dataclass
from enum import Enum, auto

from gpuloom.train.elastic.settings import Seat
from gpuloom.train.elastic.wire import Message

NO_STATE = -1
"""In place of a step: this worker has nothing to go on from."""


class Phase(Enum):
    WARMING = auto()
    STANDBY = auto()
    TRAINING = auto()
    PARKED = auto()
    LEAVING = auto()


@dataclass(slots=True)
class Member:
    """One worker's process."""

    ident: int
    seat: Seat
    phase: Phase = Phase.WARMING
    step: int = NO_STATE
    """Steps that its state has seen; told whenever it parks."""
    ended: bool = False
    """It parked because training is over."""
    has_state: bool = False
    """As far as is known: it has parked with one, or been in a round that made a step."""
    crash: str | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    ident: int
    seat: Seat


@dataclass(frozen=True, slots=True)
class Tell:
    ident: int
    message: Message


@dataclass(frozen=True, slots=True)
class Kill:
    ident: int
    why: str | None = None
    """What is to be told of it."""


@dataclass(frozen=True, slots=True)
class NewStore:
    """The one by which groups meet is under suspicion: another takes its place."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What was wanted is reached, or given up: everybody who listens is told."""


@dataclass(frozen=True, slots=True)
class Finish:
    code: int
    sentence: str | None = None


Action = Fork | Tell | Kill | NewStore | Settled | Finish
