"""Jobs on parts of GPUs beside jobs on whole ones: who is cut for, who stays, what is learned, what always holds."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.plan import Plan
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import JobView, Phase, Report
from gpuloom.engine.feasible import why_infeasible
from gpuloom.gpus import layouts
from gpuloom.gpus.catalogue import find
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.slices.memory import RunMemory
from gpuloom.perf.speed import Estimate
from gpuloom.policies.ones.policy import Ones
from gpuloom.policies.ones.slices import Pool
from gpuloom.work.model import Kind
from tests.policies.conftest import Desk

A100 = find("A100-40GB")
SLICEABLE: dict[str, Any] = {"kind": Kind.SLICEABLE, "mem_mib": 4000}


class CutDesk(Desk):
    """A desk that carries out layouts too, at once, after the engine's own check."""

    def ask(self, policy: Policy, now_s: float) -> Plan:
        plan = policy.decide(self.view(now_s))
        assert why_infeasible(self.state, plan) is None
        for gpu, layout in plan.layouts.items():
            self.state.gpus[gpu] = self.state.gpus[gpu]._replace(layout=layout, actual=layout)
        for job_id in plan.grants:
            self.state.plan_grants(job_id, ())
        for job_id, grants in plan.grants.items():
            self.state.plan_grants(job_id, grants)
            job = self.state.jobs[job_id]
            phase = Phase.RUNNING if grants else Phase.WAITING
            ran_s = job.ran_s + (now_s - job.since_s if job.phase is Phase.RUNNING else 0.0)
            self.state.put(job._replace(phase=phase, held=grants, since_s=now_s, ran_s=ran_s, starts=job.starts + 1))
        self.check_who_is_where()
        return plan

    def check_who_is_where(self) -> None:
        for gpu, seen in self.state.gpus.items():
            here = [grant for job in self.state.jobs.values() for grant in job.grants if grant.gpu == gpu]
            assert len({grant.instance for grant in here}) == len(here), "one job on each"
            assert layouts.check(self.cluster.gpus[gpu].model, seen.layout) is None
            whole = any(grant.instance is None for grant in here)
            assert not (whole and (seen.layout or len(here) > 1)), "whole or cut"

    def profile(self, job_id: str) -> str | None:
        """That it has; `whole`, or None if it waits."""
        grants = self.state.jobs[job_id].grants
        return (grants[0].instance.profile if grants[0].instance else "whole") if grants else None

    def change(self, job_id: str, **fields: Any) -> None:
        self.state.put(self.state.jobs[job_id]._replace(**fields))

    def end(self, *job_ids: str) -> None:
        for job_id in job_ids:
            self.change(job_id, held=())
            self.state.forget(job_id)


def test_who_is_alone_has_a_gpu_whole_and_uncut() -> None:
    desk = CutDesk("1x2xA100-40GB")
    desk.arrive("a", **SLICEABLE)
    plan = desk.ask(Ones(desk.cluster), 60)
    assert desk.profile("a") == "whole"
    assert plan.layouts == {}
    (reason,) = plan.reasons
    assert reason.subject == "a"
    assert reason.alternatives == (("0 GPUs for all of them", 0.0),)


def test_a_gpu_is_cut_for_more_jobs_than_there_are_gpus_and_elastic_ones_stay_on_whole_ones() -> None:
    desk = CutDesk("1x4xA100-40GB")
    for number in range(9):
        desk.arrive(f"s{number}", **SLICEABLE)
    desk.arrive("elastic")
    policy = Ones(desk.cluster)
    desk.ask(policy, 60)
    assert all(desk.profile(f"s{number}") for number in range(9))
    assert 1 <= len(desk.held("elastic")) <= 3
    assert desk.ask(policy, 120).grants == {}, "who sits well stays"


