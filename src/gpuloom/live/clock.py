"""The engine's seconds on a real clock. A pace of 100 makes a hundred of them pass in one, for tests and rehearsals."""

import time


class Clock:
    def __init__(self, origin_unix_s: float, pace: float = 1.0, not_before_s: float = 0.0) -> None:
        """Time since the run began, wherever it was interrupted; never before what the log already holds."""
        self.pace = pace
        self._begin_s = max((time.time() - origin_unix_s) * pace, not_before_s)
        # From here on the monotonic clock: somebody setting the date must not bring the past back.
        self._begin_real_s = time.monotonic()

    def now_s(self) -> float:
        return self._begin_s + (time.monotonic() - self._begin_real_s) * self.pace
