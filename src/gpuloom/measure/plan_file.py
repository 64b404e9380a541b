"""The YAML plan of a campaign as pydantic models, and what it becomes: a `Plan` (reference: docs/measure.md).

Whatever is wrong is one sentence with the file, the line, the field and what would be accepted. Imported only when a
file is read. What depends on the device (profiles, layouts) is checked when that is known, by `plan`.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from gpuloom.errors import InputError
from gpuloom.gpus.grant import MOST_SHARERS
from gpuloom.measure.explore.wanted import ACCEPTED, Aim, Effort, Exploring, Wanted, read_runs, read_wanted
from gpuloom.measure.plan import LEAST_SHARE_PCT, Bounds, Plan, Repeats, Telling, Ways, Workload
from gpuloom.work.document import Document
from gpuloom.work.schema import Command, Entry, Length, Memory, Name
from gpuloom.work.source import FileOwner, check_id, read_owned_text, shown
from gpuloom.work.validated import validated

_EXPECTED = "a plan of measurements (YAML with 'workloads:')"
MOST_STEPS, MOST_RUNS = 10_000_000, 1000
MOST_TEXT_BYTES = (128 << 10) - 1
"""Of one word of a command, or of a variable with its name: Linux hands nothing longer to a program."""
USUAL_PCT = 40.0
"""Of all runs, where somebody says what for and neither how many nor how long."""
NAME = re.compile(r"[^()+,\n]{1,100}")
"""Of a workload: what layouts and sets are written with would be read wrongly."""


def check_expression(value: object) -> str:
    accepted = r"a regular expression such as 'step (\d+)', with one group for the number, or none to count matches"
    if not isinstance(value, str) or not 0 < len(value) <= 1000:
        raise ValueError(f"is {shown(value)}, but must be {accepted}")
    try:
        groups = re.compile(value).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is {shown(value)}, which is no regular expression ({error}): expected {accepted}") from None
    if groups > 1:
        raise ValueError(f"is {shown(value)}, which has {groups} groups: expected {accepted}")
    return value


def check_file(value: object) -> str:
    accepted = "a file below the copy's own folder ($GPULOOM_CHECKPOINT_DIR) such as progress.json"
    if not isinstance(value, str) or not 0 < len(value) <= 1000 or "\0" in value:
        raise ValueError(f"is {shown(value)}, but must be {accepted}")
    path = Path(value)
    if path.is_absolute() or ".." in path.parts or path == Path():
        raise ValueError(f"is {shown(value)}, but must be {accepted}: copies must not write to the same file")
    return value


def check_name(value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value) or not value.isprintable() or value != value.strip():
        raise ValueError(
            f"is {shown(value)}, but must be a text of 1 to 100 characters, no brackets, no plus signs, no commas"
        )
    return value


def _environment(value: object) -> dict[str, str]:
    accepted = "a mapping of variables to texts such as BATCH: '64'"
    if not isinstance(value, dict) or not all(isinstance(part, str) for item in value.items() for part in item):
        raise ValueError(f"is {shown(value)}, but must be {accepted} (numbers in quotes)")
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in text:
            raise ValueError(f"has {shown(name)}, but must be {accepted}")
        if name.startswith("GPULOOM_"):
            raise ValueError(f"has {shown(name)}, which gpuloom sets itself: expected another name")
    return value


_STRING = {"type": "string"}
Share = Annotated[float, Field(ge=LEAST_SHARE_PCT, lt=100)]
Copies = Annotated[int, Field(ge=2, le=MOST_SHARERS)]


class WorkloadEntry(Entry):
    """One workload: what each copy of it runs."""

    name: Annotated[str, BeforeValidator(check_name), WithJsonSchema(_STRING)]
    command: Command
    memory: Memory | None = None
    output: Annotated[str, BeforeValidator(check_expression), WithJsonSchema(_STRING)] | None = Field(
        None, description="Steps are matches of this regular expression in its output"
    )
    progress_file: Annotated[str, BeforeValidator(check_file), WithJsonSchema(_STRING)] | None = Field(
        None, description="Steps are in this file, below $GPULOOM_CHECKPOINT_DIR"
    )
    env: Annotated[dict[str, str], BeforeValidator(_environment)] = Field(default_factory=dict)


class PlanFile(Entry):
    """A plan of measurements."""

    workloads: list[WorkloadEntry] = Field(min_length=1)
    ways: list[Annotated[Ways, Field(strict=False)]] | None = Field(None, description="All if absent; with for: alone")
    profiles: list[Name] | None = Field(None, min_length=1, description="Of the device; all base profiles if absent")
    shares: list[Share] | None = Field(None, min_length=1, description="In per cent")
    together: list[Copies] | None = Field(None, min_length=1, description="Numbers of copies")
    layouts: list[Name] = Field(default_factory=list, description="Such as 3g.20gb (big) + 2 x 2g.10gb (small)")
    steps: int = Field(Bounds().steps, ge=1, le=MOST_STEPS, description="That end a run")
    seconds: Length = Bounds().seconds
    patience: Length = Bounds().patience_s
    grace: Length = Bounds().grace_s
    repeat: int = Field(Repeats().least, ge=1, le=MOST_RUNS, description="Runs of an arrangement, at least")
    most: int | None = Field(None, ge=1, le=MOST_RUNS, description="And at most")
    within: float = Field(Repeats().within_pct, gt=0, le=100, description="Per cent that an interval may have")
    seed: int = Field(0, ge=0, le=2**32 - 1)
    budget: Length | None = None
    wanted: Annotated[Wanted, BeforeValidator(read_wanted), WithJsonSchema(_STRING)] | None = Field(
        None, alias="for", description=f"Only the runs that this needs most: {ACCEPTED}"
    )
    runs: Annotated[Effort, BeforeValidator(read_runs), WithJsonSchema({"type": ["string", "integer"]})] | None = Field(
        None, description="With for: so many of each workload, or such a part, as 40%"
    )


def read_plan(path: Path) -> tuple[Plan, FileOwner]:
    """A plan, and whose file it is: as root, its commands are run in its owner's name."""
    text, owner = read_owned_text(Path(path), _EXPECTED)
    document = Document(Path(path), text, _EXPECTED)
    plan = validated(document, PlanFile)
    names: set[str] = set()
    for at, entry in enumerate(plan.workloads):
        check_id(entry.name, document.where("workloads", at, "name"), names, "workload")
    workloads = tuple(_workload(document, at, entry) for at, entry in enumerate(plan.workloads))
    ways = plan.ways if plan.ways is not None else [Ways.ALONE] if plan.wanted is not None else list(Ways)
    if not ways and not plan.layouts:
        raise InputError(f"{document.where('ways')} is empty, and there are no layouts: nothing would be measured")
    for way, field in ((Ways.SHARES, "shares"), (Ways.TOGETHER, "together")):
        if getattr(plan, field) is not None and way not in ways:
            raise InputError(f"{document.where(field)} is given, but ways does not have {way}: add it there")
    made = Plan(
        workloads,
        tuple(way for way in Ways if way in ways),
        _tuple(plan.profiles),
        None if plan.shares is None else tuple(map(float, plan.shares)),
        _tuple(plan.together),
        tuple(plan.layouts),
        Bounds(plan.steps, plan.seconds, plan.patience, plan.grace),
        Repeats(plan.repeat, max(plan.repeat, Repeats().most) if plan.most is None else plan.most, plan.within),
        plan.seed,
        plan.budget,
        exploring(plan.wanted, plan.runs, plan.budget is not None, document.where("runs")),
    )
    if plan.wanted is not None:
        for field in ("repeat", "most", "within"):
            if field in plan.model_fields_set:
                raise InputError(f"{document.where(field)} is given, and for: with it every place is run once at most")
    return checked(made, document.where("most"), document.where("for")), owner


