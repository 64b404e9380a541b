"""`gpuloom measure service`: models on Triton at shares, batches and beside each other; writes profiles."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.interrupts import interruptible
from gpuloom.cli.measure.measure import STOPPING, Budget, Gpu, Patience, Plain, Repeat, Seed, wish_of
from gpuloom.cli.output import Output, emit, print_json

if TYPE_CHECKING:
    from gpuloom.measure.campaign.campaign import Result, Wish
    from gpuloom.measure.service.service import Written
    from gpuloom.serve.triton.environment import Triton

Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        "-m",
        metavar="[NAME=]PATH",
        help="A Triton model (DIR/NAME), a Python model (.py) or an ONNX file (.onnx). Repeatable.",
        show_default=False,
    ),
]
Bodies = Annotated[
    list[str] | None,
    typer.Option("--body", metavar="[NAME=]FILE", help="JSON of a request of one item. Without it: made up."),
]
State = Annotated[Path, typer.Option("--state", help="Folder for the profiles, the table and the journal.")]
Shares = Annotated[
    str | None, typer.Option("--shares", metavar="50,100", help="Of the device, in per cent. [25,50,75,100]")
]
Batches = Annotated[str | None, typer.Option("--batches", metavar="1,8", help="Items in a request. [1,2,4,8]")]
Pairs = Annotated[bool, typer.Option("--pairs/--no-pairs", help="Ask models beside each other, two at a time.")]
Profiles = Annotated[
    str | None, typer.Option("--profiles", metavar="1g.5gb,…", help="Also on these slices: points for --mig.")
]
Processes = Annotated[
    str | None, typer.Option("--processes", metavar="1,2", help="Servers of a model that share a slice. [1]")
]
Requests = Annotated[int | None, typer.Option("--requests", min=5, help="That end a measurement. [200]")]
Seconds = Annotated[str | None, typer.Option("--seconds", help="End a measurement after so long. [4s]")]
Server = Annotated[Path | None, typer.Option("--triton", help="A tritonserver to use. Default: our own environment's.")]
Most = Annotated[int | None, typer.Option("--most", min=1, help="And at most. [4]")]
Within = Annotated[
    float | None,
    typer.Option("--within", min=0.001, max=100, help="Repeat until the 90 % intervals are within ± so many %. [5]"),
]
STATE = Path("gpuloom-measure-service")


def service(
    model: Models,
    body: Bodies = None,
    state: State = STATE,
    gpu: Gpu = None,
    device: Devices = None,
    shares: Shares = None,
    batches: Batches = None,
    pairs: Pairs = True,
    profiles: Profiles = None,
    processes: Processes = None,
    requests: Requests = None,
    seconds: Seconds = None,
    patience: Patience = None,
    repeat: Repeat = None,
    most: Most = None,
    within: Within = None,
    budget: Budget = None,
    seed: Seed = None,
    triton: Server = None,
    plain: Plain = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the points.")] = Output.table,
) -> None:
    """Ask models behind Triton servers at shares, batches and beside each other, and write profiles to plan with.

    \b
    gpuloom measure service --model models/bert --model models/resnet --body bert=request.json --budget 30m
    gpuloom measure service --device cpu -m examples/models/mixer --body examples/models/request.json
    gpuloom provision services.yaml --profile gpuloom-measure-service/profile.json

    profile.json of the state folder is for `provision --profile`, mig.csv (with --profiles) for its --mig, models/ for
    `serve up --models` (docs/measure-services.md). The same command again goes on where it was, after Ctrl-C, a kill or
    a spent budget. Exit code 1 means that nothing could be measured, 130 that it was stopped.
    """
    from gpuloom.cli.measure.service_wish import Options, plan_of

    options = Options(
        tuple(model), tuple(body or ()), shares, batches, pairs, profiles, processes, requests, seconds, patience,
        repeat, most, within, budget, seed,
    )  # fmt: skip
    server = _triton(triton)
    plan = plan_of(options, state, str(server.binary))
    result, written = _carry_out(wish_of(plan, os.geteuid(), gpu, tuple(device or ()), 1.0), state, server, plain)
    _emit(result, written, output, state)
    sys.stdout.flush()
    for problem in result.not_as_found:
        typer.echo(problem, err=True)
    if result.stop.name == "INTERRUPTED":
        raise typer.Exit(130)
    if result.not_as_found or not written.points:
        raise typer.Exit(1)


def _triton(named: Path | None) -> "Triton":
    from gpuloom.cli.threads import as_given_for_others
    from gpuloom.serve.triton.environment import SetupError, given_or_installed

    as_given_for_others()
    try:
        return given_or_installed(named, lambda line: typer.echo(line, err=True))
    except SetupError as reason:
        typer.echo(f"gpuloom measure: {reason}", err=True)
        raise typer.Exit(1) from None


def _carry_out(wish: "Wish", state: Path, server: "Triton", plain: bool) -> "tuple[Result, Written]":
    from gpuloom.cli.measure.measure_progress import shown
    from gpuloom.gpus.host.cutter import cutter_of
    from gpuloom.gpus.host.driver import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver
    from gpuloom.gpus.host.ownership import Refused
    from gpuloom.live.devices import DeviceError
    from gpuloom.live.store import Store
    from gpuloom.measure.campaign.campaign import Watcher
    from gpuloom.measure.service.service import measure_services
    from gpuloom.serve.triton.environment import SetupError

    try:
        with Store(state) as store, cutter_of(wish.devices, whole=True) as cutter, shown(plain) as show:
            watcher = Watcher(show.begins, show.ended, show.say)
            with interruptible(show.say, STOPPING) as held:
                held(watcher)
                return measure_services(wish, store, cutter, watcher, server, show.say)
    except (NoDriver, Refused, StepFailed, DeviceError, SetupError) as reason:
        typer.echo(f"gpuloom measure: {reason}", err=True)
        raise typer.Exit(1) from None


def _emit(result: "Result", written: "Written", output: Output, state: Path) -> None:
    from gpuloom.gpus.host.noise import Noise

    if output is Output.json:
        print_json({"points": written.points, "failed": written.failed, "files": written.files, **result.metadata})
        return
    emit(written.points, output)
    for failure in written.failed:
        typer.echo(failure, err=output is Output.csv)
    if output is Output.csv:
        return
    noise = result.metadata["noise"]
    if isinstance(noise, dict):
        typer.echo(f"on a CPU device: {Noise(**noise)}")
    left_out = result.metadata["left_out"]
    if isinstance(left_out, list) and left_out:
        typer.echo(f"{len(left_out)} were left out, such as {left_out[0]['arrangement']}: {left_out[0]['why']}")
    files = ", ".join(written.files) or "no profile, since nothing was measured"
    typer.echo(f"{result.stop.value}; in {state}: {files}")
