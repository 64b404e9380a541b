"""From what was seen of the copies of a run to its rows: how each ended, and its figures where it was fine. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuloom.measure.arrangement import Arrangement
from gpuloom.measure.campaign.last_words import NO_MEMORY, lack_of_memory
from gpuloom.measure.campaign.order import Next
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.steps import (
    LEAST_STEPS,
    Heard,
    Stillness,
    Stretch,
    Window,
    as_seen,
    is_misclocked,
    still,
    stretch,
    window,
)


@dataclass(frozen=True, slots=True)
class Ended:
    """It ended without having been asked to."""

    code: int | None
    """None: its keeper was killed with it."""
    at_s: float
    killed_for_memory: bool = False
    """By the kernel, for want of main memory, which is a CPU device's."""
    last_words: str = ""
    """The end of its output, errors last."""


@dataclass(slots=True)
class Seen:
    """One copy, as far as it was seen."""

    heard: list[Heard] = field(default_factory=list)
    back: tuple[int, int] | None = None
    ended: Ended | None = None
    waited: bool = False
    """All patience for its first step was spent."""
    deaf: bool = False
    """It had to be killed after it had been asked to stop."""
    refused: str | None = None
    """What a server answered instead of what it was asked for."""
    odd: str | None = None
    """What it told instead of a step."""
    misclocked: bool = False
    """Its own times were wrong, so those count at which its steps were seen."""


def by_the_right_clock(seen: Seen) -> Seen:
    return replace(seen, heard=as_seen(seen.heard), misclocked=True) if is_misclocked(seen.heard) else seen


def is_over(seen: Seen) -> bool:
    """Whether nothing more is to be had from a run with this copy."""
    return seen.ended is not None or seen.back is not None or seen.refused is not None


def window_of(copies: Sequence[Seen], stopped_s: float) -> Window | None:
    """Up to the last report of the first copy that ended by itself, or did no more, else up to when all were asked to
    stop: afterwards the others had more room."""
    over = [seen.ended is not None or stillness(seen, stopped_s) is not None for seen in copies]
    ends = [seen.heard[-1].at_s for seen, gone in zip(copies, over, strict=True) if gone and seen.heard]
    return window([seen.heard for seen in copies], min([stopped_s, *ends]))


def stillness(seen: Seen, stopped_s: float) -> Stillness | None:
    """Of a copy that was there to the end."""
    return None if is_over(seen) else still(seen.heard, stopped_s)


def judge(
    chosen: Next,
    copies: Sequence[Seen],
    within: Window | None,
    stopped_s: float,
    patience_s: float,
    late_s: Sequence[float],
) -> list[Copy]:
    """Rows without what counters say. `late_s`: how late each copy's times may be."""
    found = [stretch(seen.heard, within, late) for seen, late in zip(copies, late_s, strict=True)]
    failed = [
        _failure(seen, one, patience_s) or _stall(stillness(seen, stopped_s))
        for seen, one in zip(copies, found, strict=True)
    ]
    first = next((at for at, failure in enumerate(failed) if failure is not None), None)
    rows = []
    for at, (seen, one, failure) in enumerate(zip(copies, found, failed, strict=True)):
        row = _row(chosen, at)
        if failure is not None:
            rows.append(replace(row, outcome=failure[0], said=failure[1]))
        elif one is None:
            rows.append(replace(row, outcome=Outcome.TOO_FEW, said=_why_too_few(seen, first, failed)))
        else:
            rows.append(_with_steps(replace(row, said="; ".join(_remarks(seen)) or None), one))
    return rows


def _row(chosen: Next, at: int) -> Copy:
    arrangement: Arrangement = chosen.arrangement
    seat, copies = arrangement.seats[at], len(arrangement.seats)
    return Copy(
        chosen.number, arrangement.name, arrangement.way, copies, at, chosen.repetition, seat, outcome=Outcome.OK
    )


def _with_steps(row: Copy, one: Stretch) -> Copy:
    return replace(
        row,
        warm_up_steps=one.before,
        steps=one.steps,
        seconds=one.seconds,
        step_ms=one.step_ms,
        step_p50_ms=one.p50_ms,
        step_p95_ms=one.p95_ms,
        step_p99_ms=one.p99_ms,
    )


