"""`gpuloom recommend`: which slice, which share, alone or together, by what was measured."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuloom.cli.output import Output, emit, harmless, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.measure.explore.belief import Belief
    from gpuloom.measure.measured import Measured
    from gpuloom.measure.recommend import Answer
    from gpuloom.measure.set_answer import SetAnswer
    from gpuloom.measure.verdicts import Verdict

Folder = Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The state folder of gpuloom measure.")]
Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="'10000 in 2h'", help="One copy has to do so many steps in time.")
]
Least = Annotated[
    float | None, typer.Option("--least-speed", metavar="STEPS/S", help="One copy has to be at least so fast.")
]
Together = Annotated[
    str | None, typer.Option("--set", metavar="a,b,b", help="The best layout for these together, by their names.")
]
DevicesOfSet = Annotated[int, typer.Option("--devices", min=1, max=64, help="So many devices for --set.")]
Worst = Annotated[bool, typer.Option("--worst", help="For --set: spare the one that is slowed down most.")]
Report = Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page with pictures.")]


def recommend(
    folder: Folder = Path("gpuloom-measure"),
    deadline: Deadline = None,
    least_speed: Least = None,
    together: Together = None,
    devices: DevicesOfSet = 1,
    worst: Worst = False,
    report: Report = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the answers.")] = Output.table,
) -> None:
    """Say what was measured means: the best slice or share for each goal, and how sure that is.

    \b
    gpuloom recommend gpuloom-measure --report slices.html
    gpuloom recommend study --set small,small,large
    gpuloom recommend --deadline '20000 in 3h' -o json

    What each answer rests on is in docs/recommend.md. Exit code 1 means that nothing measured can be chosen.
    """
    from gpuloom.cli.inputs import check_writable
    from gpuloom.measure.explore.advise import believed_of
    from gpuloom.measure.figures import figures
    from gpuloom.measure.measured import OWN_FILES, read_measured
    from gpuloom.measure.service.profile import by_batch

    check_writable(report, read=[folder / name for name in OWN_FILES])
    asked = _asked(deadline)
    measured = read_measured(folder)
    if not measured.rows:
        typer.echo(f"{folder}: no run was over yet when it was written, so there is nothing to choose", err=True)
        raise typer.Exit(1)
    rows = by_batch(measured.rows)
    found = figures(rows)
    names = list(dict.fromkeys(figure.seat.workload for figure in found))
    beliefs = believed_of(found, measured.model, measured.places)
    told = {name: _told(found, measured, name, asked, least_speed, beliefs.get(name)) for name in names}
    chosen = None if together is None else _set(found, measured, names, together, devices, worst)
    if report is not None:
        from gpuloom.measure.page import measured_page

        text = measured_page(
            rows, measured.model, (*measured.facts, *measured.notes), measured.host_cpus, measured.places
        )
        report.write_text(text, encoding="utf-8")
    _print(told, chosen, measured, output)
    if chosen is not None and chosen.seating is None:
        raise typer.Exit(1)
    if not any(answer.choice for answers, _ in told.values() for answer in answers):
        raise typer.Exit(1)


def _asked(deadline: str | None) -> tuple[int, float] | None:
    """Steps and seconds."""
    from gpuloom.measure.explore.wanted import read_deadline

    if deadline is None:
        return None
    found = read_deadline(deadline)
    if found is None:
        raise InputError(f"--deadline {deadline!r}: expected steps and a time, such as '10000 in 2h'")
    return found


def _told(
    found: Any,
    measured: "Measured",
    name: str,
    asked: tuple[int, float] | None,
    least_speed: float | None,
    belief: "Belief | None",
) -> "tuple[list[Answer], tuple[Verdict, ...]]":
    from gpuloom.measure import recommend as answers
    from gpuloom.measure.explore.wanted import LEAST_SPEED, can_be_speed
    from gpuloom.measure.options import options
    from gpuloom.measure.verdicts import verdicts

    if least_speed is not None and not can_be_speed(least_speed):
        raise InputError(f"--least-speed is {least_speed:g}: expected steps a second above 0, {LEAST_SPEED:g} at least")
    known = options(found, measured.model, name, belief)
    told = list(answers.recommend(known, belief))
    if asked is not None:
        told.append(answers.by_deadline(known, *asked, belief))
    if least_speed is not None:
        told.append(answers.least_speed(known, least_speed, belief))
    return told, verdicts(found, measured.model, name, measured.host_cpus)


def _set(found: Any, measured: "Measured", names: list[str], together: str, devices: int, worst: bool) -> "SetAnswer":
    from gpuloom.measure.explore.advise import believed
    from gpuloom.measure.set_answer import best_for_set
    from gpuloom.measure.sets import Objective

    wanted = [word.strip() for word in together.split(",")]
    for word in wanted:
        if word not in names:
            raise InputError(f"--set {together}: {word!r} was not measured; measured were {', '.join(names) or 'none'}")
    beliefs = {name: believed(found, measured.model, name) for name in measured.places}
    objective = Objective.WORST if worst else Objective.SUM
    return best_for_set(found, measured.model, wanted, devices, objective, beliefs=beliefs)


def _print(
    told: "dict[str, tuple[list[Answer], tuple[Verdict, ...]]]",
    chosen: "SetAnswer | None",
    measured: "Measured",
    output: Output,
) -> None:
    if output is Output.json:
        workloads = {
            name: {"answers": [_row(answer) for answer in answers], "verdicts": [asdict(one) for one in said]}
            for name, (answers, said) in told.items()
        }
        print_json(
            {"workloads": workloads, "set": None if chosen is None else _set_row(chosen), "notes": list(measured.notes)}
        )
    elif output is Output.csv:
        emit([{"workload": name, **_row(answer)} for name, (answers, _) in told.items() for answer in answers], output)
    else:
        for name, (answers, said) in told.items():
            _say(name)
            for sentence in (*(answer.says for answer in answers), *(f"{one.about}: {one.says}" for one in said)):
                _say(f"  {sentence}")
        if chosen is not None:
            _say(f"{', '.join(chosen.workloads)} together\n  {chosen.says}")
            for line in _to_carry_out(_layouts(chosen), measured):
                _say(f"  {line}")
        for note in measured.notes:
            _say(note)


def _say(text: str) -> None:
    """The folder may be a stranger's."""
    typer.echo(harmless(text))