def exploring(wanted: Wanted | None, runs: Effort | None, has_budget: bool, where: str) -> Exploring | None:
    """`where`: how the number of runs is called there."""
    if wanted is None and runs is not None:
        raise InputError(f"{where} is given, but not what for: expected it with for, such as most-work")
    if wanted is None:
        return None
    pct, count = runs or (100.0 if has_budget else USUAL_PCT, None)
    return Exploring(wanted, pct, count)


def checked(plan: Plan, where: str, goal: str) -> Plan:
    """`where`: how the most repetitions are called there, `goal`: what they are run for."""
    if plan.repeats.most < plan.repeats.least:
        raise InputError(f"{where} is {plan.repeats.most}, but must be {plan.repeats.least} or more, as repeat is")
    if plan.exploring is not None:
        _check_exploring(plan, plan.exploring.wanted, goal)
    return replace(plan, profiles=None if plan.profiles is None else tuple(dict.fromkeys(plan.profiles)))


def _check_exploring(plan: Plan, wanted: Wanted, where: str) -> None:
    """One copy is run in each place, so only ways with single copies go with it."""
    of_many = wanted.aim in (Aim.MOST_WORK, Aim.SET)  # nobody can say from one copy how several slow each other down
    accepted = (Ways.ALONE,) if of_many else (Ways.ALONE, Ways.SHARES)
    odd = [way for way in plan.ways if way not in accepted]
    if odd or plan.layouts:
        what = f"ways has {odd[0]}" if odd else "there are layouts"
        raise InputError(f"{where} {wanted.words}: {what}, but the only ways that go with it are {', '.join(accepted)}")
    names = [workload.name for workload in plan.workloads]
    stranger = next((name for name in wanted.together if name not in names), None)
    if stranger is not None:
        raise InputError(
            f"{where} {wanted.words}: {stranger!r} is no workload of the plan; accepted: {', '.join(names)}"
        )


def _workload(document: Document, at: int, entry: WorkloadEntry) -> Workload:
    if entry.output is not None and entry.progress_file is not None:
        raise InputError(
            f"{document.where('workloads', at, 'progress_file')} is given, and output too: steps are told in one way"
        )
    _check_texts(entry.command, document.where("workloads", at, "command"))
    for name, text in entry.env.items():
        _check_texts((f"{name}={text}",), document.where("workloads", at, "env", name))
    telling = Telling.OUTPUT if entry.output else Telling.FILE if entry.progress_file else Telling.REPORT
    where = entry.output or entry.progress_file or ""
    return Workload(entry.name, entry.command, entry.memory, telling, where, tuple(sorted(entry.env.items())))


def _check_texts(texts: Iterable[str], where: str) -> None:
    longest = max(len(text.encode(errors="surrogatepass")) for text in texts)
    if longest > MOST_TEXT_BYTES:
        raise InputError(
            f"{where} has a text of {longest:,} bytes, which cannot be handed to a program: accepted are"
            f" {MOST_TEXT_BYTES:,} at most"
        )


def _tuple(values: Any) -> Any:
    return None if values is None else tuple(values)


def json_schema() -> dict[str, Any]:
    schema = PlanFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
