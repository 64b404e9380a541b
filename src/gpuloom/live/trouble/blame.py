"""Whose fault it was that a job failed: its own, or its device's. A job is only charged with what it did itself.

What a device says of itself counts first, and then what is said of how it is shared. Beyond that a device on which jobs
fail, one after the other, without a step of anybody in between, is under suspicion while others work elsewhere. But a
program that is broken is so everywhere: who has failed on two devices is charged, and so is who is let down again and
again and gets no further.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from gpuloom.gpus.grant import Grants
from gpuloom.live.devices import Devices

MOST_FORGIVEN = 2
"""So often a job is not charged for a mere suspicion: else one that always fails would never be given up."""
MOST_LET_DOWN = 3
"""So often in a row sharing may break on a device before nobody is put there for a while."""
MOST_STUCK = 5
"""So often a job may be let down without getting further than it ever was, unless its device was lost or taken away: a
program cannot cause that, but it can break what it shares with others.
"""


class Then(Enum):
    """What becomes of the device."""

    STAYS = auto()
    HAS_LESS = auto()
    """Somebody has taken away what was cut: it is looked at again at once."""
    IS_CLOSED = auto()
    IS_LOST = auto()


@dataclass(frozen=True, slots=True)
class Blamed:
    gpu: int
    why: str
    then: Then


class Blame:
    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._failed: dict[int, list[str]] = {}
        """Who failed on each device since anybody made a step there, in order."""
        self._failed_on: dict[str, set[int]] = {}
        """Where each job has failed since it made a step."""
        self._broke: Counter[int] = Counter()
        """How often sharing broke on each device since then."""
        self._forgiven: Counter[str] = Counter()
        self._furthest: dict[str, int] = {}
        """The last step of each job."""
        self._stuck: Counter[str] = Counter()
        """How often each was let down since it got that far."""
        self._moves = 0
        """How often anybody made a step anywhere."""
        self._moves_then: dict[int, int] = {}
        """The same, when the first of those who failed on a device did."""
        self.cleared: set[int] = set()
        """Devices that were under suspicion, and are not any more."""

    def worked(self, job_id: str, grants: Grants, step: int) -> None:
        """It made a step there."""
        self._moves += 1
        self._failed_on.pop(job_id, None)
        if step > self._furthest.get(job_id, 0):
            self._furthest[job_id] = step
            self._stuck.pop(job_id, None)
        for grant in grants:
            self._failed.pop(grant.gpu, None)
            self._broke.pop(grant.gpu, None)

    def forgives(self, job_id: str, blamed: Blamed) -> bool:
        """Whether it is not charged with what its device is to blame for."""
        if blamed.then in (Then.IS_LOST, Then.HAS_LESS):
            return True
        self._stuck[job_id] += 1
        return self._stuck[job_id] <= MOST_STUCK

    def of_device(self, gpus: Iterable[int]) -> Blamed | None:
        for gpu in sorted(gpus):
            trouble = self._devices.trouble(gpu)
            if trouble is not None:
                return Blamed(gpu, trouble.why, Then.IS_LOST if trouble.is_gone else Then.IS_CLOSED)
        return None

    def of_sharing(self, gpu: int, why: str) -> Blamed:
        self._broke[gpu] += 1
        return Blamed(gpu, why, Then.IS_CLOSED if self._broke[gpu] >= MOST_LET_DOWN else Then.STAYS)

    def of_suspicion(self, job_id: str, grants: Grants) -> Blamed | None:
        """Neither device nor sharing says anything."""
        if len(grants) != 1:
            return None
        gpu = grants[0].gpu
        failed, failed_on = self._failed.setdefault(gpu, []), self._failed_on.setdefault(job_id, set())
        if not failed:
            self._moves_then[gpu] = self._moves
        failed.append(job_id)
        failed_on.add(gpu)
        if len(failed_on) > 1:
            self._clear(job_id, failed_on)
            return None
        others_work = self._moves > self._moves_then[gpu]
        if len(failed) < 2 or not others_work or self._forgiven[job_id] >= MOST_FORGIVEN:
            return None
        self._forgiven[job_id] += 1
        who = ", ".join(dict.fromkeys(failed[-3:]))
        why = f"{who} failed on it, {len(failed)} times in a row, while others work elsewhere"
        return Blamed(gpu, why, Then.IS_CLOSED)

    def _clear(self, job_id: str, gpus: set[int]) -> None:
        """It has failed on all of these, so it says nothing about any of them."""
        for gpu in gpus:
            self._failed[gpu] = [other for other in self._failed.get(gpu, []) if other != job_id]
            if not self._failed[gpu]:
                self.cleared.add(gpu)
