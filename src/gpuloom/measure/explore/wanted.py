"""What somebody wants to know without running everything, and how much he would run for it: words, and what they mean.

Pure, and light to import: what a goal costs is `goals`'.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from gpuloom.work import units
from gpuloom.work.source import shown

ACCEPTED = "one-copy, most-work, 'deadline 20000 in 3h', 'least-speed 5', set or 'set small,small,large'"
_DEADLINE = re.compile(r"\s*(\d{1,15})\s+in\s+(\S+)\s*", re.ASCII)


LEAST_SPEED, MOST_SPEED = 1e-12, 1e18
"""Steps a second that anybody could have measured."""
Effort = tuple[float, int | None]
"""Per cent of a run in each place, and a number of runs of each workload, which goes before it."""


class Aim(StrEnum):
    ONE_COPY = "one-copy"
    MOST_WORK = "most-work"
    DEADLINE = "deadline"
    LEAST_SPEED = "least-speed"
    SET = "set"


@dataclass(frozen=True, slots=True)
class Wanted:
    aim: Aim
    step_ms: float | None = None
    """Of a deadline and a least speed: a step may take so long."""
    together: tuple[str, ...] = ()
    """Of a set: who shares the device, one workload several times perhaps; none: every workload once."""
    words: str = ""
    """As they are typed."""


@dataclass(frozen=True, slots=True)
class Exploring:
    """Not every run is made, but those that an answer needs most."""

    wanted: Wanted
    runs_pct: float = 100.0
    """Of a run in each place."""
    runs: int | None = None
    """Of each workload; goes before the part."""

    def most(self, places: int) -> int:
        """Runs of each workload that has so many places; one at least."""
        wished = int(places * self.runs_pct / 100 + 1e-9) if self.runs is None else self.runs
        return max(1, min(wished, places))


def read_wanted(value: object) -> Wanted:
    """ValueError with the end of a sentence."""
    aim, _, rest = value.strip().partition(" ") if isinstance(value, str) else ("", "", "")
    words, rest = " ".join(f"{value}".split()), rest.strip()
    try:
        match Aim(aim):
            case Aim.ONE_COPY | Aim.MOST_WORK as plain if not rest:
                return Wanted(plain, words=words)
            case Aim.DEADLINE if (asked := read_deadline(rest)) is not None:
                steps, seconds = asked
                return Wanted(Aim.DEADLINE, seconds * 1e3 / steps, words=words)
            case Aim.LEAST_SPEED if can_be_speed(float(rest)):
                return Wanted(Aim.LEAST_SPEED, 1e3 / float(rest), words=words)
            case Aim.SET if all(names := tuple(name.strip() for name in rest.split(","))) or not rest:
                return Wanted(Aim.SET, together=names if rest else (), words=words)
    except ValueError:
        pass
    raise ValueError(f"is {shown(value)}, but must be {ACCEPTED}")


def can_be_speed(steps_per_s: float) -> bool:
    return LEAST_SPEED <= steps_per_s <= MOST_SPEED


def read_deadline(text: str) -> tuple[int, float] | None:
    """Steps and seconds of `20000 in 3h`; None if it is not written so."""
    match = _DEADLINE.fullmatch(text)
    try:
        found = (int(match[1]), units.seconds(match[2])) if match else (0, 0.0)
    except ValueError:
        return None
    return found if found[0] > 0 and found[1] > 0 else None


def read_runs(value: object) -> Effort:
    """Per cent of all runs, or a number of them: `40%`, `2`. ValueError with the end of a sentence."""
    match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*(%?)\s*", f"{value}", re.ASCII)
    if match is not None and match[2] and 0 < float(match[1]) <= 100:
        return float(match[1]), None
    if match is not None and not match[2] and match[1].isdigit() and int(match[1]) > 0:
        return 100.0, int(match[1])
    raise ValueError(f"is {shown(value)}, but must be a part of all runs such as 40%, or a number of them such as 2")
