"""What one instance can do for a service: the best batch and processes by either rule, as measured."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.perf.queueing.latency import Batching, Poisson, highest_rate_per_s, latency_of
from gpuloom.provision.mig.options import MOST_LOAD, PART_OF_SLO, Options, batch_times, by_latency, by_queue, fitting
from gpuloom.work.measured.mig_services import MigPoint
from gpuloom.work.model import Service
from tests.provision.drawn import EXACT
from tests.provision.mig.made_up import A100, SIZES, points

some_points = st.builds(points, st.floats(0.3, 5.0), st.integers(1, 3))


@given(made_up=some_points, slo_ms=st.floats(2.0, 200.0))
@settings(max_examples=40, deadline=None)
def test_by_latency_is_parvagpus_rule(made_up: tuple[MigPoint, ...], slo_ms: float) -> None:
    """The most throughput of those that take less than a part of the SLO; a size that has none is absent."""
    options = by_latency(made_up, slo_ms)
    for size in SIZES:
        in_time = [point for point in made_up if point.slices == size and point.latency_ms < PART_OF_SLO * slo_ms]
        assert (size in options) == bool(in_time)
        if in_time:
            assert options[size].rps == max(point.rps for point in in_time)
            assert options[size].p99_ms(1.0) <= slo_ms


@given(made_up=some_points, slo_ms=st.floats(5.0, 120.0))
@settings(max_examples=2, deadline=None)
def test_by_queue_no_measured_batch_serves_more(made_up: tuple[MigPoint, ...], slo_ms: float) -> None:
    """Against asking every point for its highest rate, without the short cuts."""
    options = by_queue(made_up, slo_ms)
    best = dict.fromkeys(SIZES, 0.0)
    for point in made_up:
        times, batching = batch_times(made_up, point.slices, point.processes), Batching(point.batch)
        most_rps = MOST_LOAD * times.capacity_per_s(batching)
        rps = min(highest_rate_per_s(times, batching, slo_ms), most_rps) * point.processes
        best[point.slices] = max(best[point.slices], rps)
    assert {size: option.rps for size, option in options.items()} == pytest.approx(
        {size: rps for size, rps in best.items() if rps > 0}, rel=1e-3
    )


@given(made_up=some_points, slo_ms=st.floats(5.0, 120.0))
@settings(max_examples=10, deadline=None)
def test_by_queue_keeps_the_promise_and_serves_less_than_it_could(made_up: tuple[MigPoint, ...], slo_ms: float) -> None:
    for size, option in by_queue(made_up, slo_ms).items():
        each_rps = option.rps / option.processes
        assert option.p99_ms(each_rps) <= slo_ms * EXACT
        assert option.p99_ms(each_rps / 2) <= option.p99_ms(each_rps) * (1 + 1e-6)
        times, batching = batch_times(made_up, size, option.processes), Batching(option.batch)
        assert option.p99_ms(each_rps) == latency_of(times, batching, Poisson(each_rps)).percentile_ms(99.0)
        assert each_rps <= MOST_LOAD * times.capacity_per_s(batching) * (1 + 1e-9)


def test_more_slices_serve_more() -> None:
    rps = {size: option.rps for size, option in by_queue(points(), 40.0).items()}
    assert set(rps) == set(SIZES)
    assert [rps[size] for size in SIZES] == sorted(rps.values())
    assert by_queue(points(), slo_ms=2.0) == {}


@given(
    mem_mib=st.none() | st.integers(1, 90_000),
    max_batch=st.none() | st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_what_fits_keeps_what_the_service_states(mem_mib: int | None, max_batch: int | None) -> None:
    service = Service("s", "m", 1.0, 50.0, mem_mib, max_batch=max_batch)
    room_mib = {1: 9856, 2: 19968, 3: 40192, 4: 40192, 7: 80384}
    fits = fitting(points(), service, A100)
    for point in points():
        too_large = point.batch > (max_batch or point.batch)
        too_many = point.processes * (mem_mib or 0) > room_mib[point.slices]
        assert (point in fits) == (not too_large and not too_many)


def test_a_size_that_the_gpu_does_not_have_never_fits() -> None:
    odd = (MigPoint(5, 1, 1, 100.0, 10.0),)
    assert fitting(odd, Service("s", "m", 1.0, 50.0), A100) == ()


@given(
    latencies_ms=st.lists(st.floats(1.0, 50.0), min_size=1, max_size=5),
    each_rps=st.lists(st.floats(10.0, 900.0), min_size=5, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_times_never_fall_and_are_answered_after_the_work(latencies_ms: list[float], each_rps: list[float]) -> None:
    """Whatever noise was measured, it is a table that a queue can be made of."""
    batches = (1, 3, 4, 9, 12)
    noisy = [
        MigPoint(2, batch, 2, rps, latency_ms)
        for batch, rps, latency_ms in zip(batches, each_rps, latencies_ms, strict=False)
    ]
    times = batch_times(noisy, 2, 2)
    assert len(times.busy_ms) == noisy[-1].batch
    assert (times.latency_ms >= times.busy_ms).all()
    assert (times.busy_ms[1:] >= times.busy_ms[:-1]).all()
    for point in noisy:
        assert times.busy_ms[point.batch - 1] >= 1000.0 * point.batch / point.each_rps * (1 - 1e-9)
        assert times.latency_ms[point.batch - 1] >= point.latency_ms * (1 - 1e-9)


def test_times_between_measured_batches_lie_on_a_line() -> None:
    noisy = (MigPoint(1, 1, 1, 100.0, 10.0), MigPoint(1, 4, 1, 500.0, 8.0), MigPoint(1, 8, 1, 400.0, 20.0))
    assert batch_times(noisy, 1, 1).busy_ms == pytest.approx([10, 10, 10, 10, 12.5, 15, 17.5, 20])


def test_a_process_is_as_busy_as_its_throughput_says() -> None:
    """The latency is written in whole milliseconds: 2 for a batch of which 600 are done in a second."""
    times = batch_times((MigPoint(1, 1, 1, 600.0, 2.0), MigPoint(1, 2, 1, 900.0, 2.0)), 1, 1)
    assert times.busy_ms == pytest.approx([1000 / 600, 2000 / 900])
    assert times.latency_ms == pytest.approx([2.0, 2000 / 900])


def test_of_equal_options_the_smaller_batch_with_fewer_processes() -> None:
    equal = tuple(MigPoint(1, batch, count, 100.0 / count, 5.0) for batch in (4, 2) for count in (2, 1))
    options: Options = by_latency(equal, 50.0)
    assert (options[1].batch, options[1].processes) == (2, 1)
