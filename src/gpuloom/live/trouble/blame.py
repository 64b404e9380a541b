"""Whose fault it was that a job failed: its own, or its device's. A job is only charged with what it did itself.

What a device says of itself counts first, and then what is said of how it is shared. Beyond that a device on which jobs
fail, one after the other, without a step of anybody in between, is under suspicion while others work elsewhere. But a
program that is broken is so everywhere: who has failed on two devices is charged.
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


class Then(Enum):
    """What becomes of the device."""

    STAYS = auto()
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
        self._let_down: Counter[int] = Counter()
        """How often sharing broke since then."""
        self._forgiven: Counter[str] = Counter()
        self._moves = 0
        """How often anybody made a step anywhere."""
        self._moves_then: dict[int, int] = {}
        """The same, when the first of those jobs failed."""

    def worked(self, job_id: str, grants: Grants) -> None:
        """It made a step there."""
        self._moves += 1
        self._failed_on.pop(job_id, None)
        for grant in grants:
            self._failed.pop(grant.gpu, None)
            self._let_down.pop(grant.gpu, None)

    def of_failure(self, job_id: str, grants: Grants) -> Blamed | None:
        """The device that is to blame for it; None: the job is, as far as anybody knows."""
        told = self.of_device({grant.gpu for grant in grants}) or self.of_sharing(grants)
        if told is not None or len(grants) != 1:
            return told
        gpu = grants[0].gpu
        failed, failed_on = self._failed.setdefault(gpu, []), self._failed_on.setdefault(job_id, set())
        if not failed:
            self._moves_then[gpu] = self._moves
        failed.append(job_id)
        failed_on.add(gpu)
        others_work = self._moves > self._moves_then[gpu]
        if len(failed) < 2 or not others_work or len(failed_on) > 1 or self._forgiven[job_id] >= MOST_FORGIVEN:
            return None
        self._forgiven[job_id] += 1
        who = ", ".join(dict.fromkeys(failed[-3:]))
        why = f"{who} failed on it, {len(failed)} times in a row, while others work elsewhere"
        return Blamed(gpu, why, Then.IS_CLOSED)

    def of_device(self, gpus: Iterable[int]) -> Blamed | None:
        for gpu in sorted(gpus):
            trouble = self._devices.trouble(gpu)
            if trouble is not None:
                return Blamed(gpu, trouble.why, Then.IS_LOST if trouble.is_gone else Then.IS_CLOSED)
        return None

    def of_sharing(self, grants: Grants, why: str | None = None) -> Blamed | None:
        """`why` if it is known already."""
        why = why or next(filter(None, map(self._devices.why_no_share, grants)), None)
        if why is None:
            return None
        gpu = grants[0].gpu
        self._let_down[gpu] += 1
        return Blamed(gpu, why, Then.IS_CLOSED if self._let_down[gpu] >= MOST_LET_DOWN else Then.STAYS)
