"""Replay: recorded sequences that share a simulated device under the real decisions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.kernels.core import Policy
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run
from gpuloom.kernels.replay import Outcome, Task, rate_alone, replay

US, MS = 1_000, 1_000_000


def sequence(name: str, lengths_us: list[int], pause_us: int, requests: int = 20, jitter: int = 0) -> Profile:
    """Requests of kernels that the host launches ahead, a pause after each request."""
    kernels = {place + 1: Kernel(place + 1, f"{name}{place}", "1", "1") for place in range(len(lengths_us))}
    launches = []
    for request in range(requests):
        pause = (pause_us + (request * 7919) % (jitter + 1)) * US
        for place, length_us in enumerate(lengths_us):
            host = pause if place == 0 else 5 * US
            last = place == len(lengths_us) - 1
            launches.append(Launch(place + 1, length_us * US, length_us * US, host, place == 0, pause if last else 0))
    return Profile(name, kernels, (Run(tuple(launches)),))


def mean_ms(outcome: Outcome) -> float:
    return float(np.mean(outcome.latencies_ns)) / MS


def test_alone_takes_as_long_as_recorded() -> None:
    """Ten kernels of 100 us launched ahead: one millisecond, under every policy."""
    task = Task("a", sequence("a", [100] * 10, 500), 3, 50)
    for policy in Policy:
        (outcome,) = replay([task], policy)
        assert outcome.latencies_ns == [MS] * 50


def test_default_sharing_alternates_kernel_by_kernel() -> None:
    """Each of ten kernels of 100 us waits for one of 300 us, the first for the rest of one."""
    high = Task("high", sequence("high", [100] * 10, 500), 0, 50)
    low = Task("low", sequence("low", [300] * 50, 0), 5, None)
    shared, _ = replay([high, low], Policy.SHARE)
    assert all(3.7 * MS <= latency <= 4.0 * MS for latency in shared.latencies_ns)


def test_strict_delays_a_request_by_one_kernel_at_most() -> None:
    high = Task("high", sequence("high", [100] * 10, 2000, jitter=500), 0, 50)
    low = Task("low", sequence("low", [300] * 50, 0), 5, None)
    strict, _ = replay([high, low], Policy.STRICT)
    assert max(strict.latencies_ns) <= MS + 300 * US


@settings(max_examples=25, deadline=None)
@given(
    kernel_us=st.integers(20, 400),
    count=st.integers(2, 12),
    pause_us=st.integers(200, 6000),
    jitter=st.integers(0, 4000),
    low_us=st.integers(20, 3000),
    slowdown=st.sampled_from([0.05, 0.1, 0.3]),
)
def test_fill_keeps_its_two_promises(
    kernel_us: int, count: int, pause_us: int, jitter: int, low_us: int, slowdown: float
) -> None:
    """The high one is slowed down by little more than allowed, and than its floor costs; the low one has its floor."""
    floor = 0.05
    high = Task("high", sequence("high", [kernel_us] * count, pause_us, 64, jitter), 0, 600, slowdown, floor)
    low = Task("low", sequence("low", [low_us] * 20, 0), 5, None, slowdown, floor)
    (alone,) = replay([high], Policy.SHARE)
    shared, filled = replay([high, low], Policy.FILL)
    cycle_ms = shared.finished_ns / MS / 600
    budget_ms = slowdown * 50  # may be spent at once, in the beginning
    floor_ms = floor * cycle_ms * 600
    most = 600 * mean_ms(alone) * (1 + slowdown) + budget_ms + floor_ms + 3 * low_us / 1000
    assert sum(shared.latencies_ns) / MS <= most
    assert filled.ran_ns >= 0.8 * floor * shared.finished_ns - 2 * low_us * US


def test_the_low_one_is_not_held_back_without_need() -> None:
    """Pauses of 8 ms and kernels of 200 us that fit easily: more than four fifths of the idle time is used."""
    high = Task("high", sequence("high", [100] * 10, 8000), 0, 200)
    low = Task("low", sequence("low", [200] * 50, 0), 5, None)
    shared, filled = replay([high, low], Policy.FILL)
    assert mean_ms(shared) <= 1.1
    assert filled.ran_ns >= 0.8 * (shared.finished_ns - shared.ran_ns)


def test_many_tasks_are_served_in_the_order_of_their_priorities() -> None:
    tasks = [Task(f"t{p}", sequence("t", [150] * 8, 1500, jitter=300), p, 60, floor=0.0) for p in (0, 2, 4, 6, 8)]
    means = [mean_ms(outcome) for outcome in replay(tasks, Policy.STRICT)]
    assert means == sorted(means)
    assert all(len(one.latencies_ns) >= 60 for one in replay(tasks, Policy.FILL))


def test_the_same_again_gives_the_same() -> None:
    tasks = [
        Task("a", sequence("a", [70, 90, 110], 700, jitter=400), 0, 100),
        Task("b", sequence("b", [400, 20], 100, jitter=50), 5, None),
    ]
    assert replay(tasks, Policy.FILL) == replay(tasks, Policy.FILL)


def test_wrong_input() -> None:
    profile = sequence("a", [100], 0)
    with pytest.raises(InputError, match="expected a task with a number of requests"):
        replay([Task("a", profile, 0, None)], Policy.FILL)
    with pytest.raises(InputError, match="expected at most 64"):
        replay([Task("a", profile, 0, 1)] * 65, Policy.FILL)
    with pytest.raises(InputError, match="has 20 launches: expected 21"):
        replay([Task("a", profile, 0, 1, launches=21)], Policy.FILL)


def one_run(*launches: Launch) -> Profile:
    return Profile("p", {n: Kernel(n, f"k{n}", "1", "1") for n in {one.kernel for one in launches}}, (Run(launches),))


@pytest.mark.parametrize("policy", list(Policy))
def test_a_host_that_never_waited_waits_before_it_starts_again(policy: Policy) -> None:
    """Its launches took no time, so without the wait there would be no end of them before the first kernel ends."""
    one_kernel = one_run(Launch(1, 100 * US, 100 * US, 0, False, 0))
    (outcome,) = replay([Task("one kernel", one_kernel, 0, 50)], policy)
    assert outcome.latencies_ns == [100 * US] * 50
    inference = one_run(*(Launch(n, 100 * US, 100 * US, 10 * US * (n > 1), False, 0) for n in (1, 2, 3)))
    (outcome,) = replay([Task("one inference", inference, 0, 50)], policy)
    assert outcome.latencies_ns == [300 * US] * 50
    beside = replay([Task("a", inference, 0, 50), Task("b", one_kernel, 5, None)], policy)
    assert len(beside[0].latencies_ns) == 50


@pytest.mark.parametrize("policy", list(Policy))
def test_kernels_that_took_no_time_do_not_stop_the_clock(policy: Policy) -> None:
    nothing = one_run(Launch(1, 0, 0, 0, False, 0), Launch(2, 0, 0, 0, True, 0))
    something = Task("something", sequence("a", [100] * 3, 500), 5, 10)
    first, second = replay([Task("nothing", nothing, 0, 10), something], policy)
    assert min(first.latencies_ns) > 0
    assert len(second.latencies_ns) == 10


def test_too_little_simulated_time_is_an_error_that_says_what_to_do() -> None:
    task = Task("slow", sequence("a", [100] * 10, 500), 0, 50)
    with pytest.raises(InputError, match=r"slow served 6 of 50 requests in the 0\.01 s of .* fewer \(--requests\)"):
        replay([task], Policy.FILL, limit_ns=10 * MS)


def test_the_rate_alone_is_what_replay_gives_it_alone() -> None:
    """Kernels of 100 us launched ahead, ten in each 1.5 ms; then a host that is slower than the device."""
    task = Task("a", sequence("a", [100] * 10, 500), 0, 1000)
    assert rate_alone(task) == pytest.approx(1 / 1.5)
    slow = Task("b", one_run(*(Launch(n, 30 * US, 40 * US, 100 * US, False, 0) for n in (1, 2))), 0, 1000)
    for one in (task, slow):
        (outcome,) = replay([one], Policy.SHARE)
        assert outcome.ran_ns / outcome.finished_ns == pytest.approx(rate_alone(one), rel=0.01)


@pytest.mark.parametrize("kernel_us", [300, 4000])
def test_a_job_has_its_floor_beside_a_service_that_never_pauses(kernel_us: int) -> None:
    """Also where it wakes up late, each time: what it is owed meanwhile is not forgotten. Less the first 50 ms."""
    high = Task("high", sequence("high", [100] * 10, 0), 0, 4000)
    low = Task("low", sequence("low", [kernel_us] * 20, 0), 5, None, floor=0.1)
    _, beside = replay([high, low], Policy.FILL)
    assert beside.ran_ns >= 0.1 * (beside.finished_ns - 60 * MS)