def test_without_the_lever_everybody_has_a_whole_gpu_or_waits() -> None:
    for gpus, arg in (("1x4xA100-40GB", "-slices"), ("1x4xV100-16GB", "")):
        desk = CutDesk(gpus)
        for number in range(6):
            desk.arrive(f"s{number}", **SLICEABLE)
        plan = desk.ask(Ones(desk.cluster, arg=arg), 60)
        assert plan.layouts == {}
        assert sorted(str(desk.profile(f"s{number}")) for number in range(6)) == ["None"] * 2 + ["whole"] * 4


def test_events_lead_to_something_only_where_somebody_is_sliceable() -> None:
    desk = CutDesk("1x2xA100-40GB")
    policy = Ones(desk.cluster)
    assert policy.when.on_events
    assert not Ones(Desk().cluster).when.on_events, "where nothing can be cut rounds are enough"
    desk.arrive("elastic", max_gpus=1)
    assert {*desk.ask(policy, 10).grants} == {"elastic"}, "the first question is a round in any case"
    desk.arrive("late", max_gpus=1)
    assert desk.ask(policy, 20).grants == {}
    assert {*desk.ask(policy, 60).grants} == {"late"}, "by the time, whatever the cause"
    desk.end("late")
    desk.arrive("s", **SLICEABLE)
    assert {*desk.ask(policy, 70).grants} == {"s"}


def test_what_is_no_longer_cut_for_anybody_is_whole_again_for_who_takes_it() -> None:
    desk = CutDesk("1x1xA100-40GB")
    policy = Ones(desk.cluster)
    for job_id in "ab":
        desk.arrive(job_id, **SLICEABLE)
    desk.ask(policy, 60)
    assert desk.state.gpus[0].layout
    desk.end("a", "b")
    desk.arrive("elastic")
    assert desk.ask(policy, 120).layouts == {0: ()}
    assert desk.held("elastic") == (0,)


def test_who_is_left_moves_up_only_if_it_pays() -> None:
    def left(done_s: float) -> str | None:
        """What the last of three has a while later, if it ran for so long before."""
        desk = CutDesk("1x1xA100-40GB")
        policy = Ones(desk.cluster)
        for job_id in "abc":
            desk.arrive(job_id, **SLICEABLE)
        desk.ask(policy, 60)
        desk.end("a", "b")
        desk.change("c", ran_s=done_s)
        desk.ask(policy, 60.0)
        return desk.profile("c")

    assert left(10.0) != "whole", "as little before it as behind it: a restart would cost more"
    assert left(3000.0) == "whole"


def test_a_free_slice_is_taken_without_a_cut() -> None:
    desk = CutDesk("1x1xA100-40GB")
    policy = Ones(desk.cluster)
    for job_id in "abc":
        desk.arrive(job_id, **SLICEABLE)
        desk.arrive(f"{job_id}2", **SLICEABLE)
    desk.ask(policy, 60)
    desk.end("b")
    desk.arrive("new", **SLICEABLE)
    plan = desk.ask(policy, 61)
    assert plan.layouts == {}
    assert [*plan.grants] == ["new"]


def test_memory_and_floors_are_kept() -> None:
    desk = CutDesk("1x2xA100-40GB")
    desk.arrive("large", kind=Kind.SLICEABLE, mem_mib=15_000)
    desk.arrive("quick", kind=Kind.SLICEABLE, mem_mib=4000, min_speed=0.5)
    for number in range(3):
        desk.arrive(f"s{number}", **SLICEABLE)
    policy = Ones(desk.cluster)
    for number in range(1, 5):
        desk.ask(policy, 60.0 * number)
        assert desk.profile("large") in (None, "3g.20gb", "4g.20gb", "whole")
        assert desk.profile("quick") in (None, "3g.20gb", "4g.20gb", "whole"), "the lower end of what is believed"
    assert sum(desk.profile(job_id) is not None for job_id in desk.state.jobs) >= 4


def test_who_crashed_without_saying_what_it_needs_is_given_all_there_is() -> None:
    desk = CutDesk("1x2xA100-40GB")
    for job_id in "abcd":
        desk.arrive(job_id, kind=Kind.SLICEABLE)
    policy = Ones(desk.cluster)
    desk.ask(policy, 60)
    victim = next(job_id for job_id in "abcd" if desk.profile(job_id) != "whole")
    desk.change(victim, crashes=1)
    desk.ask(policy, 120)
    assert desk.profile(victim) in ("whole", None)
    for job_id in {*"abcd"} - {victim}:
        assert desk.profile(job_id) is not None


