"""The flat work file as pydantic models: which fields exist, their units and ranges. The JSON Schema comes from it.

Imported only by `files`, when a file is read: pydantic takes a while to import and has no place in the core.
"""

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from gpuloom.work import units
from gpuloom.work.source import MAX_COUNT, shown

MAX_COPIES = 100_000
MAX_CPUS = 100_000.0
MIN_CPUS = 0.01
"""The kernel grants no less: a millisecond in every hundred."""
MAX_PIDS = 1 << 22
"""The most that a Linux host can have."""
_USER = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}"
_TEXT = {"type": "string", "minLength": 1}


def _name(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > 200 or not value.isprintable():
        raise ValueError(
            f"is {shown(value)}, but must be a text of 1 to 200 printable characters (in quotes if a number)"
        )
    return value


def _command(value: object) -> tuple[str, ...]:
    """A shell-like line or a list of words."""
    accepted = "a command line such as 'python train.py' or a list of texts"
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"is {shown(value)}, which has unbalanced quotes ({error}): expected {accepted}") from None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"is {shown(value)}, but must be {accepted}")
    if not words[0]:
        raise ValueError(f"is {shown(value)}, whose first word is empty: expected {accepted}")
    if any("\0" in word for word in words):
        raise ValueError(f"is {shown(value)}, which has a NUL in it: expected {accepted}")
    return tuple(words)


def _user(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_USER, value, re.ASCII):
        raise ValueError(f"is {shown(value)}, but must be the name of an account such as alice, not its number")
    return value


def _length(value: object) -> float:
    length_s = units.seconds(value)
    if length_s == 0:
        raise ValueError("is 0, but must be a time above 0 such as 2h")
    return length_s


def _either(number: str, example: str, about: str) -> WithJsonSchema:
    """A number or a text with its unit, for the JSON Schema."""
    return WithJsonSchema({"type": [number, "string"], "description": about, "examples": [example]})


Name = Annotated[str, BeforeValidator(_name), WithJsonSchema(_TEXT | {"maxLength": 200})]
Command = Annotated[
    tuple[str, ...],
    BeforeValidator(_command),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Memory = Annotated[
    int, BeforeValidator(units.memory_mib), _either("integer", "12G", "Device memory on each GPU; a number is MiB")
]
HostMemory = Annotated[
    int, BeforeValidator(units.memory_mib), _either("integer", "16G", "Main memory; a number is MiB")
]
LogSize = Annotated[
    int, BeforeValidator(units.memory_mib), _either("integer", "1G", "Kept of each output; a number is MiB")
]
User = Annotated[str, BeforeValidator(_user), WithJsonSchema({"type": "string", "pattern": f"^{_USER}$"})]
Seconds = Annotated[float, BeforeValidator(units.seconds), _either("number", "90m", "A time; a number is seconds")]
Length = Annotated[float, BeforeValidator(_length), _either("number", "2h", "A time above 0; a number is seconds")]
Latency = Annotated[
    float,
    BeforeValidator(units.milliseconds),
    WithJsonSchema({"type": "string", "description": "A time with its unit", "examples": ["40ms"]}),
]
Rate = Annotated[float, BeforeValidator(units.rate_rps), _either("number", "1e6", "Requests per second, above 0")]
Priority = Annotated[
    int, BeforeValidator(units.priority), _either("integer", "high", "low, normal, high or a number; larger first")
]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class Entry(BaseModel):
    """One item of a list in the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JobEntry(Entry):
    """A piece of work that ends."""

    name: Name
    command: Command | None = None
    kind: Literal["rigid", "sliceable", "elastic"] | None = Field(None, description="Inferred if absent")
    workload: Name | None = Field(None, description="The name under which it was measured, such as resnet 128")
    gpus: Count | None = Field(None, description="GPUs asked for; 1 if absent")
    min_gpus: Count | None = None
    max_gpus: Count | None = None
    memory: Memory | None = None
    priority: Priority = 0
    batch: Count | None = Field(None, description="Global batch it was tuned for")
    min_batch: Count | None = None
    max_batch: Count | None = None
    max_local_batch: Count | None = Field(None, description="Most samples of a pass on one GPU, of an elastic job")
    resize: Literal["restart", "in-place"] | None = Field(None, description="How an elastic job takes other GPUs")
    min_speed: float | None = Field(None, gt=0, le=1, description="Never slower than this part of a whole GPU's speed")
    length: Length | None = Field(None, description="The owner's estimate of its length on the GPUs it asks for")
    submit: Seconds = Field(0.0, description="When it is submitted, from the start of the simulation")
    count: int = Field(1, ge=1, le=MAX_COPIES, description="So many copies, named name-1, name-2, …")
    user: User | None = Field(None, description="Whose process it is; the owner of this file if absent")
    cpus: float | None = Field(None, ge=MIN_CPUS, le=MAX_CPUS, description="CPUs of the host at most, also 0.5")
    host_memory: HostMemory | None = Field(None, description="Main memory of all its processes at most")
    pids: int | None = Field(None, ge=1, le=MAX_PIDS, description="Processes and threads at most")
    log_max: LogSize = Field(1024, description="What is kept of its output; 1G if absent")
    stall_s: Length | None = Field(None, description="Without a new report for so long it has stalled")
    on_stall: Literal["tell", "restart"] | None = Field(None, description="What is done then; tell if absent")


class ServiceEntry(Entry):
    """Inference that stays up."""

    name: Name
    workload: Name
    rate: Rate
    p99: Latency
    memory: Memory | None = None
    priority: Priority = 0
    max_batch: Count | None = None


class WorkFile(Entry):
    """A gpuloom work file: jobs, services, or both."""

    jobs: list[JobEntry] = Field(default_factory=list)
    services: list[ServiceEntry] = Field(default_factory=list)


def json_schema() -> dict[str, Any]:
    schema = WorkFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
