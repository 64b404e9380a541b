"""`gpuloom compare`: several policies on the same jobs, over several seeds."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gpuloom.cli import inputs
from gpuloom.cli.output import Output, emit
from gpuloom.errors import InputError


def compare(
    trace: inputs.Trace = None,
    format: inputs.Format = None,
    gpus: inputs.Gpus = "8xA100-40GB",
    policies: Annotated[
        str, typer.Option("--policies", help="Names separated by spaces or semicolons (an argument may hold commas).")
    ] = "whole-fifo static:3,2,2 oracle",
    seeds: Annotated[str, typer.Option("--seeds", help="1-5, or 1,2,7.")] = "1-5",
    baseline: Annotated[str | None, typer.Option("--baseline", help="Ratios are to this one; else the first.")] = None,
    jobs: inputs.Jobs = None,
    gap_s: inputs.Gap = None,
    profiles: inputs.Profiles = None,
    every: inputs.Every = None,
    probe: inputs.Probe = None,
    guesses: inputs.Guesses = None,
    cost: inputs.Cost = None,
    fault: inputs.Fault = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes at once.")] = os.cpu_count() or 1,
    done: Annotated[
        Path | None, typer.Option("--resume", help="Keep finished runs here; a second call goes on.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the table.")] = Output.table,
    report: Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page.")] = None,
) -> None:
    """Run every policy with every seed; print means ± standard errors and ratios paired by seed.

    \b
    gpuloom compare --policies "whole-fifo whole-sjf best-static oracle" --seeds 1-10
    gpuloom compare --trace jobs.yaml --policies "whole-fifo static:3,3" --seeds 1 --report out.html
    """
    from gpuloom.cli.progress import bar
    from gpuloom.sim.compare.runs import run_all, tasks_for
    from gpuloom.sim.compare.statistics import for_people, summarise
    from gpuloom.sim.report import write_report

    inputs.check_writable(report, done, read=trace)
    names = policies.replace(";", " ").split()
    if not names or len(set(names)) != len(names):
        raise InputError(f"--policies {policies!r}: expected different names separated by spaces")
    first = baseline or names[0]
    if first not in names:
        raise InputError(f"--baseline {first}: is not among --policies {' '.join(names)}")
    given = inputs.gather(trace, format, gpus, jobs, gap_s, profiles, every, probe, guesses, cost, fault)
    tasks = tasks_for(given, names, inputs.parse_seeds(seeds), timelines=report is not None)
    with bar("runs", len(tasks)) as update:
        results = run_all(tasks, workers, done, update)
    table = summarise([row for row, _ in results], first)
    emit(for_people(table, first) if output is Output.table else table, output, f"{len(names)} policies on {gpus}")
    if report is not None:
        write_report(
            report,
            f"{len(names)} policies on {gpus}",
            [run for _, run in results if run is not None],
            table,
            baseline=first,
        )
        typer.echo(f"report: {report}", err=True)
