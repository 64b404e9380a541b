"""What is asked: services with their promises, and how requests arrive; and the questions that make no sense.

Whatever is wrong with a question is one sentence. A service that can be asked for but not served is no error: the plan
lists it as unplaced, with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.interference import unknown
from gpuloom.provision.offer import Offer
from gpuloom.work.model import Service

MAX_RATE_RPS = 1e9
SHORTEST_SLO_MS, LONGEST_SLO_MS = 1e-3, 1e7


class Pattern(StrEnum):
    """How requests arrive."""

    POISSON = "poisson"
    """At random, independent of each other; dealt at random to replicas, so that each sees Poisson arrivals too."""
    REGULAR = "regular"
    """At equal gaps; dealt to replicas in turn."""
    TRACE = "trace"
    """As recorded, scaled to each service's rate; dealt to replicas in turn."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for, whatever GPUs it is to run on."""

    services: tuple[Service, ...]
    pattern: Pattern = Pattern.POISSON
    gaps: Mapping[str, Floats] = field(default_factory=dict)
    """For a trace: gaps between requests by service, of mean 1; under "" those of every other service."""

    def __post_init__(self) -> None:
        check_services(self.services)
        if self.pattern is Pattern.TRACE and not self.gaps:
            raise InputError("arrivals are those of a trace, but no trace was given: expected trace:FILE")

    @property
    def slo_ms(self) -> dict[str, float]:
        return {service.id: service.slo_p99_ms for service in self.services}

    @property
    def workloads(self) -> dict[str, str]:
        return {service.id: service.workload for service in self.services}

    def gaps_of(self, service: str) -> Floats:
        return self.gaps[service if service in self.gaps else ""]

    def only(self, services: Iterable[Service]) -> "Demand":
        return replace(self, services=tuple(services))


@dataclass(frozen=True, slots=True)
class Problem:
    """A demand that one type of GPU is to serve, in shares."""

    services: tuple[Service, ...]
    offer: Offer
    pattern: Pattern = Pattern.POISSON
    gaps: Mapping[str, Floats] = field(default_factory=dict)
    margin: float = 1.0
    """Part of the model's error bar that is kept free: 1 is the upper end of its 90 % interval, 0 the prediction."""
    demand: Demand = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "demand", Demand(self.services, self.pattern, self.gaps))
        for service in self.demand.services:
            if service.workload not in self.offer.model.names:
                why = unknown(service.workload, self.offer.model.names)
                raise InputError(f"service {service.id}: {why}, on {self.offer.name}")
        if not 0.0 <= self.margin <= 3.0:
            raise InputError(f"the margin is {self.margin}: expected 0 to 3 error bars")

    @property
    def slo_ms(self) -> dict[str, float]:
        return self.demand.slo_ms


def check_services(services: Sequence[Service]) -> None:
    if not services:
        raise InputError("there are no services to plan for: expected one or more under 'services:'")
    seen: set[str] = set()
    for service in services:
        if service.id in seen:
            raise InputError(f"two services are called {service.id!r}: names must be unique")
        seen.add(service.id)
        if not (isfinite(service.rate_rps) and 0.0 < service.rate_rps <= MAX_RATE_RPS):
            raise InputError(
                f"service {service.id}: the rate is {service.rate_rps:g} requests per second, but must be above 0 and"
                f" at most {MAX_RATE_RPS:g}"
            )
        if not SHORTEST_SLO_MS <= service.slo_p99_ms <= LONGEST_SLO_MS:
            raise InputError(
                f"service {service.id}: the p99 is {service.slo_p99_ms:g} ms, but must be from {SHORTEST_SLO_MS:g} to"
                f" {LONGEST_SLO_MS:g} ms"
            )
