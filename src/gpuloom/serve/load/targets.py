"""Who is asked, with what and when: from a deployment's folder, or an address, and the options of `gpuloom load`."""

import json
import re
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.serve.deployment import model_name
from gpuloom.serve.gateway.grpc_client import INSTALL, address, library
from gpuloom.serve.gateway.kserve import INFER, infer_request
from gpuloom.serve.load import ADDRESSES
from gpuloom.serve.load.open_loop import STANDIN_BODY, Target
from gpuloom.serve.load.request import Body, made_up_body
from gpuloom.serve.load.schedule import replayed, schedule
from gpuloom.serve.state import Endpoint, Record, State
from gpuloom.work.measured.arrival_traces import read_arrival_times, times_of
from gpuloom.work.source import did_you_mean, read_text, shown

DURATION_S = 10.0
ANSWER_S = 10.0
LEAST_RPS, MOST_RPS = 1e-6, 1e9
"""As in a plan."""
_ADDRESS = re.compile(r"(http|grpc)://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?(/\S*)?")
_TRACE = "trace:"


@dataclass(frozen=True, slots=True)
class Options:
    """As they were typed."""

    rates: Sequence[str] = ()
    """Requests per second: a number for every service, or NAME=NUMBER. Of those not named: as planned."""
    arrivals: str = "poisson"
    requests: int | None = None
    duration_s: float | None = None
    """On the clock. Neither of the two: `DURATION_S`."""
    services: Sequence[str] = ()
    """None: all."""
    slo_ms: float | None = None
    bodies: Sequence[str] = ()
    """FILE for every service, or NAME=FILE. Of those without: made up from what their model says that it takes."""
    grpc: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    deployment: Record
    targets: list[Target]


def load_of(target: str, options: Options) -> Load:
    """InputError if the options and what is served there do not go together."""
    if options.requests is not None and options.duration_s is not None:
        raise InputError("--requests and --duration exclude each other: give one")
    is_address = "://" in target
    record = _addressed(target, options.services) if is_address else State(Path(target)).record()
    grpc = options.grpc or target.startswith("grpc:")
    _check_grpc(target, record, grpc)
    services = _selected(record.services, options.services)
    rates = _rates(options.rates, {service.name for service in services})
    if is_address and len(rates) < len(services) and not options.arrivals.startswith(_TRACE):
        raise InputError("--rate is missing: an address alone does not say how often it is asked")
    bodies = bodies_of(options.bodies, [service.name for service in services])
    due_s = _due_s(record, services, rates, options)
    own = not is_address and not record.standin
    asked = [_body(record, service, bodies.get(service.name), grpc, own) for service in services]
    targets = [
        _target(record, service, grpc, times, options, body)
        for service, times, body in zip(services, due_s, asked, strict=True)
    ]
    return Load(record, targets)


def _addressed(address: str, names: Sequence[str]) -> Record:
    """A deployment of which only its address is known."""
    match = _ADDRESS.fullmatch(address)
    path = (match and match[4]) or "/"
    port = 0 if match is None else int(match[3] or (80 if match[1] == "http" else 0))
    if match is None or not 0 < port < 65536 or (match[1] == "http" and path == "/"):
        raise InputError(f"{address!r} is not understood; expected {ADDRESSES}")
    host = match[2].strip("[]")
    if match[1] == "http":
        name = path.split("/")[-2] if path.count("/") > 1 else path
        return Record(0, host, port, 1.0, False, (Endpoint(name, path, 0.0, 0.0),))
    models = [path[1:]] if path != "/" else list(dict.fromkeys(names))
    if not models:
        raise InputError(f"{address} names no model: add /NAME, or --service NAME")
    return Record(0, host, 0, 1.0, False, tuple(Endpoint(model, "", 0.0, 0.0) for model in models), port)


def _check_grpc(target: str, record: Record, grpc: bool) -> None:
    if grpc and record.grpc_port is None:
        why = "an http:// address is asked over HTTP" if "://" in target else f"{target} is served over HTTP only"
        raise InputError(f"--grpc: {why}")
    if grpc and library() is None:
        raise InputError(f"gRPC needs grpcio, which is not installed: {INSTALL}")


