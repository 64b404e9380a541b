"""`gpuloom measure`: a command on every slice and share of a device, alone and beside itself, into one table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.interrupts import interruptible
from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.measure.campaign.campaign import Result, Wish
    from gpuloom.measure.plan import Plan

Words = Annotated[
    list[str], typer.Argument(metavar="PLAN.yaml | -- COMMAND …", help="A plan, or the one command that is measured.")
]
State = Annotated[Path, typer.Option("--state", help="Folder for the table, the journal and the output of the copies.")]
Gpu = Annotated[int | None, typer.Option("--gpu", min=0, help="Which GPU of this host, where there are several.")]
Ways = Annotated[
    str | None,
    typer.Option("--ways", metavar="alone,parallel,…", help="Of alone, parallel, shares, together. Without it: all."),
]
Profiles = Annotated[
    str | None, typer.Option("--profiles", metavar="1g.5gb,…", help="Slices that are tried. Without it: all.")
]
Shares = Annotated[str | None, typer.Option("--shares", metavar="50,25", help="Shares that are tried, in per cent.")]
Together = Annotated[
    str | None, typer.Option("--together", metavar="2,4", help="Numbers of copies beside each other without a cut.")
]
Layout = Annotated[
    list[str] | None,
    typer.Option("--layout", help="One more arrangement, such as '3g.20gb + 2 x 2g.10gb'. Repeatable."),
]
Memory = Annotated[str | None, typer.Option("--mem", metavar="12G", help="Device memory of a copy, if known.")]
Called = Annotated[
    str | None,
    typer.Option("--workload", metavar="NAME", help="What the command is called: by jobs' workload, and in the table."),
]
MemoryFile = Annotated[
    Path | None,
    typer.Option(
        "--memory",
        metavar="FILE|none",
        help="Where it is kept for gpuloom run. [this machine's memory]",
        show_default=False,
    ),
]
Expression = Annotated[
    str | None, typer.Option("--output-steps", metavar="REGEX", help="Steps are matches of this in the output.")
]
OwnFile = Annotated[
    str | None, typer.Option("--progress-file", metavar="FILE", help="Steps are in this file of the command's.")
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Steps after the warm-up that end a run. [100]")]
Seconds = Annotated[
    str | None, typer.Option("--seconds", help="End a run so long after all copies began to step. [30s]")
]
Patience = Annotated[str | None, typer.Option("--patience-s", help="For the first step of every copy. [120s]")]
Grace = Annotated[str | None, typer.Option("--grace-s", help="From SIGTERM to SIGKILL, at the end of a run. [10s]")]
Repeat = Annotated[int | None, typer.Option("--repeat", min=1, help="Runs of each arrangement, at least. [2]")]
Most = Annotated[int | None, typer.Option("--most", min=1, help="And at most. [8]")]
Within = Annotated[
    float | None,
    typer.Option("--within", min=0.001, max=100, help="Repeat until the 90 % interval is within ± so many %. [3]"),
]
Budget = Annotated[str | None, typer.Option("--budget", metavar="20m", help="Begin no run that would go beyond it.")]
For = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="GOAL",
        help="Make only the runs that this needs most: one-copy, most-work, 'deadline 20000 in 3h', 'least-speed 5', "
        "set or 'set a,b,b'.",
    ),
]
Runs = Annotated[
    str | None, typer.Option("--runs", metavar="40%", help="With --for: so much of all runs, or so many. [40%]")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Shuffles the order. [0]")]
Pace = Annotated[
    float, typer.Option("--pace", min=1e-3, max=1e6, help="Told to the command as GPULOOM_PACE, for rehearsals.")
]
Plain = Annotated[bool, typer.Option("--plain", help="On a terminal: a line a run instead of the bar.")]

STOPPING = ("stopping; what was measured is kept; again kills the copies", "killing the copies")
SHOWN = (
    *("run", "workload", "arrangement", "copy", "outcome", "steps", "step_ms", "steps_per_s"),
    *("mem_peak_mib", "power_w", "said"),
)
"""In the table for people, as far as there is anything; the files and the other outputs have all columns."""
SPARE = ("power_w", "mem_peak_mib", "steps", "steps_per_s", "run")


def measure(
    words: Words,
    state: State = Path("gpuloom-measure"),
    gpu: Gpu = None,
    device: Devices = None,
    ways: Ways = None,
    profiles: Profiles = None,
    shares: Shares = None,
    together: Together = None,
    layout: Layout = None,
    mem: Memory = None,
    workload: Called = None,
    memory: MemoryFile = None,
    output_steps: Expression = None,
    progress_file: OwnFile = None,
    steps: Steps = None,
    seconds: Seconds = None,
    patience: Patience = None,
    grace: Grace = None,
    repeat: Repeat = None,
    most: Most = None,
    within: Within = None,
    budget: Budget = None,
    seed: Seed = None,
    wanted: For = None,
    runs: Runs = None,
    pace: Pace = 1.0,
    plain: Plain = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the rows.")] = Output.table,
) -> None:
    """Run a command on every slice and share of a device, alone and beside itself, and write what it did there.

    \b
    gpuloom measure --budget 20m -- python train.py --epochs 1
    gpuloom measure --device cpu --ways alone,parallel --profiles 1c,3c -- python train.py
    gpuloom measure examples/mig_study.yaml --state study --output csv
    gpuloom measure --for most-work --runs 40% -- python train.py
    gpuloom measure service --help                    # models behind Triton servers

    The rows are in measured.csv of the state folder, what they were measured on in measured.json (docs/measure.md). The
    same command again goes on where it was, after Ctrl-C, a kill or a spent budget. The device is left as it was found.
    Exit code 1 means that no copy could be measured or that the device is not as it was found, 130 that it was stopped.
    """
    from gpuloom.cli.carry_out.run import memory_named
    from gpuloom.cli.measure.measure_wish import Options, is_plan, plan_of

    options = Options(
        ways, profiles, shares, together, tuple(layout or ()), mem, output_steps, progress_file, steps, seconds,
        patience, grace, repeat, most, within, budget, seed, wanted, runs, workload,
    )  # fmt: skip
    plan, owner_uid = plan_of(words, options)
    kept_in, named = memory_named(memory), workload is not None or is_plan(words)
    result = _carry_out(wish_of(plan, owner_uid, gpu, tuple(device or ()), pace), state, plain, kept_in, named)
    _emit(result, output, state)
    sys.stdout.flush()
    _leave(result)


def _leave(result: "Result") -> None:
    if result.not_as_found:
        raise typer.Exit(1)
    if result.stop.name == "INTERRUPTED":
        raise typer.Exit(130)
    if not any(row.step_ms is not None for row in result.rows):
        raise typer.Exit(1)


def wish_of(plan: "Plan", owner_uid: int, gpu: int | None, devices: tuple[str, ...], pace: float) -> "Wish":
    from gpuloom.cli.carry_out.run import working_dir
    from gpuloom.measure.campaign.campaign import Wish

    if devices and gpu is not None:
        raise InputError(f"--gpu {gpu}: goes not with --device, which names the device")
    return Wish(plan, working_dir(), owner_uid, gpu, devices, pace)


def _carry_out(wish: "Wish", state: Path, plain: bool, kept_in: str | None, named: bool) -> "Result":
    from gpuloom.cli.measure.measure_progress import shown
    from gpuloom.cli.threads import as_given_for_others
    from gpuloom.gpus.host.cutter import cutter_of
    from gpuloom.gpus.host.driver import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver
    from gpuloom.gpus.host.ownership import Refused
    from gpuloom.live.devices import DeviceError
    from gpuloom.live.store import Store
    from gpuloom.measure.campaign.campaign import Campaign, Watcher

    as_given_for_others()
    try:
        with Store(state) as store, cutter_of(wish.devices, whole=True) as cutter, shown(plain) as show:
            watcher = Watcher(show.begins, show.ended, show.say)
            with interruptible(show.say, STOPPING) as held:
                held(watcher)
                result = Campaign(wish, store, cutter, watcher).run()
                _keep(result, state, kept_in, named)
                return result
    except (NoDriver, Refused, StepFailed, DeviceError) as reason:
        typer.echo(f"gpuloom measure: {reason}", err=True)
        raise typer.Exit(1) from None


def _keep(result: "Result", state: Path, kept_in: str | None, named: bool) -> None:
    """For runs of jobs. That it cannot be kept takes nothing from what was measured."""
    from gpuloom.live.memory.file import NoMemoryError, add_to_memory
    from gpuloom.measure.campaign.asked import read_asked
    from gpuloom.measure.campaign.remember import remembered

    asked = None if kept_in is None else read_asked(state)
    if kept_in is None or asked is None:
        return
    try:
        add_to_memory(Path(kept_in), remembered(result.rows, asked, named=named))
    except NoMemoryError as reason:
        typer.echo(f"gpuloom measure: what was measured is not kept for gpuloom run: {reason}", err=True)


def _emit(result: "Result", output: Output, state: Path) -> None:
    from gpuloom.measure.table import row_of

    rows = [row_of(row) for row in result.rows]
    if output is Output.json:
        print_json({"rows": rows, "not_as_found": list(result.not_as_found), **result.metadata})
    elif output is Output.csv:
        emit(rows, output)
    else:
        told = [name for name in SHOWN if any(row[name] is not None for row in rows)]
        emit([{name: row[name] for name in told} for row in rows], output, spare=SPARE)
        _say_what_else(result, state)
    for problem in result.not_as_found:
        typer.echo(problem, err=True)


def _say_what_else(result: "Result", state: Path) -> None:
    from gpuloom.gpus.host.noise import Noise

    noise = result.metadata["noise"]
    if isinstance(noise, dict):
        typer.echo(f"on a CPU device: {Noise(**noise)}")
    if result.metadata["counters"] is not None:
        typer.echo(f"activity counters: {result.metadata['counters']}")
    left_out = result.metadata["left_out"]
    if isinstance(left_out, list) and left_out:
        typer.echo(
            f"{len(left_out)} arrangements were left out, such as {left_out[0]['arrangement']}: {left_out[0]['why']}"
        )
    explored = result.metadata["explored"]
    if isinstance(explored, dict) and explored["not_run"]:
        typer.echo(f"{len(explored['not_run'])} places were not run: {explored['says']}")
    typer.echo(f"{result.stop.value}; the rows are in {state / 'measured.csv'}")
