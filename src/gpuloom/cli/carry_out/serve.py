"""`gpuloom serve up|status|down`: a provisioning plan on running Triton servers."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.output import Output, emit, print_json

if TYPE_CHECKING:
    from gpuloom.serve.options import Options
    from gpuloom.serve.state import Record

app = typer.Typer(help="Serve a plan on Triton: start it, look at it, end it.", no_args_is_help=True)

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="What `gpuloom provision --output json` printed.")]
StateDir = Annotated[Path, typer.Option("--state", help="Folder for the address, logs and events of the deployment.")]
Services = Annotated[Path | None, typer.Option("--services", help="The work file of the services, for their models.")]
Dilate = Annotated[float, typer.Option("--dilate", min=1.0, max=1000.0, help="Stretch time, for stand-in models.")]
Models = Annotated[Path | None, typer.Option("--models", help="Your Triton models, a folder each. Default: stand-ins.")]
Server = Annotated[Path | None, typer.Option("--triton", help="A tritonserver to use. Default: our own environment's.")]
Standby = Annotated[bool, typer.Option("--standby/--no-standby", help="Keep each replica's shadow running.")]
Host = Annotated[str, typer.Option("--host", help="Where to listen. There are no passwords: beware.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="For HTTP. 0: a free one.")]
GrpcPort = Annotated[int, typer.Option("--grpc-port", min=0, max=65535, help="For gRPC. 0: a free one.")]
Calm = Annotated[
    float, typer.Option("--calm-s", min=0.1, max=1e6, help="Seconds without need before a share shrinks back.")
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return when it is up; `serve down` ends it.")]
STATE = Path("gpuloom-serve")


@app.command()
def up(
    plan: Plan,
    state: StateDir = STATE,
    services: Services = None,
    dilate: Dilate = 1.0,
    standby: Standby = True,
    models: Models = None,
    device: Devices = None,
    triton: Server = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    grpc_port: GrpcPort = 0,
    calm_s: Calm = 20.0,
    detach: Detach = False,
) -> None:
    """Start the plan's servers and serve until Ctrl-C.

    \b
    gpuloom serve up plan.json --dilate 10
    gpuloom serve up plan.json --models /srv/models --triton /opt/tritonserver/bin/tritonserver
    gpuloom serve up examples/models/plan.json --models examples/models --device cpu

    Each replica is a Triton server with the plan's share, batch and queue delay, behind one address that speaks
    Triton's HTTP, and one for its gRPC where grpcio is installed. A replica that breaks its p99 gets its shadow's
    larger share; a server that dies is replaced; no request is lost by either. Without --models the models are
    stand-ins that take the measured time per batch. With --device each server has its share of a CPU device, enforced
    by the kernel; it needs --models, and cgroups that this user may write.
    """
    from gpuloom.serve.options import options_of

    options = options_of(dilate, standby, models, host, port, grpc_port, calm_s, device or ())
    if not detach:
        _serve(plan, services, state, triton, options)
        return
    words = ["serve", "up", str(plan), "--dilate", str(dilate), "--host", host, "--port", str(port)]
    words += ["--grpc-port", str(grpc_port)]
    words += ["--standby" if standby else "--no-standby", "--calm-s", str(calm_s), "--state", str(state)]
    for option, path in (("--services", services), ("--models", models), ("--triton", triton)):
        words += [] if path is None else [option, str(path)]
    for name in options.devices:
        words += ["--device", name]
    _detach(words, state)


@app.command()
def status(
    state: StateDir = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Show what is served: the p99 of each service against its promise, each replica's share and servers.

    Exit code 1 means that a promise is broken at the moment, or that a service has no server.
    """
    from gpuloom.serve.client import (
        UnansweredError,
        ask_status,
        grpc_address,
        http_address,
        keeps_promises,
        noise_of,
        rows_of,
    )
    from gpuloom.serve.state import State

    record = State(state).record()
    try:
        answer = ask_status(record)
    except UnansweredError as reason:
        typer.echo(f"gpuloom serve: {reason}", err=True)
        raise typer.Exit(1) from None
    if output is Output.json:
        print_json({"address": http_address(record), "grpc_address": grpc_address(record), **answer})
    else:
        noise = noise_of(answer)
        emit(rows_of(answer), output, "" if noise is None else f"on a CPU device: {noise}")
    if not keeps_promises(answer):
        raise typer.Exit(1)


@app.command()
def down(state: StateDir = STATE) -> None:
    """End what is served, also what is left of a deployment that was killed."""
    from gpuloom.serve.devices import end_left
    from gpuloom.serve.seats import DeviceError
    from gpuloom.serve.state import State

    place = State(state, end_left)
    try:
        ran = place.take_down()
    except DeviceError as reason:
        typer.echo(f"gpuloom serve: {reason}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{place.folder}: nothing runs any more" if ran else f"{place.folder}: nothing was running", err=True)


def _serve(plan: Path, services: Path | None, folder: Path, triton: Path | None, options: "Options") -> None:
    from gpuloom.cli.threads import as_given_for_others
    from gpuloom.serve.deploy import Listener, deploy
    from gpuloom.serve.fleet.fleet import StartError
    from gpuloom.serve.seats import DeviceError
    from gpuloom.serve.triton.environment import SetupError

    as_given_for_others()
    _end_as_ctrl_c_does()  # what is being installed ends too
    try:
        deploy(plan, services, folder, triton, options, Listener(_say, _show, _tell))
    except (DeviceError, SetupError, StartError) as reason:
        typer.echo(f"gpuloom serve: {reason}", err=True)
        raise typer.Exit(1) from None
    typer.echo("nothing runs any more", err=True)


def _detach(words: list[str], folder: Path) -> None:
    """The same command in a session of its own."""
    from gpuloom.serve.detach import EndedError, detach
    from gpuloom.serve.state import State

    _end_as_ctrl_c_does()
    try:
        record = detach([sys.executable, "-c", "from gpuloom.cli.main import main; main()", *words], State(folder))
    except EndedError as reason:
        typer.echo(str(reason), err=True)
        raise typer.Exit(reason.code) from None
    _tell(record)


def _end_as_ctrl_c_does() -> None:
    """SIGTERM at once, but not without ending what was started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _show(event: dict[str, object]) -> None:
    if sys.stderr.isatty():
        clock = time.strftime("%H:%M:%S")
        typer.echo(f"{clock}  {event['event']:9} {event['server']}: {event['detail']}", err=True)


def _tell(record: "Record") -> None:
    from gpuloom.serve.client import grpc_address, http_address
    from gpuloom.serve.gateway.grpc_client import INSTALL

    kind = "stand-in models" if record.standin else "your models"
    slow = f", time stretched by {record.dilate:g}" if record.dilate != 1.0 else ""
    also = grpc_address(record) or f"HTTP only: for gRPC, {INSTALL}"
    number = "1 service" if len(record.services) == 1 else f"{len(record.services)} services"
    typer.echo(f"serving {number} ({kind}{slow}) at {http_address(record)} ({also})", err=True)
