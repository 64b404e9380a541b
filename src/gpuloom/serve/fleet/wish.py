"""What a fleet is to be, and how quickly it looks, waits and gives up."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuloom.gpus.grant import Grant
from gpuloom.serve.deployment import Slot
from gpuloom.serve.fleet.correct import RULES, Rules
from gpuloom.serve.triton.server import ServerSpec


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

    @property
    def grants(self) -> list[Grant]:
        """All that servers may be started with: the planned ones, then the shadows'."""
        return [pair[side].grant for side in (0, 1) for pair in self.specs.values()]
