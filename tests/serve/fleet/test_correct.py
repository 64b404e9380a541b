"""When a replica is given its larger share, and when it gives it back."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuloom.serve.fleet.correct import FRESH, RULES, Health, Level, Means, Rules, Seen, Verdict, correct, is_violation

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
