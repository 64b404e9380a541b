"""`gpuloom load`: requests for a deployment, at random or regular times, and whether its promises held."""

from dataclasses import asdict
from typing import Annotated

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.serve.load import ADDRESSES

To = Annotated[str, typer.Argument(metavar="TARGET", help=f"The --state of `serve up`, or {ADDRESSES}.")]
Service = Annotated[list[str] | None, typer.Option("--service", "-s", help="Only this service. Repeatable.")]
Rate = Annotated[
    list[str] | None,
    typer.Option("--rate", help="Requests per second: 200 for each service, or NAME=200. Default: as planned."),
]
Requests = Annotated[int | None, typer.Option("--requests", "-n", min=1, help="So many of each service.")]
Duration = Annotated[float | None, typer.Option("--duration", min=1e-3, help="Seconds on the clock. Default: 10.")]
Body = Annotated[
    list[str] | None,
    typer.Option(
        "--body",
        metavar="[NAME=]FILE",
        help="JSON of one request, of every service or of one. Default: made up from what the model takes. Repeatable.",
    ),
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
    from gpuloom.serve.load.targets import Options, load_of

    options = Options(rate or (), arrivals, requests, duration, service or (), slo_ms, body or (), grpc, seed)
    planned = load_of(target, options)
    results = asyncio.run(drive(planned.targets, timeout))
    rows = [result.row() for result in results]
    if output is Output.json:
        served = planned.deployment
        noise = None if served.noise is None else asdict(served.noise)
        told = {"arrivals": arrivals, "dilate": served.dilate, "standin": served.standin, "noise": noise}
        print_json({**told, "services": rows})
    else:
        emit(rows, output)
    if output is Output.table and planned.deployment.noise is not None:
        typer.echo(f"on a CPU device: {planned.deployment.noise}")
    for result in results:
        if result.why is not None:
            typer.echo(f"gpuloom load: {result.name}: the first that went wrong: {result.why}", err=True)
    if not all(result.kept for result in results):
        raise typer.Exit(1)
