"""How busy a GPU, or one instance of it, is: what a host engine of DCGM that runs already counts. For GPUs without GPM.

It may vanish, hang or tell nothing; then there are figures of the time before, or none, and nobody waits for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuloom.gpus.host.dcgm.dmon import Dmon, Row
from gpuloom.gpus.host.dcgm.engine import Engine
from gpuloom.measure.campaign.activity import Activity, mean_of
from gpuloom.measure.steps import Window

MOST = 1.05
"""A part of the time that is larger is none: DCGM is known to tell 1.29 of an instance (its issue 152)."""


@dataclass(frozen=True, slots=True)
class Pace:
    every_s: float = 0.5
    """Of the engine's samples, and of what is printed."""
    first_s: float = 3.0
    """An engine learns a second or two late of a cut (its issue 230), and would take an old instance for the new."""
    patience_s: float = 5.0
    """Without a figure; then it is asked anew."""
    again_s: float = 2.0
    asks: int = 3

    @property
    def reach_s(self) -> float:
        """So old may be what a figure is of: a sample, and then the pause in which nobody printed it."""
        return 2 * self.every_s


PACE = Pace()


@dataclass(frozen=True, slots=True)
class _Seen:
    from_s: float
    """It tells of no time before, and of none after `to_s`."""
    to_s: float
    row: Row


class Dcgm:
    def __init__(self, engine: Engine, device: str, most_s: float, pace: Pace = PACE) -> None:
        """`device`: as `dmon.device_of` names it; `most_s`: no run is longer."""
        self._engine, self._device, self._most_s, self._pace = engine, device, most_s, pace
        self._dmon: Dmon | None = None
        self._seen: list[_Seen] = []
        self._left = pace.asks
        self._ask_s: float | None = None
        """When to ask; None before the first look."""
        self._asked_s = self._heard_s = self._looked_s = 0.0

    def look(self, now_s: float) -> None:
        if self._ask_s is None:
            self._ask_s = now_s + self._pace.first_s
        if self._dmon is not None:
            self._hear(self._dmon, now_s)
        elif self._left and now_s >= self._ask_s:
            self._ask(now_s)
        self._looked_s = now_s

    def _ask(self, now_s: float) -> None:
        self._left -= 1
        self._asked_s = self._heard_s = now_s
        try:
            self._dmon = Dmon(self._engine, self._device, self._pace.every_s, self._most_s)
        except OSError:
            self._ask_s = now_s + self._pace.again_s

    def _hear(self, dmon: Dmon, now_s: float) -> None:
        ended = dmon.ended  # asked first: what it printed before is there then
        rows = [row for row in dmon.rows() if row]
        if rows:
            self._heard_s = now_s
        # Printed since the look before. An engine also shows what it kept from before it was asked: that is not ours.
        from_s = self._looked_s - self._pace.reach_s
        if from_s >= self._asked_s:
            self._seen += [_Seen(from_s, now_s, row) for row in rows]
        if ended or now_s - self._heard_s > self._pace.patience_s:
            self._let_go()
            self._ask_s = now_s + self._pace.again_s

    def figures(self, within: Window | None) -> Activity:
        if within is None:
            return Activity()
        inside = [seen.row for seen in self._seen if within.begin_s <= seen.from_s and seen.to_s <= within.end_s]
        return mean_of(_believable(inside))

    def _let_go(self) -> None:
        if self._dmon is not None:
            self._dmon.close()
            self._dmon = None

    def close(self) -> None:
        self._left = 0
        self._let_go()


def _believable(rows: Iterable[Row]) -> list[Mapping[str, float]]:
    """Without counters that were ever impossible; nothing at all if everything is 0 all the time.

    Somebody steps there, so nothing is counted then: engines that have lost the counters say 0 (DCGM's issues 16, 303).
    """
    rows = list(rows)
    if not any(value for row in rows for value in row.values()):
        return []
    odd = {name for row in rows for name, value in row.items() if not 0 <= value <= MOST}
    return [{name: min(value, 1.0) for name, value in row.items() if name not in odd} for row in rows]
