"""`gpuloom simulate`: one policy on one trace."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from gpuloom.cli import inputs
from gpuloom.cli.output import Output, emit, print_json


def simulate(
    trace: inputs.Trace = None,
    format: inputs.Format = None,
    gpus: inputs.Gpus = "8xA100-40GB",
    policy: Annotated[str, typer.Option("--policy", help="A name from `gpuloom policies`, or file.py:Class.")] = "miso",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Shapes generated traces and random policies.")] = 1,
    jobs: inputs.Jobs = None,
    gap_s: inputs.Gap = None,
    profiles: inputs.Profiles = None,
    every: inputs.Every = None,
    probe: inputs.Probe = None,
    guesses: inputs.Guesses = None,
    cost: inputs.Cost = None,
    fault: inputs.Fault = None,
    memory: inputs.Memory = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the figures.")] = Output.table,
    report: Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page.")] = None,
    trace_out: Annotated[Path | None, typer.Option("--trace-out", help="Write a timeline for Perfetto (JSON).")] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Write every event and decision, for `explain`.")] = None,
) -> None:
    """Run a trace under one policy and print what it was worth.

    \b
    gpuloom simulate
    gpuloom simulate --trace jobs.yaml --gpus 2xA100-80GB --policy static:3,2,2 --report run.html
    gpuloom simulate --trace philly.csv --format philly --gpus 500x4xV100 --policy whole-fifo --output json
    """
    from gpuloom.cli.progress import job_bar
    from gpuloom.sim.inputs import load
    from gpuloom.sim.perfetto import write_trace
    from gpuloom.sim.report import run_data, write_report
    from gpuloom.sim.run import figures, simulate

    inputs.check_writable(report, trace_out, log, read=trace)
    told = inputs.gather(trace, format, gpus, jobs, gap_s, profiles, every, probe, guesses, cost, fault, memory)
    scenario = load(told, seed)
    for why, count in scenario.skipped.items():
        typer.echo(f"left out, because they {why}: {count}", err=True)
    for note in scenario.notes:
        typer.echo(f"note: {note}", err=True)
    wants_timeline = report is not None or trace_out is not None
    with ExitStack() as stack:
        log_file = stack.enter_context(log.open("w", encoding="utf-8")) if log else None
        on_progress = stack.enter_context(job_bar(policy, len(scenario.trace)))
        result = simulate(scenario, policy, seed, log=log_file, timeline=wants_timeline, on_progress=on_progress)
    row = figures(result)
    if output is Output.table:
        emit([{"figure": name, "value": value} for name, value in row.items()], output, f"{policy} on {gpus}")
    elif output is Output.json:
        print_json(row)
    else:
        emit([row], output)
    if report is not None:
        write_report(report, f"{policy} on {gpus}", [run_data(result, gpus)], [row])
    if trace_out is not None:
        write_trace(trace_out, result)
    for kind, path in (("report", report), ("timeline", trace_out), ("log", log)):
        if path is not None:
            typer.echo(f"{kind}: {path}", err=True)
