"""`gpuloom demo`: the idea in half a minute, on emulated GPUs, with nothing but what is shipped."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gpuloom.cli.output import Output, emit

GPUS = "8xA100-40GB"
POLICIES = ("whole-fifo", "static:3,2,2", "oracle", "miso")
SEEDS = (1, 2, 3, 4, 5)


def demo(
    report: Annotated[Path, typer.Option("--report", help="Where the page goes.")] = Path("gpuloom-demo.html"),
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the table.")] = Output.table,
) -> None:
    """Compare whole GPUs, a fixed cut, MISO's Oracle and our MISO on 8 emulated A100s; no GPU and no data needed.

    \b
    gpuloom demo
    """
    from gpuloom.cli.inputs import check_writable
    from gpuloom.cli.progress import bar
    from gpuloom.sim.compare.runs import run_all, tasks_for
    from gpuloom.sim.compare.statistics import for_people, summarise
    from gpuloom.sim.inputs import Inputs
    from gpuloom.sim.report import write_report

    check_writable(report)
    typer.echo(f"100 training jobs with measured speeds on {GPUS} (emulated), {len(SEEDS)} seeds", err=True)
    tasks = tasks_for(Inputs(gpus=GPUS), POLICIES, SEEDS, timelines=True)
    with bar("runs", len(tasks)) as update:
        results = run_all(tasks, os.cpu_count() or 1, on_progress=update)
    table = summarise([row for row, _ in results], POLICIES[0])
    shown = for_people(table, POLICIES[0]) if output is Output.table else table
    emit(shown, output, f"Mean over {len(SEEDS)} seeds ± standard error; the ratio is paired by seed")
    write_report(report, f"100 jobs on {GPUS}", [run for _, run in results if run is not None], table)
    typer.echo(f"report: {report.absolute()}", err=True)
