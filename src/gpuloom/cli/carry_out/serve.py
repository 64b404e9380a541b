"""`gpuloom serve up|status|down`: a provisioning plan on running Triton servers."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.serve.deploy import Options
    from gpuloom.serve.deployment import Deployment
    from gpuloom.serve.state import Record, State
    from gpuloom.serve.times import BatchMs
    from gpuloom.serve.triton.environment import Triton

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

    Each replica is a Triton server with the plan's share, batch and queue delay, behind one address that speaks
    Triton's HTTP, and one for its gRPC where grpcio is installed. A replica that breaks its p99 gets its shadow's
    larger share; a server that dies is replaced; no request is lost by either. Without --models the models are
    stand-ins that take the measured time per batch.
    """
    from gpuloom.serve.deploy import Options
    from gpuloom.serve.fleet.correct import Rules
    from gpuloom.serve.fleet.place import TIMING
    from gpuloom.serve.gateway.grpc_client import INSTALL, library

    if grpc_port and library() is None:
        raise InputError(f"--grpc-port needs grpcio, which is not installed: {INSTALL}")
    if grpc_port and grpc_port == port:
        raise InputError(f"--port and --grpc-port are both {port}: each needs one of its own")
    if models is not None and dilate != 1.0:
        raise InputError("--dilate is for stand-in models: real ones take the time they take")
    if detach:
        words = ["serve", "up", str(plan), "--dilate", str(dilate), "--host", host, "--port", str(port)]
        words += ["--grpc-port", str(grpc_port)]
        words += ["--standby" if standby else "--no-standby", "--calm-s", str(calm_s), "--state", str(state)]
        for name, path in (("--services", services), ("--models", models), ("--triton", triton)):
            words += [] if path is None else [name, str(path)]
        _detach(words, state)
        return
    grpc = None if library() is None else grpc_port
    # A real model may take minutes to load; a stand-in that takes one has failed.
    timing = TIMING if models is None else replace(TIMING, start_s=600.0)
    options = Options(dilate, standby, models, host, port, grpc, Rules(calm_s=calm_s), timing)
    _serve(plan, services, state, triton, options)


