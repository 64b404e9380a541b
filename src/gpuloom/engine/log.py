"""The log of a run: a header, every event, and every decision, as JSON lines. Replaying the events rebuilds the state.

Knows the format, not where the lines go: callers give it lines and take lines from it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from gpuloom.contract.policy import Policy
from gpuloom.engine.events import Event
from gpuloom.engine.machine import Decision, Engine
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster

VERSION = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What has to be known to replay: which policy decided, with which seed, on which GPUs."""

    gpus: str
    policy: str
    seed: int
    every_s: float | None = None
    version: int = VERSION


Entry = Header | Event | Decision
_KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in (Header, *get_args(Event), Decision)}


@cache
def _adapter(name: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(_KINDS[name])


def to_line(entry: Entry) -> str:
    name = type(entry).__name__
    return f'{{"{name}":{_adapter(name).dump_json(entry).decode()}}}\n'


def from_line(line: str, where: str) -> Entry:
    """One entry, or InputError that names `where` (file and line)."""
    from pydantic import ValidationError

    try:
        ((name, content),) = json.loads(line).items()
        entry: Entry = _adapter(name).validate_python(content)
    except (ValueError, AttributeError, KeyError, ValidationError):
        raise InputError(f"{where}: not an entry of a gpuloom log") from None
    return entry


def read(lines: Iterable[str], name: str) -> Iterator[Entry]:
    """Entries of a log. A last line without its newline was cut off while it was written, and is left out."""
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        entry = from_line(line, f"{name}:{number}")
        if (number == 1) != isinstance(entry, Header):
            raise InputError(f"{name}:{number}: a gpuloom log starts with one header")
        if isinstance(entry, Header) and entry.version != VERSION:
            raise InputError(f"{name}: log version {entry.version}, this gpuloom reads version {VERSION}")
        yield entry


def replay(
    lines: Iterable[str],
    name: str,
    cluster_of: Callable[[str], Cluster],
    policy_of: Callable[[Header, Cluster], Policy],
) -> Engine:
    """An engine in the state in which the log left it, the policy's memory included."""
    entries = read(lines, name)
    header = next(entries, None)
    if not isinstance(header, Header):
        raise InputError(f"{name}: empty, not a gpuloom log")
    cluster = cluster_of(header.gpus)
    engine = Engine(cluster, policy_of(header, cluster))
    for entry in entries:
        if not isinstance(entry, Header | Decision):
            engine.handle(entry)
    return engine
