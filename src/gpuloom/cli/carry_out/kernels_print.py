"""How `gpuloom kernels` prints: everything for programs, and for people as much as fits a line."""

from typing import TYPE_CHECKING

import typer

from gpuloom.cli.output import Output, emit, print_json

if TYPE_CHECKING:
    from gpuloom.kernels.profile import Profile

TOP = {
    "pid": "pid",
    "program": "program",
    "priority": "prio",
    "state": "state",
    "device_pct": "device%",
    "launches_per_s": "launches/s",
    "waits_pct": "waits%",
    "slowed_pct": "slowed%",
    "gap_error_pct": "gap err%",
}
KERNELS = {
    "number": "#",
    "kernel": "kernel",
    "grid": "grid",
    "block": "block",
    "launches": "launches",
    "mean_us": "mean",
    "sd_us": "sd",
    "p50_us": "p50",
    "p90_us": "p90",
    "p99_us": "p99",
    "gap_mean_us": "gap mean",
    "gap_p10_us": "gap p10",
    "gap_p50_us": "gap p50",
    "gap_p90_us": "gap p90",
}
SHOWN_LAUNCHES = 40


def _table(rows: list[dict[str, object]], heads: dict[str, str], title: str) -> None:
    """Some columns, under short names; of large numbers nobody reads the tenths."""
    emit([{head: _short(row[column]) for column, head in heads.items()} for row in rows], Output.table, title)


def _short(value: object) -> object:
    return round(value) if isinstance(value, float) and value >= 100 else value


def _counted(number: int, thing: str, plural: str = "s") -> str:
    return f"{number:,} {thing}{'' if number == 1 else plural}"


def print_top(rows: list[dict[str, object]], policy: str, output: Output) -> None:
    if output is not Output.table:
        emit(rows, output)
    elif rows:
        _table([row | {"pid": str(row["pid"])} for row in rows], TOP, f"policy {policy}")
    else:
        typer.echo("nobody shares a device now")


def print_profile(profile: "Profile", output: Output, program_runs: int | None) -> None:
    """`program_runs`: how often the program ran, where that is known: a profile has a run for each queue."""
    numbers, sequence = profile.numbers(), profile.sequence()
    rows: list[dict[str, object]] = []
    for kernel, count, ran, gap in profile.summary():
        row: dict[str, object] = {
            "number": numbers[kernel.id],
            "id": f"{kernel.id:016x}",
            "kernel": kernel.name,
            "grid": kernel.grid,
            "block": kernel.block,
            "launches": count,
        }
        for prefix, spread in (("", ran), ("gap_", gap)):
            values = (spread.mean_ns, spread.sd_ns, *spread.quantiles_ns)
            columns = ("mean", "sd", "p10", "p50", "p90", "p99")
            row |= {f"{prefix}{name}_us": round(ns / 1e3, 1) for name, ns in zip(columns, values, strict=True)}
        rows.append(row)
    if output is Output.json:
        print_json(
            {
                "source": profile.source,
                "device": profile.device,
                "notes": list(profile.notes),
                "runs": [len(run.launches) for run in profile.runs],
                "launches_per_request": len(sequence),
                "sequence": sequence,
                "kernels": rows,
            }
        )
        return
    if output is Output.csv:
        emit(rows, output)
        return
    queues = _counted(len(profile.runs), "queue")
    runs = f"{_counted(program_runs, 'run')} of the program, {queues}" if program_runs else f"{queues} recorded"
    title = f"{profile.source}: {runs}, {_counted(len(sequence), 'launch', 'es')} a request, times in µs"
    _table(rows, KERNELS, title)
    more = " …" if len(sequence) > SHOWN_LAUNCHES else ""
    typer.echo(f"sequence: {' '.join(map(str, sequence[:SHOWN_LAUNCHES]))}{more}")
    for note in profile.notes:
        typer.echo(f"note: {note}")
