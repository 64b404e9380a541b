"""The three models with the figures that ship for a V100, and crowds that fit on one: what the tests here ask about."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

from hypothesis import strategies as st

from gpuloom.perf.sharing.gpulets import GpuletsModel, profiled_services
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import WHOLE, Capacity, InterferenceModel, Placed, predict
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.work.measured.service_figures import load_service_figures
from gpuloom.work.measured.service_pairs import PairRow

MODELS = ("alexnet", "resnet50", "vgg19", "ssd")


@lru_cache
def ours() -> SharingModel:
    return SharingModel.from_figures(load_service_figures())


@lru_cache
def igniter() -> IgniterModel:
    return IgniterModel.from_figures(load_service_figures())


@lru_cache
def gpulets() -> GpuletsModel:
    return GpuletsModel(profiled_services(igniter(), MODELS), (0.96, 0.0024, 0.0043, 0.0, 0.0))


shares = st.sampled_from([2.5, 5.0, 10.0, 20.0, 32.5])
placed = st.builds(Placed, st.sampled_from(MODELS), st.integers(1, 64), shares, st.just(1))
crowds = st.lists(placed, min_size=1, max_size=8).filter(lambda crowd: sum(one.share_pct for one in crowd) <= 100)
"""That fit on a device."""
crowded = st.lists(placed.map(lambda one: one._replace(share_pct=one.share_pct + 40.0)), min_size=3, max_size=8)
"""Whose shares sum to more than there is."""


def totals(model: InterferenceModel, crowd: Sequence[Placed], device: Capacity = WHOLE) -> list[float]:
    return [latency.total_ms for latency in predict(model, crowd, device)]


def rows_as(model: InterferenceModel, names: Sequence[str] = MODELS) -> list[PairRow]:
    """Pairs that behave exactly as a model says."""
    return [
        PairRow(first, batch, share_pct, second, 8, 100.0 - share_pct, ms)
        for first, second in permutations(names, 2)
        for batch in (1, 8, 32)
        for share_pct in (20.0, 50.0, 80.0)
        for ms in totals(model, [Placed(first, batch, share_pct), Placed(second, 8, 100.0 - share_pct)])[:1]
    ]
