"""When a replica is given its larger share, and when it gives it back."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from gpuloom.serve.deployment import Level
from gpuloom.serve.fleet.correct import FRESH, RULES, Health, Means, Rules, Seen, Verdict, correct, is_violation
from gpuloom.serve.latencies import Window

MEANS = Means(slo_ms=40.0, slower=1.25, room=True)


def seen(now_s: float, total: int = 200, above: int = 0, p99_ms: float | None = 20.0) -> Seen:
    return Seen(now_s, ((total, above), (5 * total, above)), p99_ms)


def test_a_jump_is_seen_at_once_and_the_larger_share_is_taken() -> None:
    health, verdict = correct(FRESH, seen(10.0, 200, 12, 55.0), MEANS)
    assert verdict is Verdict.GROW
    assert health.level is Level.SHADOW


def test_what_the_promise_allows_is_no_violation() -> None:
    assert correct(FRESH, seen(10.0, 1000, 10, 39.0), MEANS) == (FRESH, Verdict.STAY)


def test_a_few_unlucky_requests_are_no_violation() -> None:
    assert is_violation(80_000, 40_000), "many requests do not hide it"
    assert not is_violation(20, 1)
    assert not is_violation(4, 4)
    assert is_violation(5, 5)
    assert is_violation(200, 10)
    assert not is_violation(200, 5)


def test_without_room_somebody_has_to_plan_anew() -> None:
    health, verdict = correct(FRESH, seen(10.0, 200, 50, 90.0), Means(40.0, 1.0, room=False))
    assert (health, verdict) == (FRESH, Verdict.STUCK)
    grown = Health(Level.SHADOW, calm_s=20.0)
    assert correct(grown, seen(10.0, 200, 50, 90.0), MEANS)[1] is Verdict.STUCK


def test_it_shrinks_only_after_the_need_has_been_gone_for_a_while() -> None:
    health = Health(Level.SHADOW, calm_s=20.0)
    health, verdict = correct(health, seen(100.0), MEANS)
    assert verdict is Verdict.STAY
    health, verdict = correct(health, seen(119.0), MEANS)
    assert verdict is Verdict.STAY
    health, verdict = correct(health, seen(120.0), MEANS)
    assert verdict is Verdict.SHRINK
    assert health.level is Level.PLANNED


def test_the_need_is_there_as_long_as_the_planned_share_would_be_too_slow() -> None:
    health = Health(Level.SHADOW, calm_s=20.0, quiet_since_s=50.0)
    # 30 ms now would be 37.5 ms there, beyond 85 % of 40 ms.
    health, verdict = correct(health, seen(69.0, p99_ms=30.0), MEANS)
    assert (health.quiet_since_s, verdict) == (None, Verdict.STAY)
    health, verdict = correct(health, seen(70.0, p99_ms=27.0), MEANS)
    assert (health.quiet_since_s, verdict) == (70.0, Verdict.STAY)


def test_no_requests_need_no_larger_share() -> None:
    health = Health(Level.SHADOW, calm_s=20.0, quiet_since_s=50.0)
    assert correct(health, seen(70.0, 0, 0, None), MEANS)[1] is Verdict.SHRINK


def test_a_relapse_doubles_the_wait_and_a_time_of_peace_forgives_it() -> None:
    health, _ = correct(FRESH, seen(0.0, 200, 50, 90.0), MEANS)
    assert health.calm_s == RULES.calm_s
    health = Health(Level.PLANNED, calm_s=20.0, shrunk_s=100.0)
    early, _ = correct(health, seen(110.0, 200, 50, 90.0), MEANS)
    late, _ = correct(health, seen(1000.0, 200, 50, 90.0), MEANS)
    assert (early.calm_s, late.calm_s) == (40.0, 20.0)


def test_a_need_that_comes_back_after_every_shrinking_is_answered_less_and_less_often() -> None:
    """The worst case for flapping: fine on the larger share, broken on the planned one, always."""
    health, switches, now_s = FRESH, [], 0.0
    while now_s < 10_000.0:
        now_s += 1.0
        bad = health.level is Level.PLANNED
        health, verdict = correct(health, seen(now_s, 200, 50 if bad else 0, 90.0 if bad else 20.0), MEANS)
        if verdict is Verdict.SHRINK:
            switches.append(now_s)
    gaps = [later - earlier for earlier, later in pairwise(switches)]
    assert gaps == sorted(gaps)
    assert len(switches) <= 12


def test_requests_of_one_batch_are_late_together() -> None:
    assert is_violation(200, 12)
    assert not is_violation(200, 12, batch=6)
    assert is_violation(200, 30, batch=6)


@given(total=st.integers(0, 5000), above=st.integers(0, 5000), batch=st.integers(1, 64), doubt=st.floats(1e-8, 0.2))
def test_more_above_the_slo_is_never_less_of_a_violation(total: int, above: int, batch: int, doubt: float) -> None:
    above = min(above, total)
    rules = Rules(doubt=doubt)
    if is_violation(total, above, batch, rules) and above < total:
        assert is_violation(total, above + 1, batch, rules)
    if above <= 0.01 * total:
        assert not is_violation(total, above, batch, rules)


@given(
    steps=st.lists(
        st.tuples(st.floats(0.1, 30.0), st.integers(0, 300), st.integers(0, 300), st.floats(1.0, 200.0), st.booleans()),
        max_size=60,
    )
)
def test_verdicts_and_levels_always_agree(steps: list[tuple[float, int, int, float, bool]]) -> None:
    health, now_s, shrunk_s = FRESH, 0.0, None
    for gap_s, total, above, p99_ms, room in steps:
        now_s += gap_s
        before = health.level
        health, verdict = correct(health, seen(now_s, total, min(above, total), p99_ms), Means(40.0, 1.25, room))
        changed = health.level is not before
        assert changed is (verdict in (Verdict.GROW, Verdict.SHRINK))
        if verdict is Verdict.GROW:
            assert room
            assert before is Level.PLANNED
            if shrunk_s is not None and now_s - shrunk_s < RULES.relapse_s:
                assert health.calm_s > RULES.calm_s
        if verdict is Verdict.SHRINK:
            assert before is Level.SHADOW
            shrunk_s = now_s


LEVELS = st.sampled_from([Level.PLANNED, Level.SHADOW])
HEALTHS = st.builds(Health, LEVELS, st.floats(0.0, 2000.0), st.none() | st.floats(0.0, 1e4), st.floats(-1e4, 1e4))
COUNTS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=3).map(
    lambda pairs: tuple((max(pair), min(pair)) for pair in pairs)
)
SEEN = st.builds(Seen, st.floats(0.0, 1e4), COUNTS, st.none() | st.floats(0.0, 1e3))
ANY_MEANS = st.builds(Means, st.floats(1.0, 500.0), st.floats(1.0, 5.0), st.booleans(), st.integers(1, 64))


@given(total=st.integers(0, 3000), above=st.integers(0, 200), batch=st.integers(1, 32))
@settings(deadline=None, max_examples=200)
def test_a_violation_is_what_the_binomial_law_hardly_makes(total: int, above: int, batch: int) -> None:
    above = min(above, total)
    chance = float(binom.sf(above // batch - 1, total // batch, RULES.allowed))
    if abs(chance - RULES.doubt) > 1e-12:
        enough = above >= RULES.least and above > RULES.allowed * total
        assert is_violation(total, above, batch) is (enough and chance < RULES.doubt)


@settings(deadline=None, max_examples=200)
@given(health=HEALTHS, seen=SEEN, means=ANY_MEANS)
def test_without_a_violation_it_never_grows(health: Health, seen: Seen, means: Means) -> None:
    violated = any(is_violation(total, above, means.batch) for total, above in seen.counts)
    after, verdict = correct(health, seen, means)
    if not violated:
        assert verdict in (Verdict.STAY, Verdict.SHRINK)
        assert (after.level is Level.SHADOW) <= (health.level is Level.SHADOW)
    else:
        expected = Verdict.GROW if health.level is Level.PLANNED and means.room else Verdict.STUCK
        assert verdict is expected
    assert correct(health, seen, means) == (after, verdict)  # it remembers nothing but what it returned


@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 16),
    extra=st.floats(1.0, 20.0),
    calm_s=st.floats(0.0, 30.0),
    window=st.sampled_from(RULES.windows_s),
)
@example(batch=1, extra=1.0, calm_s=30.0, window=1.0)
def test_when_all_are_late_it_grows_within_a_window(batch: int, extra: float, calm_s: float, window: float) -> None:
    """A window in which three batches and five requests are late, all that came, is enough."""
    rate = extra * (max(3 * batch, RULES.least) + batch) / window
    latencies = Window(RULES.windows_s[-1], limit_ms=40.0)
    grown_s, health, tick_s = None, FRESH, 0.05
    for tick in range(round((calm_s + window) / tick_s) + 1):
        now_s = tick * tick_s
        for _ in range(int(rate * (tick + 1) * tick_s) - int(rate * tick * tick_s)):
            latencies.add(now_s, 20.0 if now_s < calm_s else 90.0)
        counts = tuple(latencies.counts(now_s, span_s) for span_s in RULES.windows_s)
        health, verdict = correct(health, Seen(now_s, counts, None), Means(40.0, 1.25, True, batch))
        if verdict is Verdict.GROW:
            grown_s = now_s
            break
    assert grown_s is not None
    assert grown_s >= calm_s


@settings(deadline=None, max_examples=50)
@given(relapses=st.integers(0, 12), soon_s=st.floats(0.1, 59.0), calm_s=st.floats(1.0, 100.0))
def test_every_relapse_doubles_the_wait_up_to_a_limit(relapses: int, soon_s: float, calm_s: float) -> None:
    rules = Rules(calm_s=calm_s)
    health, now_s = FRESH, 0.0
    for relapse in range(relapses + 1):
        now_s += soon_s
        health, verdict = correct(health, seen(now_s, 200, 50), MEANS, rules)
        assert verdict is Verdict.GROW
        wait_s = min(calm_s * 2.0**relapse, rules.most_calm_s)
        assert health.calm_s == pytest.approx(wait_s)
        health, verdict = correct(health, seen(now_s), MEANS, rules)
        assert verdict is Verdict.STAY
        health, verdict = correct(health, seen(now_s + 0.99 * wait_s), MEANS, rules)
        assert verdict is Verdict.STAY
        now_s += 1.01 * wait_s
        health, verdict = correct(health, seen(now_s), MEANS, rules)
        assert verdict is Verdict.SHRINK
