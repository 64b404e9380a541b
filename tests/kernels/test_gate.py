"""The decision core, on its own: who may launch, with time as an argument."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.kernels.core import GAPS, U32, U64, Policy, load

from .conftest import MS, Core

Make = Callable[..., Core]
START = 1_000 * MS
GATED = (Policy.STRICT, Policy.FIKIT, Policy.FILL)


def expected_delay(gaps_us: list[int], elapsed_ns: float, length_ns: float) -> float:
    return float(load().loom_expected_delay((U32 * GAPS)(*gaps_us), len(gaps_us), elapsed_ns, length_ns))


@pytest.mark.parametrize("policy", list(Policy))
def test_the_top_priority_never_waits(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 5)
    for number in range(100):
        core.ask(1, 7, START + number)
        assert core.ask(0, number % 3 + 1, START + number)


@pytest.mark.parametrize("policy", GATED)
def test_low_waits_while_high_is_in_flight_and_goes_when_it_is_alone(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 5)
    assert core.ask(0, 1, START)
    assert not core.ask(1, 2, START + 1000)
    assert core.slot(1).waiting_since == START + 1000
    core.ended(0, 1, 500_000, START + 500_000)
    assert core.ask(1, 2, START + 900 * MS)
    assert core.slot(1).waiting_since == 0


def test_share_gates_nobody(core_of: Make) -> None:
    core = core_of(Policy.SHARE, 0, 5)
    assert core.ask(0, 1, START)
    assert core.ask(1, 2, START)


@pytest.mark.parametrize("policy", GATED)
def test_another_device_is_another_world(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 5, devices=[11, 12])
    assert core.ask(0, 1, START)
    assert core.ask(1, 2, START)


@pytest.mark.parametrize("policy", GATED)
def test_nobody_waits_longer_than_a_second(core_of: Make, policy: Policy) -> None:
    """A higher queue may itself be waiting for us, through an event: then only going on ends it."""
    core = core_of(policy, 0, 5)
    core.slot(1).floor_ppm = 0
    assert core.ask(0, 1, START)
    assert not core.ask(1, 2, START)
    assert core.again_ns <= START + 1000 * MS
    assert not core.ask(1, 2, START + 999 * MS)
    assert core.ask(1, 2, START + 1000 * MS)


def test_fill_starts_what_fits_and_not_what_does_not(core_of: Make) -> None:
    core = core_of(Policy.FILL, 0, 5)
    core.slot(0).slowdown_ppm = 0
    core.slot(1).floor_ppm = 0
    at = core.teach(0, 1, MS, 4 * MS, 40, START)
    core.region.head.policy = Policy.SHARE
    core.teach(1, 20, 2 * MS, MS, 20, at - 100 * MS)
    core.teach(1, 21, 6 * MS, MS, 20, at - 100 * MS)
    core.region.head.policy = Policy.FILL
    assert not core.ask(1, 21, at + 10_000)
    assert core.ask(1, 20, at + 10_000)


def test_fill_learns_the_gap_of_each_place_not_of_each_kernel(core_of: Make) -> None:
    """Layers share kernels: the same one is followed by nothing inside the request and by a long pause at its end."""
    core = core_of(Policy.FILL, 0, 5)
    core.slot(0).slowdown_ppm = 0
    core.slot(1).floor_ppm = 0
    core.region.head.policy = Policy.SHARE
    core.teach(1, 20, MS, MS, 20, START - 500 * MS)
    core.region.head.policy = Policy.FILL
    at = START
    for _ in range(40):
        for kernel in (3, 1, 1, 1):
            at = core.run(0, kernel, at + (5 * MS if kernel == 3 else 20_000), MS)
    assert core.ask(1, 20, at + 1000), "after the last of the three"
    core.ended(1, 20, MS, at + MS + 1000)
    at = core.run(0, 3, at + 5 * MS, MS)
    at = core.run(0, 1, at + 20_000, MS)
    assert not core.ask(1, 20, at + 1000), "after the first of the three"


def test_fill_is_not_held_back_for_ever_by_a_slot_that_has_gone(core_of: Make) -> None:
    """Its budget is spent and grows no more, since it runs no more: being idle for longer than ever must do."""
    core = core_of(Policy.FILL, 0, 5)
    core.slot(1).floor_ppm = 0
    at = core.teach(0, 1, MS, 2 * MS, 40, START)
    core.slot(0).budget_ns = -(10**9)
    core.region.head.policy = Policy.SHARE
    core.teach(1, 20, MS, MS, 20, at - 100 * MS)
    core.region.head.policy = Policy.FILL
    assert not core.ask(1, 20, at + 3 * MS)
    assert core.ask(1, 20, at + 40 * MS)


def test_a_delay_that_happened_is_charged_in_full(core_of: Make) -> None:
    core = core_of(Policy.FILL, 0, 5)
    at = core.run(0, 1, START, MS)
    before = core.slot(0).budget_ns
    assert core.ask(1, 2, at + 500 * MS)
    assert core.ask(0, 1, at + 501 * MS)
    core.ended(1, 2, 4 * MS, at + 504 * MS)
    assert core.slot(0).overrun_ns == 3 * MS
    assert core.slot(0).budget_ns == before - 3 * MS


def test_fikit_fills_a_gap_by_the_profiles_means_alone(core_of: Make) -> None:
    core = core_of(Policy.FIKIT, 0, 5)
    core.expect(0, 1, MS, 3 * MS)
    core.expect(1, 20, 2 * MS, 0)
    core.expect(1, 21, 4 * MS, 0)
    at = core.run(0, 1, START, MS)
    assert not core.ask(1, 21, at + 1000)
    assert not core.ask(1, 99, at + 1000), "a kernel without a profile fits nowhere"
    assert core.ask(1, 20, at + 1000)


def test_fikit_lets_a_long_kernel_go_when_the_gap_is_over(core_of: Make) -> None:
    """The published policy's flaw, kept in the peer: exactly then the next request is due."""
    core = core_of(Policy.FIKIT, 0, 5)
    core.expect(0, 1, MS, 3 * MS)
    core.expect(1, 21, 9 * MS, 0)
    at = core.run(0, 1, START, MS)
    assert not core.ask(1, 21, at + 2 * MS)
    assert core.again_ns <= at + 3 * MS
    assert core.ask(1, 21, at + 3 * MS)


