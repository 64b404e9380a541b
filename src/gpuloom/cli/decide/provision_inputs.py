"""From the options of `gpuloom provision` to what is asked (a demand) and what can be had (supplies)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from gpuloom.errors import InputError
from gpuloom.work.source import did_you_mean

if TYPE_CHECKING:
    from gpuloom.gpus.model import GpuModel
    from gpuloom.provision.demand import Demand
    from gpuloom.provision.plan import ServicePlan
    from gpuloom.provision.supply import MigGpus, SharedGpus, Supply
    from gpuloom.work.measured.latency_profiles import LatencyProfile
    from gpuloom.work.measured.service_pairs import MeasuredServices

TRACE = "trace:"
DEFAULT_TYPE = "V100"
CPU, CPU_MODEL = "cpu", "CPU-"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of the command as they were typed."""

    gpu_type: str | None
    """None: what the profile was measured on, if it says so; else the type of which figures ship."""
    arrivals: str
    strategy: str
    measured: Path | None
    solo_tables: bool
    profiles: Sequence[str] | None
    migs: Sequence[str] | None
    prices: Sequence[str] | None
    margin: float

    @property
    def types(self) -> list[str]:
        if self.gpu_type is None:
            return [self._measured_on() or DEFAULT_TYPE]
        names = [name.strip() for name in self.gpu_type.split(",")]
        if not all(names):
            raise InputError(f"--gpu-type {self.gpu_type!r} has an empty name: expected such as V100 or V100,A100-80GB")
        return list(dict.fromkeys(_device_name(name) for name in names))

    def _measured_on(self) -> str | None:
        """The device that the only profile names."""
        from gpuloom.work.measured.latency_profiles import is_latency_profile, read_latency_profile

        paths = [Path(text) for text in self.profiles or ()]
        if len(paths) != 1 or not paths[0].is_file() or not is_latency_profile(paths[0]):
            return None
        return read_latency_profile(paths[0]).device

    def files(self) -> list[Path]:
        """All that are read, beside the services."""
        files = [Path(self.arrivals.removeprefix(TRACE))] if self.arrivals.startswith(TRACE) else []
        files += [Path(_split(text, self.types)[1]) for text in (*(self.profiles or ()), *(self.migs or ()))]
        return files + ([] if self.measured is None else [self.measured])


def check_report(report: Path | None, read: Iterable[Path | None]) -> None:
    """Before the work: a page must not take the place of what is read."""
    from gpuloom.cli.inputs import check_writable

    for path in read:
        if report is not None and path is not None and report.resolve() == path.resolve():
            raise InputError(
                f"--report {report}: is a file that is read here; name a file of its own, such as plan.html"
            )
    check_writable(report)


def demand_of(path: Path, arrivals: str) -> "Demand":
    from gpuloom.provision.demand import Demand, Pattern
    from gpuloom.work.files import read_work
    from gpuloom.work.measured.arrival_traces import read_gaps

    services = tuple(read_work(path)[1])
    if arrivals.startswith(TRACE):
        gaps = read_gaps(Path(arrivals.removeprefix(TRACE)))
        missing = [service.id for service in services if service.id not in gaps] if "" not in gaps else []
        if missing:
            raise InputError(f"{arrivals}: has no arrivals of {missing[0]}: expected some, or a service called *")
        return Demand(services, Pattern.TRACE, gaps)
    if arrivals not in (Pattern.POISSON, Pattern.REGULAR):
        raise InputError(f"--arrivals {arrivals}: expected poisson, regular or trace:FILE")
    return Demand(services, Pattern(arrivals))


def measured_of(options: PlanOptions) -> "MeasuredServices | None":
    from gpuloom.work.measured.service_pairs import read_solo_and_pairs

    if options.measured is None:
        if options.solo_tables:
            raise InputError("--solo-tables needs --measured FILE, from which it takes the tables")
        return None
    measured = read_solo_and_pairs(options.measured)
    if not measured.solo_ms:
        raise InputError(f"{options.measured} has pairs only: expected solo tables of the models too")
    return measured