def _failure(seen: Seen, one: Stretch | None, patience_s: float) -> tuple[Outcome, str] | None:
    """What went wrong with this very copy, and in which words; None if nothing did, or too little is known of it."""
    ended, last = seen.ended, seen.heard[-1].step if seen.heard else None
    if ended is not None and ended.code != 0:
        return _crash(ended, last)
    if seen.refused is not None:
        no_memory = NO_MEMORY.search(seen.refused) is not None
        return (Outcome.OUT_OF_MEMORY if no_memory else Outcome.CRASHED), _quoted(seen.refused)
    if seen.back is not None:
        before, after = seen.back
        return Outcome.BACKWARDS, (
            f"it told step {after} after step {before}: if its count begins anew with every epoch, count matches "
            "instead (an expression without a group)"
        )
    if ended is not None and one is None and last:
        said = f"it ended by itself after step {last}, before there were enough steps: let it run longer"
        return Outcome.ENDED_EARLY, said
    if not has_stepped(seen) and (seen.waited or ended is not None):
        return Outcome.SILENT, _silence(seen, patience_s)
    return None


def _remarks(seen: Seen) -> Iterator[str]:
    """Of somebody who was fine."""
    if seen.misclocked:
        yield "by the times that it told its steps took less than a tenth of what was seen, so what was seen counts"
    if seen.deaf:
        yield "it did not end when it was asked to, and was killed"


def _stall(quiet: Stillness | None) -> tuple[Outcome, str] | None:
    if quiet is None:
        return None
    before = f"none before had taken more than {quiet.slowest_s:.3g} s"
    return Outcome.STALLED, f"it did no step for the last {quiet.silent_s:.3g} s of the run, and {before}"


def has_stepped(seen: Seen) -> bool:
    """Where it began is not a step."""
    return len(seen.heard) > 1


def _crash(ended: Ended, last: int | None) -> tuple[Outcome, str]:
    when = "before its first step" if not last else f"after step {last}"
    if ended.killed_for_memory:
        return Outcome.OUT_OF_MEMORY, f"the kernel killed it {when} for want of memory"
    no_memory = lack_of_memory(ended.last_words)
    if no_memory is not None:
        return Outcome.OUT_OF_MEMORY, f"it ended {when} (exit code {ended.code}) and said {_quoted(no_memory)}"
    words = _quoted(next((line for line in reversed(ended.last_words.splitlines()) if line.strip()), ""))
    said = f", its last words: {words}" if words else ", and said nothing"
    if ended.code is None:
        return Outcome.CRASHED, f"its processes were killed {when}{said}"
    if ended.code < 0:
        return Outcome.CRASHED, f"it was ended by signal {-ended.code} {when}{said}"
    return Outcome.CRASHED, f"it ended {when} with exit code {ended.code}{said}"


def _silence(seen: Seen, patience_s: float) -> str:
    told = f"told step {seen.heard[0].step} and no other" if seen.heard else "told no step"
    if seen.ended is not None:
        return (
            f"it ended by itself with exit code 0 and {told}; a command that goes on in the background is ended with "
            "its first process: have it stay in the foreground"
        )
    if seen.odd is not None:
        return f"it {told} within {patience_s:g} s, but {seen.odd}: a step is a whole number from 0 to 10^15"
    return f"it {told} within {patience_s:g} s: see how steps are told, or have more patience"


def _why_too_few(seen: Seen, first: int | None, failed: Sequence[tuple[Outcome, str] | None]) -> str:
    if first is not None and (failure := failed[first]) is not None:
        return f"copy {first} failed beside it ({failure[0]}), so there is no time in which all of them were steady"
    if not has_stepped(seen):
        return "it had not begun to step when another copy ended the run"
    steps = seen.heard[-1].step - seen.heard[0].step if seen.heard else 0
    return f"{steps} steps, of which not {LEAST_STEPS} while all copies were steady: give it more seconds"


def _quoted(line: str) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in line.strip())
    return f"{text[:157]}..." if len(text) > 160 else text