@pytest.mark.parametrize("policy", GATED)
def test_a_failed_launch_leaves_nothing_behind(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 5, 5)
    assert core.ask(1, 2, START)
    core.failed(1, START + 10)
    assert core.slot(1).in_flight == 0
    assert core.ask(2, 2, START + 20), "the token is free again"


def test_the_middle_goes_before_the_low(core_of: Make) -> None:
    core = core_of(Policy.STRICT, 0, 3, 7)
    assert core.ask(0, 1, START)
    assert not core.ask(2, 3, START + 1)
    assert not core.ask(1, 2, START + 2)
    core.ended(0, 1, 1000, START + 1000)
    assert not core.ask(2, 3, START + 2000)
    assert core.ask(1, 2, START + 3000)


def test_equals_go_first_come_first_served(core_of: Make) -> None:
    core = core_of(Policy.STRICT, 0, 5, 5)
    assert core.ask(0, 1, START)
    assert not core.ask(2, 3, START + 1)
    assert not core.ask(1, 2, START + 2)
    core.ended(0, 1, 1000, START + 1000)
    assert not core.ask(1, 2, START + 2000)
    assert core.ask(2, 3, START + 2000)


@pytest.mark.parametrize("kernel_ms", [1, 400])
def test_a_filler_does_not_run_ahead_of_a_kernel_that_is_late(core_of: Make, kernel_ms: int) -> None:
    """On a device that serves in order, all that is launched ahead is in the high priority's way. A kernel never seen
    counts as short, and one that is known may take longer for once: neither may be followed by a hundred others."""
    core = core_of(Policy.FILL, 0, 5)
    core.slot(1).floor_ppm = 0
    core.run(0, 1, START, MS)
    at = START + 500 * MS
    if kernel_ms == 1:
        at = core.teach(1, 2, MS, MS, 20, at)
    launched = sum(core.ask(1, 2, at + 100_000 * step) for step in range(1, 1000))
    assert launched <= 2


