"""`gpuloom load`: requests for a deployment, at random or regular times, and whether its promises held."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.serve.load import Target
    from gpuloom.serve.state import Endpoint, Record

To = Annotated[
    str, typer.Argument(metavar="TARGET", help="The --state of `serve up`, or http://HOST:PORT/v2/models/NAME/infer.")
]
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
    timeout: Annotated[float, typer.Option("--timeout", min=1e-3, help="Seconds until a request is lost.")] = 60.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For random arrivals.")] = 0,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Send requests in an open loop and measure each from the moment it was due.

    \b
    gpuloom load gpuloom-serve --requests 5000
    gpuloom load gpuloom-serve --rate W6=300 --arrivals regular --duration 30
    gpuloom load http://127.0.0.1:8000/v2/models/m/infer --rate 50 --slo-ms 40 --body request.json

    Where time is dilated, rates, SLOs and latencies are the plan's. Exit code 1 means that a request was lost or that
    fewer than 99 of 100 were within the SLO.
    """
    import asyncio

    from gpuloom.serve.load import drive

    if requests is not None and duration is not None:
        raise InputError("--requests and --duration exclude each other: give one")
    if requests is None and duration is None:
        duration = 10.0
    record = _record(target)
    asked = _selected(record.services, service or ())
    rates = _rates(rate or (), {one.name for one in asked})
    if record.port and target.startswith("http") and not rates and not arrivals.startswith("trace:"):
        raise InputError("--rate is missing: an address alone does not say how often it is asked")
    content = None if body is None else body.read_bytes()
    targets = [
        _target(record, one, rates, arrivals, requests, duration, slo_ms, content, seed + number)
        for number, one in enumerate(asked)
    ]
    results = asyncio.run(drive(targets, timeout))
    rows = [result.row() for result in results]
    if output is Output.json:
        print_json({"arrivals": arrivals, "dilate": record.dilate, "standin": record.standin, "services": rows})
    else:
        emit(rows, output)
    if not all(result.kept for result in results):
        raise typer.Exit(1)


def _record(target: str) -> "Record":
    from gpuloom.serve.state import Endpoint, Record, State

    if not target.startswith(("http:", "https:")):
        return State(Path(target)).record()
    match = re.fullmatch(r"http://([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?(/\S*)", target)
    if match is None or not 0 < int(match[2] or 80) < 65536:
        raise InputError(f"{target!r} is not understood; expected http://HOST:PORT/v2/models/NAME/infer")
    name = match[3].split("/")[-2] if match[3].count("/") > 1 else match[3]
    return Record(0, match[1].strip("[]"), int(match[2] or 80), 1.0, False, (Endpoint(name, match[3], 0.0, 0.0),))


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


def _target(
    record: "Record",
    one: "Endpoint",
    rates: dict[str, float],
    arrivals: str,
    requests: int | None,
    duration: float | None,
    slo_ms: float | None,
    body: bytes | None,
    seed: int,
) -> "Target":
    import numpy as np

    from gpuloom.serve.arrivals import schedule
    from gpuloom.serve.load import STANDIN_BODY, Target

    # A trace keeps its own pace unless a rate is named.
    rate = rates.get(one.name, 0.0 if arrivals.startswith("trace:") else one.rate_rps)
    plan_s = None if duration is None else duration / record.dilate
    due_s = schedule(arrivals, rate, requests, plan_s, np.random.default_rng(seed), one.name)
    promised = slo_ms or one.slo_ms or None
    return Target(
        one.name,
        record.host,
        record.port,
        one.path,
        due_s * record.dilate,
        body or STANDIN_BODY,
        promised,
        record.dilate,
    )
