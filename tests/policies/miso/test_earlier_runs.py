"""`miso` and what earlier runs saw: below what this run's jobs report, above all that is predicted."""

from collections.abc import Mapping

import pytest

from gpuloom.contract.view import View
from gpuloom.gpus.catalogue import find
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.policies.miso.policy import Miso
from tests.policies.miso.test_miso import Slices, believed, known

A100 = find("A100-40GB")
SEEN = {"7g.40gb": 10.0, "4g.20gb": 9.0, "3g.20gb": 8.0, "2g.10gb": 7.0, "1g.5gb": 6.0}


class Told(Slices):
    """A desk that is told of earlier runs."""

    earlier: Mapping[tuple[str, str], Earlier] = {}

    def hear(self, *all_known: Earlier) -> None:
        self.earlier = {(one.workload, one.model): one for one in all_known}

    def view(self, now_s: float) -> View:
        seen = super().view(now_s)
        return View(
            seen.now_s, seen.cause, seen.cluster, seen.jobs, seen.waiting, seen.gpus, seen.idle, earlier=self.earlier
        )


def desk(*all_known: Earlier, jobs: int = 3, **fields: object) -> Told:
    made = Told("1xA100-40GB")
    made.hear(*all_known)
    for number in range(jobs):
        made.come(f"j{number}", "w", **fields)
    return made


def told(rates: Mapping[str, float] = SEEN, **more: object) -> Earlier:
    return Earlier("w", "A100-40GB", rates, **({"ran": True} | more))  # type: ignore[arg-type]


def test_who_was_seen_before_is_not_probed_and_the_reason_says_so() -> None:
    unknown, before = desk(), desk(told())
    policy = Miso(unknown.cluster)
    unknown.decide(policy)
    assert unknown.probed == (0,)
    policy = Miso(before.cluster)
    plan = policy.decide(before.view(100.0))
    assert plan.probes == ()
    said = [reason.why for reason in plan.reasons if reason.chosen.endswith("gb")]
    assert len(said) == 3
    assert all(why.endswith("moves included; its speed there as an earlier run saw it") for why in said)
    speeds = believed(policy, before.state.jobs["j0"], A100)
    assert {name: speeds[name].speed for name in SEEN} == pytest.approx(
        {name: rate / 10 for name, rate in SEEN.items()}
    )
    assert speeds["3g.20gb"].low < 0.8 < speeds["3g.20gb"].high


def test_where_nothing_was_seen_before_reasons_are_as_they_were() -> None:
    others = desk(Earlier("v", "A100-40GB", SEEN, ran=True), jobs=1)
    plan = Miso(others.cluster).decide(others.view(100.0))
    assert [reason.why for reason in plan.reasons] == [
        "the fewest GPU seconds lost over 600 s",
        "GPU seconds that its 1 jobs lose over 600 s, moves included",
    ]


@pytest.mark.parametrize("rates", [{}, {"3g.20gb": 8.0}])
def test_one_slice_alone_says_nothing(rates: Mapping[str, float]) -> None:
    little = desk(told(rates))
    policy = Miso(little.cluster)
    plan = policy.decide(little.view(100.0))
    assert plan.probes == (0,)
    assert not any("saw it" in reason.why for reason in plan.reasons)


def test_a_probe_does_not_take_its_place_and_what_this_run_sees_does() -> None:
    """In whatever unit the earlier one was: its rates are never held against this run's."""
    epochs = {profile: rate / 1000 for profile, rate in SEEN.items()}
    before = desk(told(epochs, measured=True), jobs=0)
    policy = Miso(before.cluster)
    for number in range(3):
        before.come(f"j{number}", "w")
    before.sit(0, "3,2,2", "j0", "j1", "j2", reports=(30.0, 30.0, 50.0))
    before.change("j0", estimates=known(1.0, 0.5, 0.4, 0.3, 0.2))
    policy.beliefs.learn(before.view(100.0))
    job, profiles = before.state.jobs["j0"], ("1g.5gb", "2g.10gb", "3g.20gb")
    speeds = believed(policy, job, A100)
    assert speeds["1g.5gb"].speed == pytest.approx(0.6)
    assert speeds["3g.20gb"].speed / speeds["2g.10gb"].speed == pytest.approx(5 / 3)
    who = [policy.beliefs.from_before(job, A100, profile) for profile in profiles]
    assert who == ["gpuloom measure and earlier runs", None, None]


def test_memory_that_it_ran_out_of_is_not_given_again() -> None:
    """Whatever its owner says it needs; and never to the point that it has no place."""
    small_mib = A100.by_name["2g.10gb"].mem_mib
    short = desk(told(too_small_mib=small_mib), mem_mib=4096)
    policy = Miso(short.cluster)
    policy.beliefs.learn(short.view(100.0))
    assert {*believed(policy, short.state.jobs["j0"], A100)} == {"7g.40gb", "4g.20gb", "3g.20gb"}
    shorter = desk(told({}, too_small_mib=A100.by_name["7g.40gb"].mem_mib), mem_mib=4096)
    policy = Miso(shorter.cluster)
    policy.beliefs.learn(shorter.view(100.0))
    assert {*believed(policy, shorter.state.jobs["j0"], A100)} == {"7g.40gb"}


@pytest.mark.parametrize("lever", ["memory", "telemetry"])
def test_without_the_lever_it_is_not_heard_of(lever: str) -> None:
    deaf = desk(told())
    policy = Miso(deaf.cluster, 0, f"-{lever}")
    assert policy.decide(deaf.view(100.0)).probes == (0,)


def test_another_model_is_of_no_use() -> None:
    other = desk(Earlier("w", "A100-80GB", SEEN, ran=True))
    assert Miso(other.cluster).decide(other.view(100.0)).probes == (0,)


def test_it_is_never_part_of_what_the_policy_remembers() -> None:
    """A log has it once, and the memory of old logs reads as it did."""
    before, without = desk(told(), jobs=1), desk(jobs=1)
    kept = []
    for one in (before, without):
        policy = Miso(one.cluster)
        policy.decide(one.view(100.0))
        kept.append(policy.beliefs.remember())
    assert kept[0] == kept[1]