def test_what_a_job_is_seen_to_do_on_slices_decides_who_gets_which() -> None:
    def asked(rates: dict[str, float]) -> CutDesk:
        """Two of each work, of which these batches a second were seen on 3g, and one on the whole GPU."""
        desk = CutDesk("1x3xA100-40GB")
        policy = Ones(desk.cluster)
        for work in rates:
            desk.arrive(work, workload=work, **SLICEABLE)
        desk.ask(policy, 60)
        for work in rates:
            assert desk.profile(work) == "whole"
            desk.report(work, Report(61.0, batches_per_s=1.0))
        desk.ask(policy, 120)
        desk.end(*rates)
        one = CutDesk("1x1xA100-40GB")
        for work in rates:
            one.arrive(f"{work}2", workload=work, **SLICEABLE)
        for at_s in (180.0, 240.0):
            one.ask(policy, at_s)
            for work, rate in rates.items():
                profile = one.profile(f"{work}2")
                speed = rate if profile in ("3g.20gb", "4g.20gb") else rate / 2
                one.report(f"{work}2", Report(at_s + 1.0, batches_per_s=speed))
        for work in rates:
            one.change(f"{work}2", ran_s=5000.0)
        one.ask(policy, 300.0)
        return one

    desk = asked({"same": 0.98, "slow": 0.5, "slow too": 0.5})
    width = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "4g.20gb": 4, "whole": 7, None: 0}
    assert width[desk.profile("same2")] <= max(width[desk.profile("slow2")], width[desk.profile("slow too2")])


def test_a_probe_beats_the_prior() -> None:
    desk = CutDesk("1x1xA100-40GB")
    for job_id, speed in (("needy", 0.2), ("content", 0.99)):
        desk.arrive(job_id, **SLICEABLE)
        slices = {"3g.20gb": speed * 0.9, "4g.20gb": speed, "7g.40gb": 1.0}
        desk.change(job_id, estimates={name: Estimate(one, one, one) for name, one in slices.items()})
    desk.ask(Ones(desk.cluster), 60)
    assert {desk.profile("needy"), desk.profile("content")} in ({"4g.20gb", "3g.20gb"}, {"whole", None})


def speeds_of(job: JobView, model: GpuModel) -> dict[str, float]:
    """Of jobs that are named after their exponent."""
    most = layouts.total_slices(model)
    return {one.name: float((one.slices / most) ** (int(job.id[1:]) / 10)) for one in model.profiles}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.5, 2.0)), min_size=1, max_size=4, unique_by=lambda one: one[0])
)
def test_the_cut_of_one_gpu_is_the_best_there_is(jobs: list[tuple[int, float]]) -> None:
    desk = CutDesk("1x1xA100-40GB")
    weights = {f"j{power}": weight for power, weight in jobs}
    for job_id in weights:
        desk.arrive(job_id, **SLICEABLE)
    view = desk.view(0.0)
    pool = Pool(view, weights, speeds_of, lambda _job, _speed: 0.0, 0.75)
    counts, values = pool.row()
    assert counts.tolist() == [0, 1]
    placed = [*pool.place(1, [0]).grants]

    def worth(cut: tuple[str, ...]) -> float:
        speeds = [speeds_of(view.jobs[job_id], A100)[profile] for job_id, profile in zip(placed, cut, strict=True)]
        return float(sum(weights[job_id] * speed**0.75 for job_id, speed in zip(placed, speeds, strict=True)))

    cuts = {
        tuple(instance.profile for instance in order)
        for layout in layouts.maximal(A100)
        if len(layout) >= len(placed)
        for order in permutations(layout, len(placed))
    }
    assert values[1] == pytest.approx(max(map(worth, cuts)))
    assert values[0] == 0.0


