"""What is asked of the GPUs: jobs that end, services that stay. Only what a user can state; the trace has the truth."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class Kind(StrEnum):
    RIGID = "rigid"
    """Exactly `gpus` whole GPUs."""
    SLICEABLE = "sliceable"
    """One GPU or any part of it that has the memory."""
    ELASTIC = "elastic"
    """Between `min_gpus` and `max_gpus` whole GPUs, and may change between two starts or, `in_place`, while it runs."""


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What a job may have of the host beside its GPU, and when its silence means something. No policy looks at it."""

    user: str | None = None
    """Whose process it is, by name; None: whoever owns the work file."""
    cpus: float | None = None
    """So many CPUs at most, also 0.5; None: no limit. The same holds for the next two."""
    host_mem_mib: int | None = None
    """Main memory of all its processes together."""
    pids: int | None = None
    """Processes and threads that it may have at once."""
    log_max_mib: int = 1024
    """What is kept of its output, of each of the two streams."""
    stall_s: float | None = None
    """Without a new report for so long it has stalled; None: nobody minds."""
    restart_stalled: bool = False
    """Start it again from its checkpoint then, instead of only telling."""


NO_HOST_NEEDS = HostNeeds()


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work that ends, as its owner describes it."""

    id: str
    submit_s: float = 0.0
    kind: Kind = Kind.RIGID
    workload: str | None = None
    """What it runs, by the name under which it was measured ("resnet 128", "cifar10")."""
    gpus: int = 1
    """How many GPUs are asked for; an elastic job may get fewer or more."""
    min_gpus: int = 1
    max_gpus: int = 1
    mem_mib: int | None = None
    """Device memory it needs on each GPU; None if unknown."""
    priority: int = 0
    """Larger is more urgent."""
    batch: int | None = None
    """The global batch it was tuned for; None leaves the choice to the scheduler."""
    min_batch: int | None = None
    max_batch: int | None = None
    min_speed: float | None = None
    """Never below this speed relative to a whole GPU."""
    estimate_s: float | None = None
    """The owner's guess of its length on the GPUs it asks for."""
    command: tuple[str, ...] = ()
    host: HostNeeds = NO_HOST_NEEDS
    in_place: bool = False
    """An elastic job that takes another number of GPUs or another batch without leaving those it keeps."""
    max_local_batch: int | None = None
    """Most samples of one pass on one GPU: its memory; None if the owner does not say."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """As a log writes it: without what old ones do not know, where there is none: lines stay what they were."""
        from pydantic_core import core_schema

        def written(job: Job, fields: Any) -> Any:
            row = fields(job)
            if job.host == NO_HOST_NEEDS:
                row.pop("host", None)
            if not job.in_place:
                row.pop("in_place", None)
            if job.max_local_batch is None:
                row.pop("max_local_batch", None)
            return row

        schema = handler(source)
        return {**schema, "serialization": core_schema.wrap_serializer_function_ser_schema(written)}


@dataclass(frozen=True, slots=True)
class Service:
    """Inference that stays up: a model, how often it is asked, and how fast it promised to answer."""

    id: str
    workload: str
    rate_rps: float
    slo_p99_ms: float
    mem_mib: int | None = None
    priority: int = 0
    max_batch: int | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    """What a policy is told of a job beyond its description: only what it names in `told`, all else is None."""

    length_s: float | None = None
    """Seconds of work left at arrival, alone on what it asks for."""
    speeds: Mapping[str, Mapping[str, float]] | None = None
    """By GPU model: speed on each slice profile relative to the whole GPU; one that is absent lacks the memory."""
    step_s: tuple[float, ...] | None = None
    """Seconds per step at its own batch on 1, 2, 3… GPUs, packed on as few nodes as possible."""
    iterations: tuple[float, ...] | None = None
    """Steps at its own batch after which each epoch ends."""


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace together with the truth that only the measured world may know."""

    job: Job
    length_s: float | None = None
    """Seconds alone on what it asks for; None where the measured tables of its workload decide."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns of the original trace that a report may group by (cluster, user)."""
    stretch: float = 1.0
    """How much longer or shorter it trains than the measured tables of its workload say."""
