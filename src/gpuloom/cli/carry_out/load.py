"""`gpuloom load`: requests for a deployment, at random or regular times, and whether its promises held."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.serve.load.open_loop import Target
    from gpuloom.serve.load.schedule import Floats
    from gpuloom.serve.state import Endpoint, Record

ADDRESSES = "http://HOST:PORT/v2/models/NAME/infer or grpc://HOST:PORT/NAME"
To = Annotated[str, typer.Argument(metavar="TARGET", help=f"The --state of `serve up`, or {ADDRESSES}.")]
Service = Annotated[list[str] | None, typer.Option("--service", "-s", help="Only this service. Repeatable.")]
Rate = Annotated[
    list[str] | None,
    typer.Option("--rate", help="Requests per second: 200 for each service, or NAME=200. Default: as planned."),
]
Requests = Annotated[int | None, typer.Option("--requests", "-n", min=1, help="So many of each service.")]
Duration = Annotated[float | None, typer.Option("--duration", min=1e-3, help="Seconds on the clock. Default: 10.")]
Body = Annotated[
    Path | None, typer.Option("--body", help="File with the JSON of one request. Default: the stand-in's.")
]
Slo = Annotated[float | None, typer.Option("--slo-ms", min=1e-6, help="The p99 promised. Default: as planned.")]


def load(
    target: To,
    rate: Rate = None,
    arrivals: Annotated[str, typer.Option("--arrivals", help="poisson, regular or trace:FILE (CSV).")] = "poisson",
    requests: Requests = None,
    duration: Duration = None,
    service: Service = None,
    slo_ms: Slo = None,
    body: Body = None,
    grpc: Annotated[bool, typer.Option("--grpc", help="Ask the deployment over gRPC instead of HTTP.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1e-3, help="Seconds until a request is lost.")] = 60.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For random arrivals.")] = 0,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Send requests in an open loop and measure each from the moment it was due.

    \b
    gpuloom load gpuloom-serve --requests 5000
    gpuloom load gpuloom-serve --rate W6=300 --arrivals regular --duration 30
    gpuloom load http://127.0.0.1:8000/v2/models/m/infer --rate 50 --slo-ms 40 --body request.json
    gpuloom load grpc://127.0.0.1:8001/m --rate 50 --slo-ms 40 --body request.json

    Where time is dilated, rates, SLOs and latencies are the plan's. Exit code 1 means that a request was lost or that
    fewer than 99 of 100 were within the SLO.
    """
    import asyncio

    from gpuloom.serve.load.open_loop import drive

    if requests is not None and duration is not None:
        raise InputError("--requests and --duration exclude each other: give one")
    if requests is None and duration is None:
        duration = 10.0
    record, grpc = _record(target, service or ()), grpc or target.startswith("grpc:")
    _check_grpc(target, record, grpc)
    asked = _selected(record.services, service or ())
    rates = _rates(rate or (), {one.name for one in asked})
    if "://" in target and len(rates) < len(asked) and not arrivals.startswith("trace:"):
        raise InputError("--rate is missing: an address alone does not say how often it is asked")
    if body is None and "://" not in target and not record.standin:
        raise InputError("--body is missing: your own models are served there, and what they take is not known")
    targets = [
        _target(record, one, grpc, _body(one, body, grpc), times, slo_ms)
        for one, times in zip(asked, _times(record, asked, rates, arrivals, requests, duration, seed), strict=True)
    ]
    results = asyncio.run(drive(targets, timeout))
    rows = [result.row() for result in results]
    if output is Output.json:
        print_json({"arrivals": arrivals, "dilate": record.dilate, "standin": record.standin, "services": rows})
    else:
        emit(rows, output)
    for result in results:
        if result.why is not None:
            typer.echo(f"gpuloom load: {result.name}: the first that went wrong: {result.why}", err=True)
    if not all(result.kept for result in results):
        raise typer.Exit(1)


