"""gpu-lets' model: a slowdown that is linear in use, none alone, and found from pairs that obey it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.gpulets import GpuletsModel, fit_gpulets, measured_services, profiled_services
from gpuloom.perf.sharing.interference import Capacity, Crowd, Placed
from gpuloom.work.measured.service_pairs import MeasuredServices
from tests.perf.sharing.v100 import MODELS, crowds, gpulets, igniter, totals

coefficients = st.tuples(
    st.floats(0.8, 1.2), st.floats(0.0, 0.01), st.floats(0.0, 0.01), st.floats(0.0, 0.01), st.floats(0.0, 0.01)
)
FLAT = {(batch, share): 10.0 for batch in (1, 32) for share in (10.0, 100.0)}


def random_pairs(seed: int, count: int = 200) -> Crowd:
    rng = np.random.default_rng(seed)
    share = rng.uniform(20, 80, count)
    return Crowd(rng.integers(0, 4, (count, 2)), rng.uniform(1, 32, (count, 2)), np.column_stack([share, 100 - share]))


def test_a_slowdown_that_is_linear_is_found() -> None:
    services = profiled_services(igniter(), MODELS)
    truth = GpuletsModel(services, (1.05, 0.002, 0.004, 0.0, 0.0))
    crowd = random_pairs(0)
    found = fit_gpulets(services, crowd, truth.latencies(crowd).total_ms[:, 0])
    assert found.coefficients == pytest.approx(truth.coefficients, abs=1e-9)
    assert totals(found, [Placed("ssd", 4, 50.0)])[0] == pytest.approx(totals(igniter(), [Placed("ssd", 4, 50.0)])[0])


@settings(deadline=None, max_examples=30)
@given(coefficients, st.integers(1, 32), st.sampled_from(MODELS), st.floats(10.0, 100.0))
def test_alone_nobody_is_slowed_down(slowdown: tuple[float, ...], batch: int, name: str, share_pct: float) -> None:
    services = gpulets().services
    alone = totals(GpuletsModel(services, slowdown), [Placed(name, batch, share_pct)])[0]
    assert alone == pytest.approx(float(services[name].solo_ms(np.array([batch]), np.array([share_pct]))[0]))


@settings(deadline=None, max_examples=40)
@given(crowds.filter(lambda crowd: len(crowd) > 1))
def test_what_the_others_use_adds_up(crowd: list[Placed]) -> None:
    """gpu-lets never has more than two; with more, the slowdown is linear in the sum of their uses."""
    model = gpulets()
    base, own, others, _, _ = model.coefficients

    def read(table: AloneTable, placed: Placed) -> float:
        return float(table(np.array([placed.batch]), np.array([placed.share_pct]))[0])

    uses = [read(model.services[placed.model].l2_pct, placed) for placed in crowd]
    for placed, use, total in zip(crowd, uses, totals(model, crowd), strict=True):
        slowdown = base + own * use + others * (sum(uses) - use)
        assert total == pytest.approx(read(model.services[placed.model].solo_ms, placed) * slowdown)


def test_memory_that_was_not_measured_counts_as_unused() -> None:
    measured = MeasuredServices(
        (), {"a": FLAT, "b": FLAT, "c": FLAT}, {"a": FLAT, "b": dict.fromkeys(FLAT, 20.0)}, {"a": FLAT}
    )
    services = measured_services(measured)
    assert set(services) == {"a", "b"}, "of c no use was measured"
    model = GpuletsModel(services, (1.0, 0.0, 0.0, 0.0, 0.01))
    assert totals(model, [Placed("a", 1, 50.0), Placed("b", 1, 50.0)]) == pytest.approx([10.0, 11.0])
    cached = GpuletsModel(services, (1.0, 0.01, 0.001, 0.0, 0.0))
    assert totals(cached, [Placed("a", 1, 50.0), Placed("b", 1, 50.0)]) == pytest.approx([11.2, 12.1])


def test_an_instance_is_a_share_of_the_whole_and_a_profile_has_igniters_times() -> None:
    crowd = [Placed("ssd", 4, 40.0), Placed("vgg19", 8, 60.0)]
    scaled = [one._replace(share_pct=one.share_pct / 2) for one in crowd]
    assert totals(gpulets(), crowd, Capacity(0.5, 0.25)) == pytest.approx(totals(gpulets(), scaled))
    (some,) = profiled_services(igniter(), ["ssd"]).values()
    assert some.dram_pct is None
    assert some.solo_ms.points == some.l2_pct.points == 320
    for batch, share in ((1, 10.0), (17, 70.0)):
        clean = totals(igniter(), [Placed("ssd", batch, share)])[0]
        assert float(some.solo_ms(np.array([batch]), np.array([share]))[0]) == pytest.approx(clean)
