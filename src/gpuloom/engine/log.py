"""The log of a run, version 2: a header, then every turn, as JSON lines with checksums. Version 1 is read as well.

    {"Header":{"version":2,"gpus":"1xA100-40GB","policy":"miso","seed":0,"cluster":[…]},"crc32":"89abcdef"}
    {"Turn":{"number":1,"events":[{"JobArrived":{…}}],"decision":{…},"memory":{…}},"crc32":"89abcdef"}

A turn is in the log as a whole or not at all. What has its default value is left out. The checksum is that of all the
text before it. Knows the format, not where the lines go: callers give it lines and take lines from it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, get_args
from zlib import crc32

from gpuloom.contract.view import USUAL_COSTS, MoveCosts
from gpuloom.engine.events import Event
from gpuloom.engine.machine import Decision
from gpuloom.engine.memory import difference
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, DescribedGpu, as_cluster, describe, parse_cluster

VERSION = 2
OLD_VERSION = 1
"""An event or a decision a line, without checksums; only read."""


@dataclass(frozen=True, slots=True)
class Header:
    """What has to be known to go on: which policy decided, with which seed, on which GPUs."""

    gpus: str
    """As people write a cluster."""
    policy: str
    seed: int
    every_s: float | None = None
    cluster: tuple[DescribedGpu, ...] = ()
    """The same GPUs one by one. Of a version 1 log: what the words above mean; () if they are not understood."""

    costs: MoveCosts = USUAL_COSTS
    """What the policy is told of them."""
    freezes: bool = False
    """A GPU that cannot be cut is frozen. In logs of before it was lost, and all on it with it."""

    def begins_on(self) -> Cluster:
        return as_cluster(self.cluster) if self.cluster else parse_cluster(self.gpus)


@dataclass(frozen=True, slots=True)
class Turn:
    """Some events that were handled together, and what was decided after the last of them."""

    number: int
    """From 1, without a gap."""
    events: tuple[Event, ...]
    decision: Decision | None = None
    memory: Any = None
    """How what the policy remembers has changed since the turn before (see `memory`); None: not, as far as was told."""


class Line(NamedTuple):
    """A whole line whose checksum holds, without it."""

    where: str
    """File and line, for whoever has to name it."""
    text: str
    version: int


Entry = Header | Event | Decision
_KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in (Header, *get_args(Event), Decision)}
_EVENTS = _KINDS.keys() - {"Header", "Decision"}
_TAIL = len(',"crc32":"89abcdef"}\n')


# ---- writing ---------------------------------------------------------------------------------------------------------


def header_line(header: Header) -> str:
    content = _dump(header).removeprefix("{")
    return _sealed(f'{{"Header":{{"version":{VERSION},{content}')


class Scribe:
    """Writes turns one after the other: numbers them, and of what the policy remembers takes down the change."""

    def __init__(self, number: int = 0, memory: object = None) -> None:
        self.number = number
        """Of the last turn."""
        self.memory = memory
        """As the log has it so far."""

    def line(self, events: Sequence[Event], decision: Decision | None = None, memory: object = None) -> str:
        """One more turn. `memory` None: nothing is known of it, or nothing is remembered."""
        self.number += 1
        parts = [f'"number":{self.number}', f'"events":[{",".join(map(_event_text, events))}]']
        if decision is not None:
            parts.append(f'"decision":{_dump(decision)}')
        change = None if memory is None else difference(self.memory, memory)
        if change is not None:
            self.memory = memory
            parts.append(f'"memory":{json.dumps(change, separators=(",", ":"))}')
        return _sealed(f'{{"Turn":{{{",".join(parts)}}}')


def _event_text(event: Event) -> str:
    return f'{{"{type(event).__name__}":{_dump(event)}}}'


def text_of(decision: Decision | None) -> str:
    """A decision as it comes back from a log: two are the same if their texts are."""
    if decision is None:
        return "null"
    # There and back, since JSON knows no infinite value and makes none of it.
    return _dump(_parsed("Decision", json.loads(_dump(decision)), "decision"))


def _dump(entry: Entry) -> str:
    return str(_adapter(type(entry).__name__).dump_json(entry, exclude_defaults=True).decode())


def _sealed(text: str) -> str:
    return f'{text},"crc32":"{crc32(text.encode()):08x}"}}\n'


@cache
def _adapter(name: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(_KINDS[name])


# ---- reading ---------------------------------------------------------------------------------------------------------


def opened(lines: Iterable[str], name: str) -> tuple[Header, Iterator[Line]]:
    """The header and the other lines, those of version 2 checked, none of them parsed yet.

    A last line that is cut off, or whose checksum fails, was being written and is left out.
    """
    numbered = enumerate(lines, 1)
    first = next((line for _, line in numbered), "")
    version, header = _header(first, name)
    return header, (_old_lines if version == OLD_VERSION else _checked)(numbered, name)


def version_of(lines: Sequence[str], name: str) -> int:
    return _header(lines[0] if lines else "", name)[0]


def _checked(numbered: Iterable[tuple[int, str]], name: str) -> Iterator[Line]:
    broken: int | None = None
    for number, line in numbered:
        if broken is not None:
            raise InputError(f"{name}:{broken}: damaged: its checksum is not that of its text, and lines follow it")
        text = line[:-_TAIL]
        if line == _sealed(text):
            yield Line(f"{name}:{number}", text + "}", VERSION)
        else:
            broken = number


def _old_lines(numbered: Iterable[tuple[int, str]], name: str) -> Iterator[Line]:
    for number, line in numbered:
        if not line.endswith("\n"):
            return
        yield Line(f"{name}:{number}", line, OLD_VERSION)


def _header(line: str, name: str) -> tuple[int, Header]:
    """The version of the log and its header."""
    content = _content(line, "Header")
    version = content.get("version") if content is not None else None
    if content is None or not isinstance(version, int):
        raise InputError(f"{name}: not a gpuloom log: expected a header in its first line")
    if version not in (OLD_VERSION, VERSION):
        raise InputError(f"{name}: log version {version}, this gpuloom reads versions {OLD_VERSION} and {VERSION}")
    if not line.endswith("\n") or (version == VERSION and line != _sealed(line[:-_TAIL])):
        raise InputError(f"{name}:1: damaged: the header is cut off, or its checksum is not that of its text")
    header: Header = _parsed("Header", content, f"{name}:1")
    return version, _with_cluster(header) if version == OLD_VERSION else header


def _content(line: str, kind: str) -> dict[str, Any] | None:
    """What stands behind the name of an entry; None if it is not such an entry."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    content = found.get(kind) if isinstance(found, dict) else None
    return content if isinstance(content, dict) else None