def _record(target: str, services: "list[str] | tuple[()]") -> "Record":
    """Of the deployment; an address is one of which only that is known."""
    from gpuloom.serve.state import Endpoint, Record, State

    if "://" not in target:
        return State(Path(target)).record()
    match = re.fullmatch(r"(http|grpc)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?(/\S*)?", target)
    path = (match and match[4]) or "/"
    port = 0 if match is None else int(match[3] or (80 if match[1] == "http" else 0))
    if match is None or not 0 < port < 65536 or (match[1] == "http" and path == "/"):
        raise InputError(f"{target!r} is not understood; expected {ADDRESSES}")
    host = match[2].strip("[]")
    if match[1] == "http":
        name = path.split("/")[-2] if path.count("/") > 1 else path
        return Record(0, host, port, 1.0, False, (Endpoint(name, path, 0.0, 0.0),))
    names = [path[1:]] if path != "/" else list(dict.fromkeys(services))
    if not names:
        raise InputError(f"{target} names no model: add /NAME, or --service NAME")
    return Record(0, host, 0, 1.0, False, tuple(Endpoint(name, "", 0.0, 0.0) for name in names), port)


def _check_grpc(target: str, record: "Record", grpc: bool) -> None:
    from gpuloom.serve.gateway.grpc_client import INSTALL, library

    if grpc and record.grpc_port is None:
        told = "an http:// address is asked over HTTP" if "://" in target else f"{target} is served over HTTP only"
        raise InputError(f"--grpc: {told}")
    if grpc and library() is None:
        raise InputError(f"gRPC needs grpcio, which is not installed: {INSTALL}")


def _selected(services: "tuple[Endpoint, ...]", names: "list[str] | tuple[()]") -> "list[Endpoint]":
    there = {one.name: one for one in services}
    for name in names:
        if name not in there:
            raise InputError(f"--service {name}: not served there; there are {', '.join(there)}")
    return [there[name] for name in dict.fromkeys(names)] or list(services)


def _rates(texts: "list[str] | tuple[()]", names: set[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e9:
            raise InputError(f"--rate {text}: expected requests per second above 0, or NAME=200")
        if equals and name not in names:
            raise InputError(f"--rate {text}: {name} is not asked; asked are {', '.join(sorted(names))}")
        found |= {name: value} if equals else dict.fromkeys(names - found.keys(), value)
    return found


def _times(
    record: "Record",
    asked: "list[Endpoint]",
    rates: dict[str, float],
    arrivals: str,
    requests: int | None,
    duration: float | None,
    seed: int,
) -> "list[Floats]":
    """When each service is asked, in seconds on the clock."""
    import numpy as np

    from gpuloom.serve.load.schedule import schedule

    plan_s = None if duration is None else duration / record.dilate
    found = []
    for number, one in enumerate(asked):
        # A trace keeps its own pace unless a rate is named.
        rate = rates.get(one.name, 0.0 if arrivals.startswith("trace:") else one.rate_rps)
        generator = np.random.default_rng(seed + number)
        due_s = schedule(arrivals, rate, requests, plan_s, generator, one.name)
        if not len(due_s):
            raise InputError(f"no request of {one.name} is due within {duration:g} s: give a longer --duration")
        found.append(due_s * record.dilate)
    return found


def _body(one: "Endpoint", path: Path | None, grpc: bool) -> bytes:
    from gpuloom.serve.gateway.kserve import infer_request
    from gpuloom.serve.load.open_loop import STANDIN_BODY
    from gpuloom.serve.triton.repository import model_name
    from gpuloom.work.source import read_text

    content = STANDIN_BODY if path is None else read_text(path, "the JSON of a request").encode()
    if not grpc:
        return content
    try:
        # The name as `serve up` gave it to the model; of an address, as it is.
        return infer_request(model_name(one.name) if one.path else one.name, content)
    except ValueError as error:
        raise InputError(f"{path}: {error}: expected the JSON of a request, which gRPC needs to be whole") from None


def _target(
    record: "Record", one: "Endpoint", grpc: bool, body: bytes, due_s: "Floats", slo_ms: float | None
) -> "Target":
    from gpuloom.serve.gateway.kserve import INFER
    from gpuloom.serve.load.open_loop import Target

    port, path = (record.grpc_port or 0, INFER) if grpc else (record.port, one.path)
    promised = slo_ms or one.slo_ms or None
    return Target(one.name, record.host, port, path, due_s, body, promised, record.dilate, grpc)
