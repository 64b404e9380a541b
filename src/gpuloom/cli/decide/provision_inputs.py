"""From the options of `gpuloom provision` to what is asked (a demand) and what can be had (supplies)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from gpuloom.errors import InputError
from gpuloom.work.source import did_you_mean

if TYPE_CHECKING:
    from gpuloom.provision.demand import Demand, Offer
    from gpuloom.provision.supply import MigGpus, SharedGpus, Supply
    from gpuloom.work.measured.service_pairs import MeasuredServices

TRACE = "trace:"


@dataclass(frozen=True, slots=True)
class Told:
    """Options as they were typed."""

    gpu_type: str
    arrivals: str
    strategy: str
    measured: Path | None
    solo_tables: bool
    profiles: Sequence[str]
    migs: Sequence[str]
    prices: Sequence[str]
    margin: float

    @property
    def types(self) -> list[str]:
        names = [name.strip() for name in self.gpu_type.split(",")]
        if not all(names):
            raise InputError(f"--gpu-type {self.gpu_type!r} has an empty name: expected such as V100 or V100,A100-80GB")
        return list(dict.fromkeys(names))

    def files(self) -> list[Path]:
        """All that are read, beside the services."""
        found = [Path(self.arrivals.removeprefix(TRACE))] if self.arrivals.startswith(TRACE) else []
        found += [Path(_split(one, self.types)[1]) for one in (*self.profiles, *self.migs)]
        return found + ([] if self.measured is None else [self.measured])


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
    from gpuloom.work.measured.arrival_traces import read_arrivals

    services = tuple(read_work(path)[1])
    if arrivals.startswith(TRACE):
        gaps = read_arrivals(Path(arrivals.removeprefix(TRACE)))
        missing = [service.id for service in services if service.id not in gaps] if "" not in gaps else []
        if missing:
            raise InputError(f"{arrivals}: has no arrivals of {missing[0]}: expected some, or a service called *")
        return Demand(services, Pattern.TRACE, gaps)
    if arrivals not in (Pattern.POISSON, Pattern.REGULAR):
        raise InputError(f"--arrivals {arrivals}: expected poisson, regular or trace:FILE")
    return Demand(services, Pattern(arrivals))


def measured_of(told: Told) -> "MeasuredServices | None":
    from gpuloom.work.measured.service_pairs import read_solo_and_pairs

    if told.measured is None:
        if told.solo_tables:
            raise InputError("--solo-tables needs --measured FILE, from which it takes the tables")
        return None
    found = read_solo_and_pairs(told.measured)
    if not found.solo_ms:
        raise InputError(f"{told.measured} has pairs only: expected solo tables of the models too")
    return found


def supplies_of(told: Told, measured: "MeasuredServices | None") -> "list[Supply]":
    """One for each type of GPU, in the order of --gpu-type."""
    from gpuloom.gpus.catalogue import find

    types = told.types
    cut = [name for name in types if told.migs and find(name).mig]
    migs = _by_type("--mig", told.migs, cut, types)
    profiles = _by_type("--profile", told.profiles, [name for name in types if name not in migs], types)
    prices = {name: _price(name, value) for name, value in _by_type("--price", told.prices, types, types).items()}
    found: list[Supply] = []
    for name in types:
        if name in migs:
            found.append(_mig(name, Path(migs[name]), told.strategy, prices))
        else:
            tables = measured if told.solo_tables else None
            found.append(_shared(name, Path(profiles[name]) if name in profiles else None, tables, told, prices))
    if len(found) > 1:
        for one in found:
            if one.cost_per_hour <= 0.0:
                raise InputError(f"no price of {one.name} is known: expected --price {one.name}=DOLLARS an hour")
    return found


def _split(text: str, types: Sequence[str]) -> tuple[str, str]:
    """TYPE=VALUE, or a value for the only type that it can be for."""
    name, equals, value = text.partition("=")
    return (name, value) if equals and name in types else ("", text)


def _by_type(option: str, told: Sequence[str], fitting: Sequence[str], types: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in told:
        name, value = _split(text, types)
        if not fitting:
            what = "that GPU has no MIG" if option == "--mig" else "no type is left that it could be for"
            raise InputError(f"--gpu-type {','.join(types)} with {option}: {what}")
        if name and name not in fitting:
            raise InputError(f"{option} {text}: {name} is not what it can be for: expected one of {', '.join(fitting)}")
        if not name and len(fitting) > 1:
            raise InputError(f"{option} {text}: expected {fitting[0]}={text}, or another of {', '.join(fitting)}")
        if (name or fitting[0]) in found:
            raise InputError(f"{option} is given twice for {name or fitting[0]}: expected it once")
        found[name or fitting[0]] = value
    return found


def _price(name: str, text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = 0.0
    if not (isfinite(price) and 0.0 < price <= 1e6):
        raise InputError(f"--price {name}={text}: expected dollars an hour above 0")
    return price


def _mig(name: str, path: Path, strategy: str, prices: Mapping[str, float]) -> "MigGpus":
    from gpuloom.gpus.catalogue import find
    from gpuloom.provision.demand import COST_PER_HOUR
    from gpuloom.provision.supply import MIG_STRATEGIES, MigGpus
    from gpuloom.work.measured.mig_services import read_mig_services

    if strategy not in MIG_STRATEGIES:
        known = ", ".join(MIG_STRATEGIES)
        raise InputError(
            f"--strategy {strategy} with --mig: is not for MIG instances{did_you_mean(strategy, MIG_STRATEGIES)}:"
            f" expected one of {known}"
        )
    gpu = find(name)
    price = prices.get(name, COST_PER_HOUR.get(gpu.name, 0.0))
    return MigGpus(gpu, read_mig_services(path), price, strategy)


def _shared(
    name: str, profile: Path | None, tables: "MeasuredServices | None", told: Told, prices: Mapping[str, float]
) -> "SharedGpus":
    from gpuloom.provision.strategies import strategy
    from gpuloom.provision.supply import SharedGpus

    strategy(told.strategy)
    offer = _offer(name, profile, tables)
    return SharedGpus(replace(offer, cost_per_hour=prices.get(name, offer.cost_per_hour)), told.margin, told.strategy)


def _offer(name: str, profile: Path | None, measured: "MeasuredServices | None") -> "Offer":
    """From the figures that ship; with a profile, of its models, and of types that no figures ship of, too."""
    from gpuloom.gpus.catalogue import find
    from gpuloom.perf.sharing.fit import fit_services
    from gpuloom.perf.sharing.igniter_fit import fit_hardware, fit_igniter
    from gpuloom.perf.sharing.model import SharingModel
    from gpuloom.provision.demand import COST_PER_HOUR, shipped_offer
    from gpuloom.sim.service_world import measured_tables
    from gpuloom.work.measured.service_figures import SHIPPED
    from gpuloom.work.measured.service_profiles import read_service_profiles

    known = name if profile is None or name in SHIPPED else next(iter(SHIPPED))
    offer = shipped_offer(known, measured_tables(measured) if measured is not None else None)
    if profile is None:
        return offer
    profiles = read_service_profiles(profile)
    hardware = fit_hardware(profiles.gpu)
    shipped = offer.model
    assert isinstance(shipped, SharingModel)
    # What was calibrated on measured pairs is the shipped type's; the clock falls at the same part of the power cap.
    start_w = shipped.constants.throttle_start_w * hardware.cap_w / shipped.hardware.cap_w
    fitted = fit_services(profiles, hardware, shipped.constants.sharpness)
    mine = {model: table for model, table in shipped.tables.items() if model in fitted and known == name}
    model = SharingModel(hardware, fitted, replace(shipped.constants, throttle_start_w=start_w), mine)
    return replace(
        offer,
        name=name,
        mem_mib=find(name).mem_mib,
        cost_per_hour=COST_PER_HOUR.get(name, 0.0),
        model=model,
        igniter=fit_igniter(profiles),
    )
