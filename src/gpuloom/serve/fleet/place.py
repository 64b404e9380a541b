"""What is known of each replica and of each service while it is served. What is done about it is in `fleet`."""

from dataclasses import dataclass

from gpuloom.gpus.grant import Grant
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Level
from gpuloom.serve.fleet.correct import FRESH, Health, Verdict
from gpuloom.serve.latencies import Window
from gpuloom.serve.triton.server import Server


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