def supplies_of(options: PlanOptions, measured: "MeasuredServices | None", demand: "Demand") -> "list[Supply]":
    """One for each type of GPU, in the order of --gpu-type."""
    types = options.types
    cut = [name for name in types if options.migs and _gpu(name).mig]
    migs = _by_type("--mig", options.migs, cut, types)
    profiles = _by_type("--profile", options.profiles, [name for name in types if name not in migs], types)
    prices = {name: _price(name, value) for name, value in _by_type("--price", options.prices, types, types).items()}
    supplies: list[Supply] = []
    for name in types:
        if name in migs:
            supplies.append(_mig(name, Path(migs[name]), options.strategy, prices))
        else:
            tables = measured if options.solo_tables else None
            supplies.append(
                _shared(name, Path(profiles[name]) if name in profiles else None, tables, options, prices, demand)
            )
    if len(supplies) > 1:
        for supply in supplies:
            if supply.cost_per_hour <= 0.0:
                raise InputError(f"no price of {supply.name} is known: expected --price {supply.name}=DOLLARS an hour")
    return supplies


def _split(text: str, types: Sequence[str]) -> tuple[str, str]:
    """TYPE=VALUE, or a value for the only type that it can be for."""
    name, equals, value = text.partition("=")
    return (name, value) if equals and name in types else ("", text)