@pytest.mark.parametrize("policy", GATED)
def test_nobody_floods_the_device_before_the_higher_ones_first_launch(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 5)
    core.expect(1, 2, MS, 0)
    launched = sum(core.ask(1, 2, START + 1000 * step) for step in range(500))
    assert launched <= 2


@pytest.mark.parametrize("policy", GATED)
def test_a_slot_that_hangs_holds_nobody_up_for_long(core_of: Make, policy: Policy) -> None:
    """Its process was stopped, or its kernel failed without a word: after a second it is not believed any more."""
    core = core_of(policy, 0, 5)
    core.expect(1, 2, MS, 0)
    assert core.ask(0, 1, START)
    at = START + 1200 * MS
    for number in range(50):
        assert core.ask(1, 2, at + number * 2 * MS), f"launch {number}"
        core.ended(1, 2, MS, at + number * 2 * MS + MS)


@pytest.mark.parametrize("policy", GATED)
def test_the_token_of_a_filler_that_hangs_is_taken_over(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 5, 5)
    core.slot(2).floor_ppm = 0
    core.expect(2, 2, MS, 0)
    assert core.ask(1, 2, START)
    assert not core.ask(2, 2, START + MS)
    core.failed(2, START + MS)
    core.slot(2).waiting_since = 0
    assert core.ask(2, 2, START + 1300 * MS)


@pytest.mark.parametrize("policy", GATED)
def test_a_waiter_that_was_stopped_is_not_waited_for(core_of: Make, policy: Policy) -> None:
    core = core_of(policy, 0, 3, 7)
    core.slot(2).floor_ppm = 0
    for queue in (1, 2):
        core.expect(queue, 2, MS, 0)
    assert core.ask(0, 1, START)
    assert not core.ask(1, 2, START)
    core.ended(0, 1, MS, START + MS)
    assert not core.ask(2, 2, START + 500 * MS), "the middle one is due first"
    assert core.ask(2, 2, START + 1100 * MS)


def test_a_filler_that_becomes_the_top_leaves_the_token(core_of: Make) -> None:
    core = core_of(Policy.STRICT, 0, 3, 5)
    assert core.ask(1, 2, START)
    core.slot(0).priority = 9
    assert core.ask(1, 2, START + 10), "the highest now"
    core.ended(1, 2, 10, START + 20)
    assert core.region.head.devices[0].filler == 0


def test_fikit_does_not_wait_for_a_higher_one_that_cannot_go_itself(core_of: Make) -> None:
    core = core_of(Policy.FIKIT, 0, 3, 7)
    core.expect(0, 1, MS, 5 * MS)
    core.expect(2, 20, 2 * MS, 0)
    at = core.run(0, 1, START, MS)
    assert not core.ask(1, 99, at + 1000), "no profile: it fits nowhere"
    assert core.ask(2, 20, at + 2000)


def test_a_debt_asks_for_more_room_and_does_not_shut_the_gate(core_of: Make) -> None:
    """A service that runs little repays slowly; its long and sure gaps must not go to waste meanwhile."""
    core = core_of(Policy.FILL, 0, 5)
    core.slot(1).floor_ppm = 0
    at = core.teach(0, 1, MS, 100 * MS, 40, START)
    core.region.head.policy = Policy.SHARE
    core.teach(1, 20, MS, MS, 20, at - 200 * MS)
    core.teach(1, 21, 60 * MS, MS, 20, at - 2000 * MS)
    core.region.head.policy = Policy.FILL
    core.slot(0).budget_ns = -(10**9)
    assert not core.ask(1, 21, at + MS), "would fit, but not with room to spare"
    assert core.ask(1, 20, at + MS)


def test_a_time_in_which_nobody_looked_is_no_gap(core_of: Make) -> None:
    """Under default sharing, or alone on the device, launches go by untold."""
    core = core_of(Policy.FILL, 0, 5)
    at = core.teach(0, 1, MS, 4 * MS, 10, START)
    core.missed(0)
    at = core.run(0, 1, at + 60_000 * MS, MS)
    core.run(0, 1, at + 4 * MS, MS)
    assert core.slot(0).gap_error_ns == 0