def _with_cluster(header: Header) -> Header:
    try:
        return replace(header, cluster=describe(parse_cluster(header.gpus)))
    except InputError:
        return header  # a driver's own name for its GPU, which version 1 did not explain


def entries_of(line: Line) -> list[Event | Decision]:
    """What a line tells, in order; InputError that names it if it is not such a line."""
    if line.version == OLD_VERSION:
        return [_old_entry(line)]
    turn = _turn(line)
    return [*turn.events, *([] if turn.decision is None else [turn.decision])]


def _turn(line: Line) -> Turn:
    content = _content(line.text, "Turn")
    try:
        if content is None:
            raise ValueError
        events = tuple(_event(event, line.where) for event in content["events"])
        told = content.get("decision")
        decision = None if told is None else _parsed("Decision", told, line.where)
        return Turn(int(content["number"]), events, decision, content.get("memory"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{line.where}: not a turn of a gpuloom log") from None


def _event(told: Any, where: str) -> Event:
    ((name, content),) = told.items()
    if name not in _EVENTS:
        raise InputError(f"{where}: event {name[:40]!r} is not known to this gpuloom; was it written by a newer one?")
    event: Event = _parsed(name, content, where)
    return event


def _old_entry(line: Line) -> Event | Decision:
    try:
        told = json.loads(line.text)
        if "Decision" in told:
            decision: Decision = _parsed("Decision", told["Decision"], line.where)
            return decision
        return _event(told, line.where)
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise InputError(f"{line.where}: not an entry of a gpuloom log") from None


def _parsed(name: str, content: Any, where: str) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(name).validate_python(content)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(f"{where}: not a {name} of a gpuloom log: {field or 'it'} is wrong") from None


def read_turns(lines: Iterable[str], name: str) -> tuple[Header, Iterator[Turn]]:
    """The header and every turn. Of a version 1 log: an event with the decision that follows it is a turn."""
    header, rest = opened(lines, name)
    return header, _turns(rest)


def _turns(lines: Iterable[Line]) -> Iterator[Turn]:
    number = 0
    waiting: Turn | None = None
    """Of version 1, an event whose decision may follow."""
    for line in lines:
        if line.version == VERSION:
            turn = _turn(line)
            if turn.number != number + 1:
                raise InputError(f"{line.where}: turn {turn.number} follows turn {number}: expected {number + 1}")
            number = turn.number
            yield turn
            continue
        entry = _old_entry(line)
        if isinstance(entry, Decision):
            if waiting is None:
                raise InputError(f"{line.where}: a decision that follows no event")
            waiting = replace(waiting, decision=entry)
        if waiting is not None:
            yield waiting
            waiting = None
        if not isinstance(entry, Decision):
            number += 1
            waiting = Turn(number, (entry,))
    if waiting is not None:
        yield waiting


def read(lines: Iterable[str], name: str) -> Iterator[Entry]:
    """Header, events and decisions in order, whatever the version."""
    header, turns = read_turns(lines, name)
    yield header
    for turn in turns:
        yield from turn.events
        if turn.decision is not None:
            yield turn.decision
