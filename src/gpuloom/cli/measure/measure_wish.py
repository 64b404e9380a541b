"""The words of `gpuloom measure` as a plan: a file with changes, or one command with options."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpuloom.errors import InputError
from gpuloom.gpus.grant import MOST_SHARERS
from gpuloom.measure.explore.wanted import Exploring, read_runs, read_wanted
from gpuloom.measure.plan import Bounds, Plan, Repeats, Telling, Ways, Workload, check_share
from gpuloom.measure.plan_file import check_expression, check_file, check_name, checked, exploring, read_plan
from gpuloom.work import units

PLANS = (".yaml", ".yml", ".json")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """As typed; None: not given."""

    ways: str | None = None
    profiles: str | None = None
    shares: str | None = None
    together: str | None = None
    layouts: tuple[str, ...] = ()
    mem: str | None = None
    expression: str | None = None
    own_file: str | None = None
    steps: int | None = None
    seconds: str | None = None
    patience: str | None = None
    grace: str | None = None
    repeat: int | None = None
    most: int | None = None
    within: float | None = None
    budget: str | None = None
    seed: int | None = None
    wanted: str | None = None
    runs: str | None = None
    name: str | None = None


def is_plan(words: list[str]) -> bool:
    return len(words) == 1 and words[0].endswith(PLANS)


def plan_of(words: list[str], options: Options) -> tuple[Plan, int]:
    """What is to be measured, and in whose name the commands are run."""
    if is_plan(words):
        return _from_file(Path(words[0]), options)
    if not words[0]:
        raise InputError("the command is empty: expected one such as python train.py, or a plan such as study.yaml")
    if options.expression is not None and options.own_file is not None:
        raise InputError("--progress-file goes not with --output-steps: steps are told in one way")
    telling = Telling.OUTPUT if options.expression else Telling.FILE if options.own_file else Telling.REPORT
    where = _valid(check_expression, options.expression, "--output-steps") or ""
    where = _valid(check_file, options.own_file, "--progress-file") or where
    memory = _valid(units.memory_mib, options.mem, "--mem")
    name = _valid(check_name, options.name, "--workload") or _name(words)
    workload = Workload(name, tuple(words), memory, telling, where)
    return _changed(Plan((workload,)), options), os.geteuid()


def _from_file(path: Path, options: Options) -> tuple[Plan, int]:
    from gpuloom.live.users import work_owner

    flags = {"mem": "--mem", "name": "--workload", "expression": "--output-steps", "own_file": "--progress-file"}
    for name, flag in flags.items():
        if getattr(options, name) is not None:
            raise InputError(
                f"{flag}: is of one command; in a plan each workload says it: name, memory, output, progress_file"
            )
    plan, owner = read_plan(path)
    return _changed(plan, options), work_owner(path, owner, os.geteuid())


def _name(words: list[str]) -> str:
    """What people would call it: the script's name, else the program's."""
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0])
    name = "".join(letter for letter in Path(script).stem if letter.isalnum() or letter in "-_. ")
    return name.strip()[:100] or "command"


def _changed(plan: Plan, options: Options) -> Plan:
    """The plan with what the command line says."""
    ways = listed(options.ways, "--ways", _way)
    shares = listed(options.shares, "--shares", lambda word, flag: check_share(word, f"{flag}: {word}"))
    together = listed(options.together, "--together", _copies)
    wanted = _exploring(plan, options)
    if wanted is not None and plan.exploring is None and plan.ways == tuple(Ways):
        plan = replace(plan, ways=(Ways.ALONE,))
    chosen = plan.ways if ways is None else tuple(way for way in Ways if way in ways)
    for way, flag, value in ((Ways.SHARES, "--shares", shares), (Ways.TOGETHER, "--together", together)):
        if value is not None and way not in chosen:
            raise InputError(f"{flag} is given, but the ways are {', '.join(chosen)}: add {way} to --ways")
    changed = replace(
        plan,
        ways=chosen,
        profiles=listed(options.profiles, "--profiles", lambda word, _: word) or plan.profiles,
        shares_pct=shares or plan.shares_pct,
        together=together or plan.together,
        layouts=plan.layouts + options.layouts,
        bounds=_bounds(plan.bounds, options),
        repeats=_repeats(plan.repeats, options),
        seed=plan.seed if options.seed is None else options.seed,
        budget_s=time_of(options.budget, "--budget") or plan.budget_s,
        exploring=wanted,
    )
    return checked(changed, "--most", "--for")


def _exploring(plan: Plan, options: Options) -> Exploring | None:
    """What the file says, with what the command line says."""
    before = plan.exploring
    wanted = _valid(read_wanted, options.wanted, "--for") or (None if before is None else before.wanted)
    runs = _valid(read_runs, options.runs, "--runs")
    if wanted is not None:
        for flag, value in (("--repeat", options.repeat), ("--most", options.most), ("--within", options.within)):
            if value is not None:
                raise InputError(f"{flag} goes not with --for: with it every place is run once at most")
    if runs is None and before is not None and options.budget is None:
        return replace(before, wanted=wanted or before.wanted)
    return exploring(wanted, runs, bool(options.budget or plan.budget_s), "--runs")


def _bounds(bounds: Bounds, options: Options) -> Bounds:
    return Bounds(
        options.steps or bounds.steps,
        time_of(options.seconds, "--seconds") or bounds.seconds,
        time_of(options.patience, "--patience-s") or bounds.patience_s,
        time_of(options.grace, "--grace-s") or bounds.grace_s,
    )


def _repeats(repeats: Repeats, options: Options) -> Repeats:
    least = options.repeat or repeats.least
    return Repeats(least, options.most or max(repeats.most, least), options.within or repeats.within_pct)


def listed(text: str | None, flag: str, read: Callable[[str, str], T]) -> tuple[T, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{flag} {text!r}: expected words with commas between them")
    return tuple(dict.fromkeys(read(word, flag) for word in words))


def _way(word: str, flag: str) -> Ways:
    if word not in tuple(Ways):
        raise InputError(f"{flag}: {word!r} is not one of them; accepted are {', '.join(Ways)}")
    return Ways(word)


def _copies(word: str, flag: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 4 and 2 <= int(word) <= MOST_SHARERS):
        raise InputError(f"{flag}: {word!r} is no number of copies; accepted are 2 to {MOST_SHARERS}")
    return int(word)


def time_of(text: str | None, flag: str) -> float | None:
    seconds = _valid(units.seconds, text, flag)
    if seconds == 0:
        raise InputError(f"{flag} is 0, but must be a time above 0 such as 20m")
    return seconds


def _valid(check: Callable[[object], T], text: str | None, flag: str) -> T | None:
    """What a field of a plan would be checked with."""
    try:
        return None if text is None else check(text)
    except ValueError as error:
        raise InputError(f"{flag} {error}") from None