def test_how_far_gaps_were_from_what_was_expected_is_counted(core_of: Make) -> None:
    core = core_of(Policy.FILL, 0, 5)
    at = core.teach(0, 1, MS, 4 * MS, 10, START)
    assert core.slot(0).gap_error_ns == 0
    core.run(0, 1, at + 6 * MS, MS)
    assert core.slot(0).gap_error_ns == 2 * MS
    assert core.slot(0).gaps_ns > 20 * MS


@given(
    gaps=st.lists(st.integers(0, 10**6), max_size=GAPS),
    elapsed=st.floats(0, 1e9),
    length=st.floats(0, 1e9),
    more=st.floats(0, 1e8),
)
def test_expected_delay_is_between_nothing_and_the_kernel_and_grows_with_it(
    gaps: list[int], elapsed: float, length: float, more: float
) -> None:
    delay = expected_delay(gaps, elapsed, length)
    assert -1e-3 <= delay <= length + 1e-3
    assert expected_delay(gaps, elapsed, length + more) >= delay - 1e-3


def test_expected_delay_of_known_gaps() -> None:
    assert expected_delay([100, 300], 0, 200_000) == 50_000
    assert expected_delay([100, 300], 150_000, 200_000) == 50_000
    assert expected_delay([100, 300], 0, 100_000) == 0
    assert expected_delay([], 0, 100_000) == 100_000
    assert expected_delay([100], 1e9, 1000) < 1


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "end", "fail", "wait"]), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3000)
    ),
    max_size=120,
)


@settings(max_examples=150)
@given(policy=st.sampled_from(GATED), steps=steps)
def test_whatever_happens_one_filler_at_a_time_and_counts_that_add_up(
    policy: Policy, steps: list[tuple[str, int, int, int]]
) -> None:
    core = Core(policy, (0, 4, 4, 8))
    for slot in range(4):
        core.slot(slot).floor_ppm = 0  # what a floor owes goes past the others
    now = START
    flying: list[list[int]] = [[], [], [], []]
    for what, queue, kernel, microseconds in steps:
        now += microseconds * 1000 + 1
        if what == "ask":
            overdue = any(
                core.slot(i).waiting_since and now - core.slot(i).waiting_since >= 1000 * MS for i in range(4)
            )
            others = [i for i in (1, 2, 3) if i != queue and flying[i]]
            if core.ask(queue, kernel, now):
                flying[queue].append(kernel)
                assert queue == 0 or not others or overdue
        elif flying[queue] and what == "end":
            core.ended(queue, flying[queue].pop(0), microseconds * 500, now)
        elif flying[queue] and what == "fail":
            flying[queue].pop()
            core.failed(queue, now)
        assert [core.slot(i).in_flight for i in range(4)] == [len(one) for one in flying]
    core.close()


@settings(max_examples=60)
@given(noise=st.binary(min_size=64, max_size=4096), at=st.integers(0, 20_000))
def test_nonsense_in_the_shared_memory_harms_nobody(noise: bytes, at: int) -> None:
    """Somebody scribbles over the region: answers may be odd, but they come, and nothing outside is touched."""
    import ctypes

    core = Core(Policy.FILL, (0, 3, 5))
    core.run(0, 1, START, MS)
    start = ctypes.addressof(core.region) + 64 + at % (ctypes.sizeof(core.region) - 64 - len(noise))
    ctypes.memmove(start, noise, len(noise))
    for number in range(50):
        queue = number % 3
        if core.ask(queue, number, START + number * 300 * MS):
            core.ended(queue, number, MS, START + number * 300 * MS + MS)
    core.close()


def test_a_kernels_identity_is_its_name_its_grid_and_its_block() -> None:
    core = load()

    def identity(name: bytes, grid: tuple[int, ...], block: tuple[int, ...] | None) -> int:
        size = U64 * 3
        return int(core.loom_kernel_id(name, len(grid), size(*grid), size(*block) if block else None))

    seen = {
        identity(name, grid, block)
        for name in (b"conv", b"matmul")
        for grid in ((64,), (64, 1), (64, 64), (128,), (1, 64))
        for block in (None, (1, 1, 1), (16, 1, 1))
    }
    assert len(seen) == 30
    assert identity(b"conv", (64,), None) == identity(b"conv", (64,), None)