def _selected(services: tuple[Endpoint, ...], names: Sequence[str]) -> list[Endpoint]:
    by_name = {service.name: service for service in services}
    for name in names:
        if name not in by_name:
            raise InputError(f"--service {name}: not served there; there are {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)] or list(services)


def _rates(texts: Sequence[str], names: Collection[str]) -> dict[str, float]:
    """Requests per second of the services that the texts speak of."""
    rates: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            rate_rps = float(number)
        except ValueError:
            rate_rps = 0.0
        if not LEAST_RPS <= rate_rps < MOST_RPS:
            raise InputError(f"--rate {text}: expected requests per second above 0, or NAME=200")
        if equals and name not in names:
            raise InputError(f"--rate {text}: {name} is not asked; asked are {', '.join(sorted(names))}")
        rates |= {name: rate_rps} if equals else dict.fromkeys(set(names) - rates.keys(), rate_rps)
    return rates


def _due_s(record: Record, services: Sequence[Endpoint], rates: dict[str, float], options: Options) -> list[Floats]:
    """When each service is asked, in seconds on the clock."""
    duration_s = DURATION_S if options.requests is None and options.duration_s is None else options.duration_s
    plan_s = None if duration_s is None else duration_s / record.dilate
    path = Path(options.arrivals.removeprefix(_TRACE)) if options.arrivals.startswith(_TRACE) else None
    recorded = {} if path is None else read_arrival_times(path)
    due_s = []
    for number, service in enumerate(services):
        if path is None:
            rate_rps, generator = (
                rates.get(service.name, service.rate_rps),
                np.random.default_rng(options.seed + number),
            )
            times = schedule(options.arrivals, rate_rps, options.requests, plan_s, generator)
        else:  # a trace keeps its own pace unless a rate is named
            own = times_of(service.name, recorded, path)
            times = replayed(own, rates.get(service.name, 0.0), options.requests, plan_s)
        if not len(times):
            raise InputError(f"no request of {service.name} is due within {duration_s:g} s: give a longer --duration")
        due_s.append(times * record.dilate)
    return due_s


def bodies_of(texts: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """By name, from FILE for all and NAME=FILE; InputError for a name that there is not."""
    found: dict[str, Path] = {}
    for text in texts:
        before, equals, after = text.partition("=")
        if not equals or Path(text).exists():
            found = dict.fromkeys(names, Path(text)) | found
        elif before in names:
            found[before] = Path(after)
        else:
            raise InputError(
                f"--body {text}: nobody is called {shown(before)}{did_you_mean(before, names)}:"
                f" expected one of {', '.join(names)}"
            )
    return found


def _target(record: Record, service: Endpoint, grpc: bool, due_s: Floats, options: Options, body: Body) -> Target:
    port, path = (record.grpc_port or 0, INFER) if grpc else (record.port, service.path)
    promised_ms = options.slo_ms or service.slo_ms or None
    return Target(service.name, record.host, port, path, due_s, body, promised_ms, record.dilate, grpc)


def _body(record: Record, service: Endpoint, path: Path | None, grpc: bool, own: bool) -> Body:
    """`own`: models of the user's are served there, not stand-ins, whose requests are known."""
    if path is None and own:
        return _made_up(record, service, grpc)
    body = STANDIN_BODY if path is None else Body(read_text(path, "the JSON of a request").encode())
    if not grpc:
        return body
    try:
        # The name as `serve up` gave it to the model; of an address, as it is.
        return Body(infer_request(model_name(service.name) if service.path else service.name, body.content))
    except ValueError as error:
        raise InputError(f"{path}: {error}: expected the JSON of a request, which gRPC needs to be whole") from None


def _made_up(record: Record, service: Endpoint, grpc: bool) -> Body:
    missing = f"--body {service.name}=FILE is missing"
    if grpc:
        raise InputError(f"{missing}: over gRPC requests are not made up")
    url = f"http://{address(record.host, record.port)}{service.path.removesuffix('/infer')}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return made_up_body(json.load(answer), 1)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{missing}, and a request cannot be made up: {error}") from None
