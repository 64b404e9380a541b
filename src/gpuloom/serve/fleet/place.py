"""The nouns of a fleet: what it is to be, and what is known of each replica and service. What is done is in `fleet`."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuloom.gpus.grant import Grant
from gpuloom.provision.plan import Replica
from gpuloom.serve.fleet.correct import FRESH, RULES, Health, Level, Rules, Verdict
from gpuloom.serve.fleet.shadows import Slot
from gpuloom.serve.latencies import Window
from gpuloom.serve.triton.server import Server, ServerSpec


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds of the clock, however time is dilated."""

    tick_s: float = 0.05
    correct_s: float = 0.2
    health_s: float = 1.0
    scrape_s: float = 2.0
    answer_s: float = 2.0
    """A server that does not say within this time that it is ready has not said it."""
    silences: int = 3
    """So many in a row, and it hangs: it is killed and replaced."""
    start_s: float = 60.0
    peace_s: float = 30.0
    """A crash after so long a time of readiness counts as the first."""
    grace_s: float = 10.0


TIMING = Timing()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a fleet is to be."""

    specs: Mapping[Slot, tuple[ServerSpec, ServerSpec]]
    """Planned and shadow."""
    slower: Mapping[Slot, float]
    """Times on the planned share, relative to the shadow's."""
    slo_ms: Mapping[str, float]
    dilate: float = 1.0
    standby: bool = True
    rules: Rules = RULES
    timing: Timing = TIMING


@dataclass(slots=True)
class Place:
    """One replica: its two places for a server, and what was seen of it."""

    replica: Replica
    servers: dict[Level, Server]
    window: Window
    health: Health = FRESH
    active: Server | None = None
    verdict: Verdict = Verdict.STAY

    @property
    def wanted(self) -> Server:
        return self.servers[self.health.level]

    @property
    def grant(self) -> Grant:
        """What it holds now."""
        return (self.active or self.wanted).spec.grant

    @property
    def claims(self) -> list[Grant]:
        """What nobody else may count on: what it holds and what it is to have, the larger one of a device."""
        ascending = sorted((self.grant, self.wanted.spec.grant), key=lambda grant: grant.share_pct)
        return list({grant.device: grant for grant in ascending}.values())


@dataclass(slots=True)
class Tally:
    """Of one service since the start, retried and waiting requests included."""

    window: Window
    requests: int = 0
    above: int = 0
    failed: int = 0
    """Answered with an error by the model itself."""