@app.command()
def status(
    state: StateDir = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Show what is served: the p99 of each service against its promise, each replica's share and servers.

    Exit code 1 means that a promise is broken at the moment, or that a service has no server.
    """
    from gpuloom.serve.state import State

    record = State(state).record()
    found = _ask(record)
    if output is Output.json:
        print_json({"address": _address(record), "grpc_address": _grpc_address(record), **found})
    else:
        emit([_row(service, replica) for service in found["services"] for replica in service["replicas"]], output)
    broken = any((one["p99_ms"] or 0.0) > one["slo_ms"] for one in found["services"])
    if broken or any(replica["serving"] is None for one in found["services"] for replica in one["replicas"]):
        raise typer.Exit(1)


@app.command()
def down(state: StateDir = STATE) -> None:
    """End what is served, also what is left of a deployment that was killed."""
    from gpuloom.serve.devices import stop_daemons
    from gpuloom.serve.state import State

    place = State(state)
    found = place.take_down()
    stop_daemons(place.mps_dir)
    typer.echo(f"{place.folder}: nothing runs any more" if found else f"{place.folder}: nothing was running", err=True)


def _serve(plan: Path, services: Path | None, folder: Path, triton: Path | None, options: "Options") -> None:
    import asyncio

    from gpuloom.serve.deploy import grants_of, prepare, serve
    from gpuloom.serve.deployment import read_plan
    from gpuloom.serve.devices import devices_of
    from gpuloom.serve.fleet.fleet import StartError
    from gpuloom.serve.state import State
    from gpuloom.serve.triton.environment import SetupError

    deployment = read_plan(plan, _workloads(services))
    batch_ms = None if options.models is not None else _times(deployment)
    _end_as_ctrl_c_does()  # what is being installed ends too
    with State(folder) as state:
        try:
            wish = prepare(deployment, batch_ms, state, options)
            devices = devices_of(grants_of(deployment), state.mps_dir)
            server = _triton(triton)
            try:
                asyncio.run(serve(deployment, wish, server, devices, state, options, _show, _tell))
            finally:
                devices.release()  # not before all threads have ended: one may have been starting an MPS daemon
        except (SetupError, StartError) as reason:
            typer.echo(f"gpuloom serve: {reason}", err=True)
            raise typer.Exit(1) from None
    typer.echo("nothing runs any more", err=True)


def _end_as_ctrl_c_does() -> None:
    """SIGTERM at once, but not without ending what was started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _workloads(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    from gpuloom.work.files import read_work

    return {service.id: service.workload for service in read_work(path)[1]}


def _times(deployment: "Deployment") -> "BatchMs":
    from gpuloom.perf.sharing.model import SharingModel
    from gpuloom.serve.times import batch_times
    from gpuloom.work.measured.service_figures import SHIPPED, load_service_figures

    kind = deployment.plan.gpu_type.partition("-")[0]
    model = SharingModel.from_figures(load_service_figures(kind)) if kind in SHIPPED else None
    return batch_times(deployment, model)


def _triton(told: Path | None) -> "Triton":
    from gpuloom.serve.triton.environment import Triton, ensure, is_triton

    if told is None:
        return ensure(lambda line: typer.echo(line, err=True))
    if not os.access(told, os.X_OK) or told.is_dir():
        raise InputError(f"--triton {told}: not a program; expected the path of a tritonserver")
    if not is_triton(told):
        raise InputError(f"--triton {told}: its --help is not that of Triton; expected the path of a tritonserver")
    backends = told.resolve().parent.parent / "backends"
    return Triton(told.resolve(), backends if backends.is_dir() else None)


def _show(event: dict[str, object]) -> None:
    if sys.stderr.isatty():
        clock = time.strftime("%H:%M:%S")
        typer.echo(f"{clock}  {event['event']:9} {event['server']}: {event['detail']}", err=True)


def _tell(record: "Record") -> None:
    from gpuloom.serve.gateway.grpc_client import INSTALL

    kind = "stand-in models" if record.standin else "your models"
    slow = f", time stretched by {record.dilate:g}" if record.dilate != 1.0 else ""
    grpc = _grpc_address(record)
    also = f"HTTP only: for gRPC, {INSTALL}" if grpc is None else grpc
    number = "1 service" if len(record.services) == 1 else f"{len(record.services)} services"
    typer.echo(f"serving {number} ({kind}{slow}) at {_address(record)} ({also})", err=True)


def _detach(words: list[str], state_dir: Path) -> None:
    """The same command in a session of its own."""
    from gpuloom.serve.state import State

    state = State(state_dir)
    if state.served():
        raise InputError(f"{state.folder}: something is served there already; name another --state, or take it down")
    state.folder.mkdir(parents=True, exist_ok=True)
    _end_as_ctrl_c_does()
    start = "from gpuloom.cli.main import main; main()"
    log_path = state.folder / "serve.log"
    with log_path.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", start, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while (record := _record_of(child.pid, state)) is None:
            if child.poll() is not None:
                typer.echo(log_path.read_text(errors="replace").strip(), err=True)
                raise typer.Exit(child.returncode or 1)
            time.sleep(0.05)
    except (KeyboardInterrupt, SystemExit):
        child.terminate()
        child.wait()
        raise
    _tell(record)


def _record_of(pid: int, state: "State") -> "Record | None":
    """What this process serves, if it does so already."""
    with suppress(InputError):
        record = state.record()
        return record if record.pid == pid else None
    return None


def _ask(record: "Record") -> dict[str, Any]:
    import json
    import urllib.request

    try:
        with urllib.request.urlopen(f"{_address(record)}/gpuloom/status", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
    except (OSError, ValueError) as error:
        typer.echo(f"gpuloom serve: {_address(record)} does not answer: {error}", err=True)
        raise typer.Exit(1) from None
    return found


def _address(record: "Record") -> str:
    from gpuloom.serve.gateway.grpc_client import address

    return f"http://{address(record.host, record.port)}"


def _grpc_address(record: "Record") -> str | None:
    from gpuloom.serve.gateway.grpc_client import address

    return None if record.grpc_port is None else f"grpc://{address(record.host, record.grpc_port)}"


def _row(service: dict[str, Any], replica: dict[str, Any]) -> dict[str, object]:
    ready = sum(server["phase"] == "ready" for server in replica["servers"])
    return {
        "service": service["name"],
        "replica": replica["replica"],
        "grant": replica["grant"],
        "level": replica["level"],
        "p99_ms": service["p99_ms"],
        "slo_ms": service["slo_ms"],
        "rate_rps": service["rate_rps"],
        "mean_batch": replica["mean_batch"],
        "requests": service["requests"],
        "above_slo": service["above_slo"],
        "servers_ready": ready,
        "serving": replica["serving"],
    }
