"""A type of GPU that can be had, and what is done with it: shares of whole GPUs, or MIG instances from measured points.

Both answer the same questions, so that a plan may use either, or both: plan these services; stay near that plan; what
does each service cost at least; how long do the batches of these replicas take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from gpuloom.errors import InputError
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.arrays import Floats
from gpuloom.perf.queueing.batching import BatchTimes
from gpuloom.perf.sharing.interference import InterferenceModel
from gpuloom.provision.demand import Demand, Pattern, Problem
from gpuloom.provision.mig.options import Options, batch_times, by_latency, by_queue, fitting
from gpuloom.provision.mig.planner import placeable, plan_mig
from gpuloom.provision.mig.stay import stay as stay_on_mig
from gpuloom.provision.mig.values import values_of as mig_values
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import Old, Replica, ServicePlan
from gpuloom.provision.shares.bound import values_of
from gpuloom.provision.shares.confirm import times_on
from gpuloom.provision.shares.items import Grid
from gpuloom.provision.shares.planner import law_of
from gpuloom.provision.shares.replicas import split
from gpuloom.provision.shares.stay import stay as stay_on_shares
from gpuloom.provision.strategies import strategy as find_strategy
from gpuloom.work.measured.mig_services import MigPoint
from gpuloom.work.model import Service


class Supply(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def cost_per_hour(self) -> float: ...
    @property
    def models(self) -> Sequence[str]:
        """Whose times are known on this type."""
        ...

    def plan(self, demand: Demand) -> ServicePlan: ...
    def stay(self, demand: Demand, previous: ServicePlan) -> tuple[ServicePlan, Old]:
        """A plan near a previous one on this type, and which of its GPUs each GPU is."""
        ...

    def values(self, demand: Demand) -> list[Floats] | None:
        """Sets of values of the services that sum to at most 1 on any GPU, infinite for whom none serves.

        The first is what a service takes of a GPU at least. None: nothing is known.
        """
        ...

    def times(self, replicas: Sequence[Replica], workloads: Mapping[str, str]) -> dict[Replica, BatchTimes]:
        """How long batches take there, without a margin."""
        ...


@dataclass(frozen=True, slots=True)
class SharedGpus:
    offer: Offer
    margin: float = 1.0
    strategy: str = "gpuloom"

    @property
    def name(self) -> str:
        return self.offer.name

    @property
    def cost_per_hour(self) -> float:
        return self.offer.cost_per_hour

    @property
    def models(self) -> Sequence[str]:
        return self.offer.model.names

    def plan(self, demand: Demand) -> ServicePlan:
        return find_strategy(self.strategy)(self._problem(demand))

    def stay(self, demand: Demand, previous: ServicePlan) -> tuple[ServicePlan, Old]:
        return stay_on_shares(self._problem(demand), previous)

    def values(self, demand: Demand) -> list[Floats] | None:
        if demand.pattern is Pattern.TRACE:
            return None
        law = law_of(self._problem(demand))
        services = self._problem(demand).services
        rates = np.array([service.rate_rps / 1000.0 for service in services])
        served = split(services, rates, self.offer, Grid.of(self.offer, law, self.margin), law).services
        names = {service.id for service in served}
        is_served = np.array([service.id in names for service in demand.services])
        if not served:
            return [np.full(len(is_served), np.inf)]
        shared = Grid.shared(self.offer, law, self.margin)
        sets = []
        for values in values_of(served, rates[is_served], self.offer, shared, law):
            sets.append(np.full(len(is_served), np.inf))
            sets[-1][is_served] = values
        return sets

    def times(self, replicas: Sequence[Replica], workloads: Mapping[str, str]) -> dict[Replica, BatchTimes]:
        return times_on(replicas, workloads, self.offer.model)

    def in_world(self, model: InterferenceModel) -> "SharedGpus":
        """The same GPUs where batches take as long as another model says."""
        return replace(self, offer=replace(self.offer, model=model))

    def _problem(self, demand: Demand) -> Problem:
        services = tuple(_within(service, self.offer.most_batch) for service in demand.services)
        return Problem(services, self.offer, demand.pattern, demand.gaps, self.margin)


def _within(service: Service, most_batch: Mapping[str, int]) -> Service:
    """Batches larger than any that was measured are not planned with."""
    most = most_batch.get(service.workload)
    return service if most is None else replace(service, max_batch=min(service.max_batch or most, most))


MIG_STRATEGIES = {
    "gpuloom": "any instances, with as many processes inside as serve most",
    "one-process": "any instances, with one process in each",
    "whole-gpus": "no cuts: processes share whole GPUs",
}


@dataclass(frozen=True, slots=True)
class MigGpus:
    gpu: GpuModel
    points: Mapping[str, tuple[MigPoint, ...]]
    cost_per_hour: float = 0.0
    strategy: str = "gpuloom"
    _known: dict[tuple[object, ...], Options] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.gpu.name

    @property
    def models(self) -> Sequence[str]:
        return tuple(self.points)

    def plan(self, demand: Demand) -> ServicePlan:
        options = self.options(demand)
        return plan_mig(demand.services, options, self.gpu, self.cost_per_hour, strategy=self.strategy)

    def stay(self, demand: Demand, previous: ServicePlan) -> tuple[ServicePlan, Old]:
        return stay_on_mig(demand.services, self.options(demand), self.gpu, self.cost_per_hour, previous)

    def values(self, demand: Demand) -> list[Floats] | None:
        options = self.options(demand)
        served = {service.id for service in placeable(demand.services, options, self.gpu)[0]}
        needs = [(service.rate_rps, options[service.id] if service.id in served else {}) for service in demand.services]
        return mig_values(needs, self.gpu)

    def times(self, replicas: Sequence[Replica], workloads: Mapping[str, str]) -> dict[Replica, BatchTimes]:
        """As measured on such an instance with so many processes in it."""
        known: dict[tuple[str, str, float], BatchTimes] = {}
        times = {}
        for replica in replicas:
            grant = replica.grant
            assert grant.instance is not None, "plans on MIG have instances"
            key = workloads[replica.service], grant.instance.profile, grant.share_pct
            if key not in known:
                slices = self.gpu.by_name[grant.instance.profile].slices
                known[key] = batch_times(self.points[key[0]], slices, round(100 / grant.share_pct))
            times[replica] = known[key]
        return times

    def options(self, demand: Demand) -> dict[str, Options]:
        """What instances can do for each service, by id."""
        if demand.pattern is Pattern.TRACE:
            raise InputError(f"--arrivals trace with --mig: expected poisson or regular on {self.name}")
        return {service.id: self._option(service, demand.pattern) for service in demand.services}

    def _option(self, service: Service, pattern: Pattern) -> Options:
        key = service.workload, service.slo_p99_ms, service.mem_mib, service.max_batch, pattern
        if key not in self._known:
            rule = by_queue if pattern is Pattern.POISSON else by_latency
            fits = fitting(self.points[service.workload], service, self.gpu)
            if self.strategy == "one-process":
                fits = tuple(point for point in fits if point.processes == 1)
            if self.strategy == "whole-gpus":
                whole = max(profile.slices for profile in self.gpu.profiles)
                fits = tuple(point for point in fits if point.slices == whole)
            self._known[key] = rule(fits, service.slo_p99_ms)
        return self._known[key]


def times_of(plan: ServicePlan, demand: Demand, supplies: Sequence[Supply]) -> dict[Replica, BatchTimes]:
    """Of every replica, by the type of its GPU."""
    times: dict[Replica, BatchTimes] = {}
    for supply in supplies:
        residents = [replica for replica in plan.replicas if plan.type_of(replica.grant.gpu) == supply.name]
        times |= supply.times(residents, demand.workloads)
    return times