def _to_carry_out(layouts: list[str], measured: "Measured") -> list[str]:
    """A command for each device: the first is the one that was measured, the others of its host follow."""
    numbers = [measured.gpu, *(number for number in range(len(layouts)) if number != measured.gpu)][: len(layouts)]
    if not measured.devices:
        named = [["--gpu", str(number)] for number in numbers]
    else:
        words = [word for name in measured.devices * len(layouts) for word in ("--device", name)]
        named = [[*words, "--gpu", str(number)] if len(layouts) > 1 else words for number in range(len(layouts))]
    start = ["gpuloom", "layout", "apply"]
    return [shlex.join([*start, *words, "--to", to]) for words, to in zip(named, layouts, strict=True)]


def _row(answer: "Answer") -> dict[str, object]:
    value = answer.value
    return {
        "goal": answer.goal,
        "choice": answer.choice and answer.choice.name,
        "value": value and value.value,
        "low": value and value.low,
        "high": value and value.high,
        "unit": answer.unit,
        "measured": answer.choice and answer.choice.measured,
        "sure": answer.sure,
        "ties": list(answer.ties),
        "says": answer.says,
    }


def _set_row(chosen: "SetAnswer") -> dict[str, object]:
    seats = [] if chosen.seating is None else chosen.seating.seats
    return {
        "workloads": list(chosen.workloads),
        "objective": chosen.objective.value,
        "layouts": _layouts(chosen),
        "seats": [{"device": device, "instance": str(instance)} for device, instance in seats],
        "uncut": [{"arrangement": name, "score": score} for name, score in chosen.uncut],
        "says": chosen.says,
    }


def _layouts(chosen: "SetAnswer") -> list[str]:
    from gpuloom.gpus.layouts import written

    return [] if chosen.seating is None else [written(layout) for layout in chosen.seating.layouts]
