"""What happens in a run as lines of text on standard error. Knows the words, not who asks for them."""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuloom.engine.events import Event
    from gpuloom.engine.machine import Decision


def say(text: str) -> None:
    """Whoever listened may have gone: that must not end a runner half-way."""
    with suppress(OSError):
        os.write(2, f"gpuloom: {text}\n".encode())


def is_alarming(entry: "Event | Decision") -> bool:
    """Whether it is told in a pipe as well."""
    from gpuloom.engine.events import CutFailed, GpuClosed, JobDisplaced, JobStalled, PolicyReset, RescaleFailed

    return isinstance(entry, CutFailed | GpuClosed | JobDisplaced | JobStalled | PolicyReset | RescaleFailed)


@dataclass(frozen=True, slots=True)
class Words:
    """How things of one run are told."""

    pace: float
    """Of its clock: times are told in real seconds."""
    noun: str
    """What its devices are called."""

    def line_of(self, entry: "Event | Decision") -> str | None:
        """One line an event; None for what happens all the time."""
        from gpuloom.engine.events import GpuCut, JobArrived, JobReported, Tick
        from gpuloom.engine.machine import Decision

        if isinstance(entry, Tick | JobReported | Decision):
            return None
        subject = entry.job.id if isinstance(entry, JobArrived) else getattr(entry, "job_id", None)
        about = f"{self.noun} {entry.gpu}" if hasattr(entry, "gpu") else subject or "policy"
        if isinstance(entry, GpuCut):
            about += f" {'+'.join(map(str, entry.layout)) or 'uncut'}"
        return f"{entry.at_s / self.pace:9.1f} s  {type(entry).__name__:13} {about}: {entry.cause}"
