"""What each event makes of a job in each phase, as one table."""

from enum import Enum, auto

from gpuloom.contract.view import Phase
from gpuloom.engine.events import (
    JobCancelled,
    JobCompleted,
    JobCrashed,
    JobDisplaced,
    JobRescaled,
    JobStarted,
    JobStopped,
    RescaleFailed,
)


class _Ends(Enum):
    ENDED = auto()


ENDED = _Ends.ENDED
JobEvent = (
    JobStarted | JobStopped | JobRescaled | RescaleFailed | JobCompleted | JobCrashed | JobDisplaced | JobCancelled
)

TRANSITIONS: dict[tuple[Phase, type[JobEvent]], Phase | _Ends] = {
    (Phase.STARTING, JobStarted): Phase.RUNNING,
    (Phase.STOPPING, JobStarted): Phase.STOPPING,  # it came up just before it was told to stop
    (Phase.STOPPING, JobStopped): Phase.WAITING,
    (Phase.RUNNING, JobRescaled): Phase.RUNNING,
    (Phase.STOPPING, JobRescaled): Phase.STOPPING,  # it had begun just before it was told to stop
    (Phase.RUNNING, RescaleFailed): Phase.STOPPING,
    (Phase.STOPPING, RescaleFailed): Phase.STOPPING,
    (Phase.STARTING, JobCompleted): ENDED,
    (Phase.RUNNING, JobCompleted): ENDED,
    (Phase.STOPPING, JobCompleted): ENDED,
    (Phase.STARTING, JobCrashed): Phase.WAITING,
    (Phase.RUNNING, JobCrashed): Phase.WAITING,
    (Phase.STOPPING, JobCrashed): Phase.WAITING,
    (Phase.STARTING, JobDisplaced): Phase.WAITING,
    (Phase.RUNNING, JobDisplaced): Phase.WAITING,
    (Phase.STOPPING, JobDisplaced): Phase.WAITING,
    (Phase.WAITING, JobCancelled): ENDED,
    (Phase.STARTING, JobCancelled): Phase.STOPPING,
    (Phase.RUNNING, JobCancelled): Phase.STOPPING,
    (Phase.STOPPING, JobCancelled): Phase.STOPPING,
}
"""A pair that is not here cannot happen and is refused."""
