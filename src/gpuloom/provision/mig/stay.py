"""A new plan of MIG instances near an old one: who has an instance keeps it.

Instances stay with their services as long as their size keeps the promise; batches, processes inside and parts of the
rate change in place. A GPU of which nobody needs anything any more is given back. Whoever needs more gets it where the
GPUs have room beside what is there, the smallest instance that is enough, else the one that serves most; what is still
missing then goes to new GPUs, the fewest that serve it. What could be saved by moving more is not looked for.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.layouts import add, check, places_beside
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.provision.mig.options import Option, Options
from gpuloom.provision.mig.planner import (
    InstanceOnGpu,
    Seats,
    count_instances,
    placeable,
    plan_mig,
    replicas_on,
    seats_of,
)
from gpuloom.provision.plan import Old, ServicePlan
from gpuloom.work.model import Service

ENOUGH = 1e-9
"""Part of a rate that may be missing: rounding."""


def stay(
    services: Sequence[Service],
    options: Mapping[str, Options],
    model: GpuModel,
    usd_per_hour: float,
    previous: ServicePlan,
) -> tuple[ServicePlan, Old]:
    placed, unplaced = placeable(services, options, model)
    seats = _kept(placed, options, model, previous)
    _give_back(placed, seats)
    gpus = sorted({gpu for held in seats.values() for _, (gpu, _) in held})
    missing = _fill(placed, options, model, seats, gpus)
    number = {gpu: index for index, gpu in enumerate(gpus)}
    seats = {
        name: [(option, (number[gpu], instance)) for option, (gpu, instance) in held] for name, held in seats.items()
    }
    new = 0
    if missing:
        late = [service for service in placed if service.id in missing]
        counts = count_instances([(missing[service.id], options[service.id]) for service in late], model)
        for name, more in seats_of(late, options, counts, model, len(gpus)).items():
            seats[name] += more
        new = sum(counts.cuts.values())
    bound = plan_mig(placed, options, model, usd_per_hour).lower_bound_gpus
    old: Old = [*gpus, *[None] * new]
    cost = round(len(old) * usd_per_hour, 2)
    replicas = replicas_on(placed, seats)
    return ServicePlan("gpuloom", model.name, len(old), cost, bound, replicas, unplaced), old


def _kept(services: Sequence[Service], options: Mapping[str, Options], model: GpuModel, previous: ServicePlan) -> Seats:
    """Instances whose size still keeps their service's promise."""
    holder: dict[InstanceOnGpu, str] = {}
    layouts: dict[int, Layout] = {}
    for replica in previous.replicas:
        gpu, instance = replica.grant.device
        if instance is None:
            raise InputError(f"the old plan has {replica.service} on the whole GPU {gpu}, not on a MIG instance of it")
        if holder.setdefault((gpu, instance), replica.service) != replica.service:
            raise InputError(f"the old plan has two services on {instance} of GPU {gpu}: expected one on each instance")
        if instance not in layouts.setdefault(gpu, ()):
            layouts[gpu] = add(layouts[gpu], instance)
    for gpu, layout in sorted(layouts.items()):
        if why := check(model, layout):
            raise InputError(f"the old plan cuts GPU {gpu} in a way that no {model.name} can be cut: {why}")
    seats: Seats = {service.id: [] for service in services}
    for device, name in sorted(holder.items()):
        option = options.get(name, {}).get(model.by_name[device[1].profile].slices)
        if name in seats and option is not None:
            seats[name].append((option, device))
    return seats


def _give_back(services: Sequence[Service], seats: Seats) -> None:
    """GPUs that nobody needs, the last first."""
    rate_rps = {service.id: service.rate_rps for service in services}
    for gpu in sorted({gpu for held in seats.values() for _, (gpu, _) in held}, reverse=True):
        here = {name for name, held in seats.items() if any(device[0] == gpu for _, device in held)}
        rest = {name: [(option, device) for option, device in seats[name] if device[0] != gpu] for name in here}
        if all(_missing(rate_rps[name], held) <= 0.0 for name, held in rest.items()):
            seats.update(rest)


def _missing(rate_rps: float, held: Sequence[tuple[Option, InstanceOnGpu]]) -> float:
    """What of the rate nobody serves."""
    left = rate_rps - sum(option.rps for option, _ in held)
    return left if left > ENOUGH * rate_rps else 0.0


def _fill(
    services: Sequence[Service], options: Mapping[str, Options], model: GpuModel, seats: Seats, gpus: Sequence[int]
) -> dict[str, float]:
    """Add instances on the GPUs that there are; what is still missing, in requests per second."""
    layouts: dict[int, Layout] = dict.fromkeys(gpus, ())
    for held in seats.values():
        for _, (gpu, instance) in held:
            layouts[gpu] = add(layouts[gpu], instance)
    missing: dict[str, float] = {}
    for service in services:
        held = seats[service.id]
        while left := _missing(service.rate_rps, held):
            places = dict(_places(options[service.id], model, layouts))
            if not places:
                missing[service.id] = left
                break
            serves = {size: options[service.id][size].rps for size in places}
            enough = [size for size in places if serves[size] >= left]
            best = min(enough) if enough else max(places, key=lambda size: serves[size])
            gpu, instance = places[best]
            layouts[gpu] = add(layouts[gpu], instance)
            held.append((options[service.id][best], places[best]))
    return missing


def _places(options: Options, model: GpuModel, layouts: Mapping[int, Layout]) -> Iterator[tuple[int, InstanceOnGpu]]:
    """For each size that can be added somewhere, the first place."""
    for profile in base_profiles(model):
        if profile.slices in options:
            for gpu, layout in layouts.items():
                places = places_beside(model, layout, profile.name)
                if places:
                    yield profile.slices, (gpu, places[0])
                    break