def test_more_gpus_are_never_worth_less_and_one_for_each_is_enough() -> None:
    desk = CutDesk("2x4xA100-40GB")
    weights = {f"j{power}": 1.0 for power in range(1, 6)}
    for job_id in weights:
        desk.arrive(job_id, **SLICEABLE)
    _, values = Pool(desk.view(0.0), weights, speeds_of, lambda _job, _speed: 0.0, 0.75).row()
    assert len(values) == 6
    assert (np.diff(values) > 0).all()
    assert values[-1] == pytest.approx(5.0)


@st.composite
def days(draw: st.DrawFn) -> list[list[tuple[str, dict[str, Any]]]]:
    """Who arrives before each round."""
    kinds = st.sampled_from(["sliceable", "sliceable", "sliceable", "elastic", "rigid"])
    memory = st.sampled_from([None, 4000, 9000, 18_000, 39_000])
    job = st.tuples(kinds, st.fixed_dictionaries({"mem_mib": memory, "workload": st.sampled_from([None, "a", "b"])}))
    return draw(st.lists(st.lists(job, max_size=6), min_size=1, max_size=5))


@settings(max_examples=25, deadline=None)
@given(days(), st.data())
def test_whatever_comes_nobody_waits_beside_a_gpu_that_is_idle(
    rounds: list[list[tuple[str, dict[str, Any]]]], data: st.DataObject
) -> None:
    desk, number = CutDesk("2x2xA100-40GB"), 0
    policy, twin = Ones(desk.cluster), Ones(desk.cluster)
    for at, arrivals in enumerate(rounds, 1):
        for kind, fields in arrivals:
            number += 1
            told = fields if kind == "sliceable" else {"workload": fields["workload"]}
            desk.arrive(f"j{number}", kind=Kind(kind), gpus=1, **told)
        again = twin.decide(desk.view(60.0 * at))
        assert desk.ask(policy, 60.0 * at) == again
        assert twin.remember() == policy.remember()
        twin = Ones(desk.cluster, seed=1)
        twin.restore(policy.remember())
        assert not desk.state.waiting or not desk.state.idle.total
        running = [*desk.state.jobs]
        if running:
            desk.end(*data.draw(st.sets(st.sampled_from(running), max_size=3)))


def rounds_with_a_slice(policy: Ones, rounds: int) -> int:
    """Of a long job on parts of one GPU, beside eight short ones that are new in every round."""
    desk = CutDesk("1x1xA100-40GB")
    desk.arrive("long", **SLICEABLE, workload="long")
    held = 0
    for number in range(rounds):
        if number:
            desk.end(*(f"n{number - 1}-{one}" for one in range(8)))
        for one in range(8):
            desk.arrive(f"n{number}-{one}", **SLICEABLE, workload="short")
        desk.ask(policy, 60.0 * (number + 1))
        held += desk.profile("long") is not None
    return held


def lengths_known(policy: Ones) -> Ones:
    """That long jobs are long, and short ones short."""
    steady = {"finished": {"long": [1e6], "short": [30.0]}, "seen": RunMemory().remember(), "done": {}, "counted": {}}
    policy.restore({**policy.remember(), "steady": steady})  # type: ignore[dict-item]
    return policy


def test_on_a_slice_too_nobody_starves() -> None:
    cluster = CutDesk("1x1xA100-40GB").cluster
    assert rounds_with_a_slice(lengths_known(Ones(cluster, arg="-bound")), 200) == 0
    assert rounds_with_a_slice(lengths_known(Ones(cluster)), 200) > 0


def test_who_counts_more_takes_the_place_of_one_who_counts_less_and_of_nobody_else() -> None:
    desk = CutDesk("1x1xA100-40GB")
    policy = lengths_known(Ones(desk.cluster))
    longs = [f"long {number}" for number in range(7)]
    for job_id in longs:
        desk.arrive(job_id, **SLICEABLE, workload="long")
    desk.ask(policy, 60.0)
    assert all(map(desk.profile, longs)), "every slice is taken"
    desk.arrive("short", **SLICEABLE, workload="short")
    plan = desk.ask(policy, 120.0)
    assert desk.profile("short")
    assert len(plan.grants) == 2
    assert sum(desk.profile(job_id) is None for job_id in longs) == 1
    assert plan.layouts == {}
    assert desk.ask(policy, 120.0).grants == {}, "nothing has changed"


