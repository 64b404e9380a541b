"""The figures that ship with the package, as planners use them: the one place of this room that reads anything."""

from collections.abc import Mapping
from functools import lru_cache

from gpuloom.gpus.catalogue import find
from gpuloom.perf.queueing.poisson_table import PoissonTable
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.provision.offer import COST_PER_HOUR, Offer, profiled_offer
from gpuloom.work.measured.queue_figures import load_queue_figures
from gpuloom.work.measured.service_figures import SHIPPED, load_service_figures
from gpuloom.work.measured.service_profiles import Profiles


def shipped_offer(name: str, tables: Mapping[str, AloneTable] | None = None) -> Offer:
    """From the figures that ship; `tables` are measured solo latencies in place of fitted curves, of models in them."""
    figures = load_service_figures(name)
    known = {model: table for model, table in (tables or {}).items() if model in figures["services"]}
    model, igniter = SharingModel.from_figures(figures, known), IgniterModel.from_figures(figures)
    return Offer(name, find(name).mem_mib, COST_PER_HOUR[name], model, igniter)


def offer_with(profiles: Profiles, name: str, tables: Mapping[str, AloneTable] | None = None) -> Offer:
    """Of the models of a profile. Where no figures ship of a type they are another's, and tables were not measured."""
    if name in SHIPPED:
        return profiled_offer(name, profiles, shipped_offer(name), tables or {})
    return profiled_offer(name, profiles, shipped_offer(next(iter(SHIPPED))), {})


@lru_cache
def shipped_table() -> PoissonTable:
    return PoissonTable.from_figures(load_queue_figures())
