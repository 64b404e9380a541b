"""`gpuloom kernels`: a high-priority program keeps its speed, others live in the gaps between its kernels."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli import inputs
from gpuloom.cli.carry_out import kernels_print
from gpuloom.cli.output import Output, emit
from gpuloom.errors import InputError
from gpuloom.kernels import FLOOR, SLOWDOWN

if TYPE_CHECKING:
    from gpuloom.kernels.core import Policy
    from gpuloom.kernels.profile import Profile

FIRST_LOOK_S = 0.3

app = typer.Typer(help="Share a device kernel by kernel: measure, run, watch, replay.", no_args_is_help=True)

Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The program, after two dashes.")]
AsTable = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
RegionFile = Annotated[
    Path | None, typer.Option("--region", help="Shared memory file. Default: one for each user.", show_default=False)
]
Timeline = Annotated[Path | None, typer.Option("--timeline", help="Write a picture of the kernels (HTML).")]
Slowdown = Annotated[
    float, typer.Option("--slowdown", min=0.0, max=1.0, help="How much others may slow this program down (0.1: 10 %).")
]
Floor = Annotated[
    float, typer.Option("--floor", min=0.0, max=1.0, help="Part of the device that higher priorities leave to it.")
]


@app.command()
def measure(
    command: Command,
    write: Annotated[Path, typer.Option("--write", "-o", help="The profile to write.", show_default=False)],
    runs: Annotated[int, typer.Option("--runs", min=1, max=1000, help="How often to run the program.")] = 3,
    timeline: Timeline = None,
    output: Annotated[Output, typer.Option("--output", help="How to print the kernels.")] = Output.table,
) -> None:
    """Run a program alone and write down its kernels: how long each runs, and the gap that follows.

    What the program prints goes to standard error.

    \b
    gpuloom kernels measure --runs 3 -o resnet.kprof -- gpuloom kernels example resnet
    gpuloom kernels measure -o app.kprof --timeline app.html -- python serve.py
    """
    from gpuloom.kernels.measure import StoppedError
    from gpuloom.kernels.measure import measure as measured
    from gpuloom.kernels.profile import write_profile

    inputs.check_writable(write, timeline)
    try:
        profile = measured(command, runs, lambda done: typer.echo(f"run {done} of {runs}", err=True))
    except StoppedError as stopped:
        typer.echo("stopped: nothing is written", err=True)
        raise typer.Exit(stopped.code) from None
    write_profile(profile, write)
    typer.echo(f"profile: {write}", err=True)
    _show(profile, timeline, output, runs)


@app.command()
def show(
    profile: Annotated[Path, typer.Argument(help="A kernel profile.", show_default=False)],
    timeline: Timeline = None,
    output: AsTable = Output.table,
) -> None:
    """Print a profile's kernels; with --timeline also a picture.

    \b
    gpuloom kernels show resnet.kprof --timeline resnet.html
    """
    from gpuloom.kernels.profile import read_profile

    inputs.check_writable(timeline, read=profile)
    _show(read_profile(profile), timeline, output)


@app.command("import")
def import_trace(
    trace: Annotated[Path, typer.Argument(help="PyTorch profiler JSON (or .gz), or Nsight Systems SQLite.")],
    write: Annotated[Path, typer.Option("--write", "-o", help="The profile to write.", show_default=False)],
    timeline: Timeline = None,
    output: Annotated[Output, typer.Option("--output", help="How to print the kernels.")] = Output.table,
) -> None:
    """Make a profile of a kernel trace that you have.

    \b
    gpuloom kernels import trace.json -o model.kprof
    gpuloom kernels import report.sqlite -o model.kprof
    """
    from gpuloom.kernels.imports.format import import_profile
    from gpuloom.kernels.profile import write_profile

    inputs.check_writable(write, timeline, read=trace)
    profile = import_profile(trace)
    write_profile(profile, write)
    typer.echo(f"profile: {write}", err=True)
    _show(profile, timeline, output)


@app.command()
def run(
    command: Command,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is the highest.")] = 0,
    profile: Annotated[Path | None, typer.Option("--profile", help="Its profile; `fikit` needs it.")] = None,
    slowdown: Slowdown = SLOWDOWN,
    floor: Floor = FLOOR,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Switch all to share, strict, fikit or fill.", show_default=False)
    ] = None,
    region: RegionFile = None,
) -> None:
    """Run a program that shares its device by priority. Ends with the program's exit code.

    If the shared memory cannot be used, the program runs as without us, and a line says so.

    \b
    gpuloom kernels run --priority 0 --profile resnet.kprof -- python serve.py
    gpuloom kernels run --priority 5 --floor 0.2 -- python batch.py
    """
    from gpuloom.cli.threads import as_given_for_others
    from gpuloom.kernels.profile import read_profile
    from gpuloom.kernels.session import Settings, default_region, environment, joined, run_program, switch

    if profile is not None:
        read_profile(profile)
    wanted = _policy(policy) if policy else None
    path = region or default_region()
    as_given_for_others(load=False)
    environ = dict(os.environ)
    with ExitStack() as stack:
        try:
            shared = stack.enter_context(joined(path))
        except InputError as error:
            typer.echo(f"gpuloom: kernels run ungated: {error}", err=True)
        else:
            if wanted is not None:
                switch(shared, wanted)
            environ = environment(Settings(path, priority, profile, slowdown, floor), environ)
        code = run_program(command, environ)
    raise typer.Exit(code)


@app.command()
def top(
    region: RegionFile = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, max=3600, help="Seconds between two looks.")] = 1.0,
    output: AsTable = Output.table,
) -> None:
    """Who runs, fills and waits now, how much the others slow it down, and how well gaps are foreseen.

    Figures are of the time since the last look (the first: of 0.3 s); JSON and CSV have the totals as well.

    \b
    gpuloom kernels top
    gpuloom kernels top --once --output json
    """
    import sys
    import time

    from gpuloom.kernels.session import default_region, joined, policy_of
    from gpuloom.kernels.watch import look, snapshot

    path = region or default_region()
    if not path.exists():
        typer.echo("nobody shares a device by kernels now", err=True)
        raise typer.Exit(1)
    with joined(path) as shared:
        since, pause_s = look(shared), FIRST_LOOK_S
        while True:
            time.sleep(pause_s)
            rows = snapshot(shared, since)
            since, pause_s = look(shared), every
            if output is Output.table and not once and sys.stdout.isatty():
                typer.echo("\x1b[2J\x1b[H", nl=False)
            kernels_print.print_top(rows, policy_of(shared), output)
            if once or output is not Output.table:
                return
            sys.stdout.flush()


@app.command()
def policy(
    name: Annotated[str | None, typer.Argument(help="share, strict, fikit or fill; without it: print it.")] = None,
    region: RegionFile = None,
) -> None:
    """Print or switch the policy of all programs that share now; it counts from the next launch on.

    \b
    gpuloom kernels policy
    gpuloom kernels policy strict
    """
    from gpuloom.kernels.session import default_region, joined, policy_of, switch

    wanted = _policy(name) if name else None
    path = region or default_region()
    if not path.exists():
        typer.echo("nobody shares a device by kernels now: `kernels run --policy` starts with one", err=True)
        raise typer.Exit(1)
    with joined(path) as shared:
        if wanted is not None:
            switch(shared, wanted)
        typer.echo(policy_of(shared))


@app.command()
def replay(
    profiles: Annotated[list[Path], typer.Argument(help="Kernel profiles, the highest priority first.")],
    policy: Annotated[str, typer.Option("--policy", help="share, strict, fikit, fill, or all.")] = "all",
    requests: Annotated[int, typer.Option("--requests", min=1, help="That the first task serves.")] = 200,
    priorities: Annotated[
        str | None,
        typer.Option("--priorities", help="With commas, one for each. Default: 0, 1, 2, …", show_default=False),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(
            "--launches", min=1, help="Launches of a request of the first task. Default: found.", show_default=False
        ),
    ] = None,
    slowdown: Slowdown = SLOWDOWN,
    floor: Floor = FLOOR,
    output: AsTable = Output.table,
) -> None:
    """Simulate programs that share a device, from their profiles; the decisions are the real code's.

    The first task serves its requests, the others run beside it until it is done. `of_exclusive`: its latency
    relative to that alone; `rate_of_alone`: the device time that another gets in a second, relative to that alone.

    \b
    gpuloom kernels replay resnet.kprof batch.kprof
    gpuloom kernels replay a.kprof b.kprof c.kprof --policy fill --priorities 0,5,5
    """
    from gpuloom.kernels.core import Policy
    from gpuloom.kernels.profile import read_profile
    from gpuloom.kernels.replay import Task
    from gpuloom.kernels.replay_figures import figures

    chosen = list(Policy) if policy == "all" else [_policy(policy)]
    of_task = _priorities(priorities, len(profiles))
    names = _distinct([path.stem for path in profiles])
    tasks = [
        Task(
            names[place],
            read_profile(path),
            of_task[place],
            requests if place == 0 else None,
            slowdown,
            floor,
            launches if place == 0 else None,
        )
        for place, path in enumerate(profiles)
    ]
    emit(figures(tasks, chosen), output, f"{requests} requests of {tasks[0].name}")


@app.command()
def example(
    network: Annotated[str, typer.Argument(help="mlp, conv, resnet, resnet-large or transformer.")],
    batch: Annotated[int, typer.Option("--batch", min=1, max=1024)] = 1,
    requests: Annotated[int, typer.Option("--requests", min=1)] = 200,
    think_ms: Annotated[float, typer.Option("--think-ms", min=0.0, help="Mean pause between two requests.")] = 0.0,
    beside: Annotated[
        str | None,
        typer.Option("--beside", help="A second network, on a queue of its own meanwhile.", show_default=False),
    ] = None,
    output: AsTable = Output.table,
) -> None:
    """An OpenCL program to try it with: serves requests of a small network and prints how long they took.

    \b
    gpuloom kernels example resnet --requests 500 --think-ms 5
    gpuloom kernels run --priority 5 -- gpuloom kernels example conv --batch 4
    gpuloom kernels run --policy share -- gpuloom kernels example resnet --beside resnet-large --think-ms 10
    gpuloom kernels run --policy fill -- gpuloom kernels example resnet --beside resnet-large --think-ms 10
    """
    from gpuloom.kernels.example import serve

    served = serve(network, batch, requests, think_ms, beside)
    row: dict[str, object] = {
        "network": network,
        "batch": batch,
        "requests": requests,
        "launches": served.launches,
        "mean_ms": round(sum(served.latencies_ms) / requests, 3),
        "p50_ms": round(served.quantile_ms(0.5), 3),
        "p99_ms": round(served.quantile_ms(0.99), 3),
        "checksum": served.checksum,
    }
    if served.beside_per_s is not None:
        row |= {"beside": beside, "beside_per_s": round(served.beside_per_s, 1)}
    emit([row], output, served.device)


def _policy(name: str) -> "Policy":
    from gpuloom.kernels.core import Policy

    try:
        return Policy[name.upper()]
    except KeyError:
        known = ", ".join(policy.name.lower() for policy in Policy)
        raise InputError(f"policy {name}: expected one of {known}") from None


def _priorities(text: str | None, tasks: int) -> list[int]:
    if text is None:
        return [min(place, 9) for place in range(tasks)]
    parts = text.split(",")
    if len(parts) != tasks or not all(part.strip().isdigit() and int(part) <= 9 for part in parts):
        raise InputError(f"--priorities {text}: expected {tasks} numbers from 0 to 9, with commas")
    return [int(part) for part in parts]


def _distinct(names: list[str]) -> list[str]:
    """The second of a name is called so: mlp, mlp #2."""
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [name if count == 1 else f"{name} #{count}" for name, count in zip(names, counts, strict=True)]


def _show(profile: "Profile", timeline: Path | None, output: Output, program_runs: int | None = None) -> None:
    kernels_print.print_profile(profile, output, program_runs)
    if timeline is not None:
        from gpuloom.kernels.timeline import page

        timeline.write_text(page(profile), encoding="utf-8", newline="\n")
        typer.echo(f"timeline: {timeline}", err=True)