@pytest.mark.parametrize(("jobs", "mem_mib"), [(8, 4000), (2, 40_000), (5, 18_000)])
def test_where_there_are_more_jobs_than_slices_they_take_turns(jobs: int, mem_mib: int) -> None:
    desk, rounds = CutDesk("1x1xA100-40GB"), 200
    policy = Ones(desk.cluster)
    for number in range(jobs):
        desk.arrive(f"j{number}", kind=Kind.SLICEABLE, mem_mib=mem_mib, workload="same")
    held, moves = dict.fromkeys(desk.state.jobs, 0), 0
    for number in range(rounds):
        moves += len(desk.ask(policy, 60.0 * (number + 1)).grants)
        for job_id in held:
            held[job_id] += desk.profile(job_id) is not None
    assert min(held.values()) >= 10
    assert moves < rounds / 2, "turns are long"


def test_a_claim_is_to_a_seat_not_to_a_large_one() -> None:
    desk = CutDesk("1x1xA100-40GB")
    weights = {"j1": 2.0, "j2": 2.0, "j3": 0.1}
    for job_id in weights:
        desk.arrive(job_id, **SLICEABLE)
    pool = Pool(desk.view(0.0), weights, speeds_of, lambda _job, _speed: 0.0, 0.75, {"j3": 1e6})
    widths = {
        job_id: A100.by_name[grants[0].instance.profile].slices if grants and grants[0].instance else 0
        for job_id, grants in pool.place(1, [0]).grants.items()
    }
    assert 0 < widths["j3"] <= min(widths["j1"], widths["j2"])


def test_a_claim_makes_room_however_many_have_to_leave_but_for_others_with_one() -> None:
    desk = CutDesk("1x2xA100-40GB")
    policy = Ones(desk.cluster)
    for number in range(14):
        desk.arrive(f"j{number}", **SLICEABLE)
    desk.ask(policy, 60.0)
    desk.arrive("large", kind=Kind.SLICEABLE, mem_mib=39_000)
    view = desk.view(120.0)
    weights = dict.fromkeys(view.jobs, 1.0) | {"large": 0.1}

    def speeds(job: JobView, model: GpuModel) -> dict[str, float]:
        return {one.name: one.slices / 7 for one in model.profiles if one.mem_mib >= (job.job.mem_mib or 0)}

    gpu_of = {job_id: view.jobs[job_id].grants[0].gpu for job_id in weights if job_id != "large"}
    claims = dict.fromkeys(("large", next(job_id for job_id, gpu in gpu_of.items() if gpu == 0)), 1e6)
    placed = Pool(view, weights, speeds, lambda _job, _speed: 0.1, 0.75, claims).place(2, [])
    assert [grant.gpu for grant in placed.grants["large"]] == [1]
    assert {job_id for job_id, grants in placed.grants.items() if not grants} == {
        job_id for job_id, gpu in gpu_of.items() if gpu == 1
    }


def test_however_many_wait_no_more_seats_are_looked_at() -> None:
    def looked_at(waiting: int) -> int:
        desk = CutDesk("1x4xA100-40GB")
        for number in range(28 + waiting):
            desk.arrive(f"j{number}", **SLICEABLE)
        weights = {job_id: 1.0 - 1e-4 * number for number, job_id in enumerate(desk.state.jobs)}

        def alike(_job: JobView, model: GpuModel) -> dict[str, float]:
            return {one.name: (one.slices / 7) ** 0.5 for one in model.profiles}

        return len(Pool(desk.view(0.0), weights, alike, lambda _job, _speed: 0.0, 0.75)._cuts)

    assert looked_at(300) == looked_at(30)