def _by_type(option: str, texts: Sequence[str] | None, fitting: Sequence[str], types: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts or ():
        name, value = _split(text, types)
        if not fitting:
            what = "that GPU has no MIG" if option == "--mig" else "no type is left that it could be for"
            raise InputError(f"--gpu-type {','.join(types)} with {option}: {what}")
        if name and name not in fitting:
            raise InputError(f"{option} {text}: {name} is not what it can be for: expected one of {', '.join(fitting)}")
        if not name and len(fitting) > 1:
            raise InputError(f"{option} {text}: expected {fitting[0]}={text}, or another of {', '.join(fitting)}")
        if (name or fitting[0]) in values:
            raise InputError(f"{option} is given twice for {name or fitting[0]}: expected it once")
        values[name or fitting[0]] = value
    return values


def _price(name: str, text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = 0.0
    if not (isfinite(price) and 0.0 < price <= 1e6):
        raise InputError(f"--price {name}={text}: expected dollars an hour above 0")
    return price


def _mig(name: str, path: Path, strategy: str, prices: Mapping[str, float]) -> "MigGpus":
    from gpuloom.provision.offer import COST_PER_HOUR
    from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus
    from gpuloom.work.measured.mig_services import read_mig_services

    if strategy not in MIG_STRATEGIES:
        known = ", ".join(MIG_STRATEGIES)
        raise InputError(
            f"--strategy {strategy} with --mig: is not for MIG instances{did_you_mean(strategy, MIG_STRATEGIES)}:"
            f" expected one of {known}"
        )
    gpu = _gpu(name)
    price = prices.get(name, COST_PER_HOUR.get(gpu.name, 0.0))
    return MigGpus(gpu, read_mig_services(path), price, strategy)


def _shared(
    name: str,
    profile: Path | None,
    measured: "MeasuredServices | None",
    options: PlanOptions,
    prices: Mapping[str, float],
    demand: "Demand",
) -> "SharedGpus":
    from gpuloom.perf.sharing.measured import measured_tables
    from gpuloom.provision.offer import measured_offer
    from gpuloom.provision.shipped import offer_with, shipped_offer
    from gpuloom.provision.strategies import strategy
    from gpuloom.provision.supply import SharedGpus
    from gpuloom.work.measured.latency_profiles import is_latency_profile
    from gpuloom.work.measured.service_profiles import read_service_profiles

    strategy(options.strategy)
    if profile is not None and is_latency_profile(profile):
        known = _latencies(name, profile, options)
        _say_tails(known, demand)
        wanted = {*demand.workloads.values()}
        offer = measured_offer(known, wanted if wanted <= known.alone_ms.keys() else known.alone_ms.keys())
        price = prices.get(name, offer.cost_per_hour)
        return SharedGpus(replace(offer, cost_per_hour=price), options.margin, options.strategy)
    tables = None if measured is None else measured_tables(measured)
    profiles = None if profile is None else read_service_profiles(profile)
    offer = shipped_offer(name, tables) if profiles is None else offer_with(profiles, name, tables)
    price = prices.get(name, offer.cost_per_hour)
    return SharedGpus(replace(offer, cost_per_hour=price), options.margin, options.strategy)


def _latencies(name: str, path: Path, options: PlanOptions) -> "LatencyProfile":
    """Of this type of device; what it does not know is said."""
    import typer

    from gpuloom.work.measured.latency_profiles import read_latency_profile

    profile = read_latency_profile(path)
    if profile.device != name:
        raise InputError(
            f"--profile {path}: was measured on {profile.device}, not on {name}: expected --gpu-type {profile.device}"
        )
    if options.solo_tables:
        raise InputError(f"--solo-tables: {path} holds the solo tables itself, so it goes without")
    if not profile.pairs:
        typer.echo(f"{path}: no pairs were measured, so nobody is taken to slow anybody down", err=True)
    for doubt in profile.doubts:
        typer.echo(f"{path}: {doubt}", err=True)
    return profile


def _say_tails(profile: "LatencyProfile", demand: "Demand") -> None:
    """Of promises that the measured batches break by themselves, without any queue."""
    import typer

    for service in demand.services:
        alone = [ms for (batch, _), ms in profile.p99_ms.get(service.workload, {}).items() if batch == 1]
        if alone and min(alone) > demand.slo_ms[service.id]:
            typer.echo(
                f"service {service.id}: 1 in 100 requests of {service.workload} took {min(alone):.0f} ms or longer,"
                f" alone and at best: no plan keeps a p99 of {demand.slo_ms[service.id]:g} ms, whatever is predicted",
                err=True,
            )


def say_unmeasured(plan: "ServicePlan", demand: "Demand", supplies: "Sequence[Supply]") -> None:
    """Of shares that are smaller than any that was measured."""
    import typer

    from gpuloom.provision.supply import SharedGpus

    least = {
        (supply.name, model): pct
        for supply in supplies
        if isinstance(supply, SharedGpus)
        for model, pct in supply.offer.least_pct.items()
    }
    below = [
        f"{replica.service} on {replica.grant.share_pct:g} %, {pct:g} % was the least"
        for replica in plan.replicas
        if (pct := least.get((plan.type_of(replica.grant.gpu), demand.workloads[replica.service]), 0.0))
        > replica.grant.share_pct
    ]
    if below:
        many = f"{len(below)} replicas have" if len(below) > 1 else "a replica has"
        typer.echo(
            f"{many} a smaller share than was measured ({below[0]}): slower in proportion, it is assumed", err=True
        )


def _device_name(text: str) -> str:
    """A type of GPU, or what the forms of a CPU device stand for here: cpu, cpu:0-3, cpu=50%."""
    return _gpu(text).name if text.startswith(CPU) else text


def _gpu(name: str) -> "GpuModel":
    from gpuloom.gpus.catalogue import find
    from gpuloom.gpus.host.cpu import parse_devices, this_machine

    if name.startswith(CPU):
        return parse_devices((name,), this_machine())[0].model
    if name.startswith(CPU_MODEL):
        own = parse_devices((CPU,), this_machine())[0].model
        if own.name != name:
            raise InputError(f"--gpu-type {name}: is not this machine's cpu, which is {own.name}: expected cpu=PART%")
        return own
    return find(name)
