"""Answers: on the measured A100 speeds with noise they are what the data says; and small cases by hand."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf
from pathlib import Path

import numpy as np
import pytest

from gpuloom.measure.arrangement import Arrangement, Way
from gpuloom.measure.explore.advise import believed
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import Goal, MostWork, OneCopy
from gpuloom.measure.explore.next_run import choice
from gpuloom.measure.explore.places import slices_of
from gpuloom.measure.explore.prior import learn
from gpuloom.measure.figures import figures
from gpuloom.measure.options import Option, options
from gpuloom.measure.recommend import (
    Answer,
    by_deadline,
    least_energy,
    least_speed,
    mig_mps_or_neither,
    most_work,
    one_copy,
    recommend,
)  # fmt: skip
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.verdicts import Verdict, verdicts
from gpuloom.work.measured.figures import figures_from_csv, load_figures
from gpuloom.work.measured.share_figures import load_share_figures
from tests.measure.rows import COPIES, MODEL, PROFILES, campaign, copies_on, run

REPETITIONS = 30
TIE = 0.02
OFF = 0.015
"""So far off a mean of so many runs may be, with 3 % of noise in each."""


def test_the_best_slice_of_every_measured_workload(data_dir: Path) -> None:
    """Three per cent of noise in every run. What the data says is computed here, from the true times alone."""
    dice, clear, ties, out_of_memory = np.random.default_rng(15), 0, 0, 0
    workloads = figures_from_csv(data_dir / "miso" / "mig_batch_latency.csv").workloads
    assert len(workloads) == 32
    for name, workload in workloads.items():
        true_ms = {profile: workload.batch_s * 1e3 / speed for profile, speed in workload.speeds.items()}
        found = figures(campaign(name, true_ms, REPETITIONS, dice))
        known = options(found, MODEL, name)

        rates = {profile: COPIES[profile] / ms for profile, ms in true_ms.items()}
        order = sorted(rates, key=rates.__getitem__, reverse=True)
        work = most_work(known)
        assert work.choice is not None
        as_good = {profile for profile in order if rates[profile] >= rates[order[0]] * (1 - TIE)}
        perhaps = {profile for profile in order if rates[profile] >= rates[order[0]] * (1 - TIE - OFF)}
        told = {text.split(" x ")[-1] for text in (work.choice.name, *work.ties)}
        assert as_good <= told, (name, work.says)
        assert work.choice.place in perhaps, (name, work.says)
        assert work.choice.copies == COPIES[work.choice.place]
        if len(as_good) > 1:
            ties += 1
            assert "as good" in work.says
        clear += len(perhaps) == 1

        fastest = min(true_ms.values())
        near = {profile: fastest / ms for profile, ms in true_ms.items()}
        smallest = next(profile for profile in PROFILES if near.get(profile, 0) >= 0.95)
        single = one_copy(known)
        assert single.choice is not None
        unclear = {profile for profile, part in near.items() if abs(part - 0.95) < TIE}
        surely = next(profile for profile in PROFILES if near.get(profile, 0) >= 0.95 + TIE)
        assert single.choice.place in {surely, *unclear}, (name, single.says)
        assert single.choice.place == smallest or smallest in single.ties, (name, single.says)

        _verdicts_are_the_datas(true_ms, verdicts(found, MODEL, name))
        out_of_memory += len(true_ms) < len(PROFILES)
    assert (clear, ties, out_of_memory) == (27, 2, 11)


def _verdicts_are_the_datas(true_ms: dict[str, float], said: Sequence[Verdict]) -> None:
    by_name = {verdict.about: verdict for verdict in said if verdict.about != "interference"}
    whole = true_ms["7g.40gb"]
    gains = [COPIES[profile] * whole / ms for profile, ms in true_ms.items() if COPIES[profile] > 1]
    if gains and abs(max(gains) / 1.1 - 1) > TIE:
        assert by_name["saturation"].holds is (max(gains) < 1.1), by_name["saturation"].says
    if gains and abs(max(gains) - 1) > TIE:
        assert by_name["scaling"].holds is (max(gains) > 1), by_name["scaling"].says
    assert by_name["memory"].holds is (len(true_ms) == len(PROFILES))
    smallest = next(profile for profile in PROFILES if profile in true_ms)
    assert f"ran is {smallest}" in by_name["memory"].says
    assert all(profile in by_name["memory"].says for profile in PROFILES if profile not in true_ms)
    assert not [v.says for v in said if v.about == "interference" and v.holds and "slower" not in v.says]


def exact(times: dict[str, float], energy_j: float | None = None) -> list[Option]:
    rows = campaign("a", times, 3, np.random.default_rng(3), noise=0.001, energy_j=energy_j)
    return options(figures(rows), MODEL, "a")


def test_ties_are_said_and_the_fewest_copies_are_taken() -> None:
    answer = most_work(exact({"1g.5gb": 70.0, "2g.10gb": 29.9, "3g.20gb": 60.0, "4g.20gb": 60.0, "7g.40gb": 60.0}))
    assert answer.choice is not None
    assert answer.choice.name == "3 x 2g.10gb"
    assert answer.ties == ("7 x 1g.5gb",)
    assert "as good" in answer.says
    assert answer.confidence == "sure"


def test_one_copy_is_better_than_two_that_are_half_as_fast() -> None:
    rows = rows_of((copies_on("a", None, 1, Way.WHOLE), 10.0), (copies_on("a", None, 2, Way.TOGETHER), 20.0))
    answer = answers_of(rows)["most work an hour"]
    assert answer.choice is not None
    assert answer.choice.name == "whole"
    assert answer.ties == ("2 x whole together",)
    assert "whole, 99.9 steps/s" in answer.says
    assert "no division that is known does more by 2%" in answer.says


SMALL_IS_BEST = {"1g.5gb": 70.0, "2g.10gb": 71.0, "7g.40gb": 70.0}


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.CRASHED])
def test_what_failed_in_some_runs_is_not_chosen_and_that_is_said(outcome: Outcome) -> None:
    """The smallest is as good as any, if it runs. It did not every second time; once it was chosen, and sure."""
    rows = campaign("a", SMALL_IS_BEST, 4, np.random.default_rng(3), noise=0.001)
    rows = [
        replace(row, outcome=outcome, step_ms=None, steps=None, seconds=None)
        if row.seat.profile == "1g.5gb" and row.repetition % 2
        else row
        for row in rows
    ]
    found = figures(rows)
    known = options(found, MODEL, "a")
    words = f"1g.5gb, which failed in 2 of 4 runs ({outcome})"
    for answer in (one_copy(known), most_work(known), by_deadline(known, 1000, 80.0), mig_mps_or_neither(known)):
        assert answer.choice is not None
        assert answer.choice.place == "2g.10gb", answer.says
        assert words in answer.says
    said = {verdict.about: verdict for verdict in verdicts(found, MODEL, "a")}
    assert said["failures"].says.startswith(f"1g.5gb failed in 2 of 4 runs ({outcome})")
    if outcome is Outcome.OUT_OF_MEMORY:
        assert said["memory"].holds is False
        assert "ran is 2g.10gb" in said["memory"].says
        assert "on 1g.5gb it failed in 2 of 4 runs (out of memory)" in said["memory"].says


def test_where_everything_fails_now_and_then_nothing_is_sure() -> None:
    rows = campaign("a", {"7g.40gb": 70.0}, 4, np.random.default_rng(3), noise=0.001)
    rows = [
        replace(row, outcome=Outcome.CRASHED, step_ms=None) if row.repetition % 2 and row.step_ms else row
        for row in rows
    ]
    for answer in (one_copy(known := options(figures(rows), MODEL, "a")), most_work(known), mig_mps_or_neither(known)):
        assert answer.choice is not None
        assert "but it failed in 2 of 4 runs (crashed)" in answer.says
        assert answer.sure is None or answer.sure < 0.6


def rows_of(*arrangements: tuple[Arrangement, float], repetitions: int = 3) -> list[Copy]:
    made: list[Copy] = []
    for at in range(repetitions):
        for arrangement, ms in arrangements:
            made += run(len(made), arrangement, at, [ms * (1 + at / 1000)] * len(arrangement.seats))
    return made


def answers_of(rows: list[Copy]) -> dict[str, Answer]:
    return {answer.goal: answer for answer in recommend(options(figures(rows), MODEL, "a"))}


def test_of_what_was_never_tried_nothing_is_sure() -> None:
    only = answers_of(rows_of((copies_on("a", "7g.40gb", 1), 10.0)))
    assert {answer.sure for answer in only.values()} == {None}
    assert "the only one that is known (too little is known to compare)" in only["one copy"].says
    assert "no division of the device is known" in only["most work an hour"].says
    assert "MIG: not measured; MPS: not measured" in only["MIG, MPS or neither"].says
    two = answers_of(rows_of((copies_on("a", "3g.20gb", 1), 10.0), (copies_on("a", "7g.40gb", 1), 10.0)))
    assert two["one copy"].sure == 1.0
    assert "the fastest, and none smaller is known" in two["one copy"].says
    assert two["MIG, MPS or neither"].sure is None
    assert "MIG: 2 x 3g.20gb, 200 steps/s, predicted, not measured" in two["MIG, MPS or neither"].says
    assert "which of all three cannot be told" in two["MIG, MPS or neither"].says


def test_predicted_copies_have_their_doubt_in_the_interval() -> None:
    """Repetitions that do not differ at all say nothing of copies side by side."""
    rows = [row for at in range(3) for row in run(at, copies_on("a", "1g.5gb", 1), at, [20.0])]
    answer = answers_of(rows)["most work an hour"]
    assert answer.value is not None
    assert answer.value.value == pytest.approx(350)
    assert answer.value.low == pytest.approx(350 * exp(-1.645 * 0.1), rel=1e-3)
    assert answer.value.high == pytest.approx(350 * exp(1.645 * 0.1), rel=1e-3)
    assert "give or take 10%" in answer.says


def test_two_answers_on_one_page_name_the_same_division() -> None:
    """Of what was never run the figure may be a little better: it has to be much better, in both."""
    differing = 0
    for name, workload in load_figures().workloads.items():
        true_ms = {profile: workload.batch_s * 1e3 / speed for profile, speed in workload.speeds.items()}
        every = campaign(name, true_ms, 1, np.random.default_rng(4))
        found = figures([row for row in every if row.copies == 1 and row.seat.profile in ("1g.5gb", "3g.20gb")])
        belief = believed(found, MODEL, name)
        known = options(found, MODEL, name, belief)
        work, way = most_work(known, belief=belief), mig_mps_or_neither(known, belief)
        assert way.choice == work.choice, way.says
        assert work.choice is not None
        assert work.choice.name in way.says
        most = max((option for option in known if option.fits >= 0.5), key=lambda option: option.rate.mean)
        differing += most.name != work.choice.name
    assert differing, "else by figures alone they would have agreed too"


def test_a_way_that_is_not_chosen_is_predicted_too() -> None:
    rows = rows_of((copies_on("a", "3g.20gb", 1), 20.0), (copies_on("a", None, 2, Way.TOGETHER), 5.0))
    said = answers_of(rows)["MIG, MPS or neither"].says
    assert "neither: 2 x whole together, 400 steps/s; MIG: 2 x 3g.20gb, 99.9 steps/s, predicted, not measured" in said


@pytest.mark.parametrize(("slower", "doubt"), [(None, 0.1), (1.0, 0.02), (1.3, 0.26)])
def test_predicted_copies_may_slow_each_other_down(slower: float | None, doubt: float) -> None:
    """As much as those that were run side by side did; where none were, by a stated part."""
    ran = [(copies_on("a", place, 1), ms) for place, ms in (("1g.5gb", 65.0), ("3g.20gb", 30.0), ("7g.40gb", 10.0))]
    ran += [] if slower is None else [(copies_on("a", "3g.20gb", 2), 30.0 * slower)]
    rows = rows_of(*ran)
    answer = answers_of(rows)["most work an hour"]
    assert answer.choice is not None
    assert answer.sure is not None
    option = next(o for o in options(figures(rows), MODEL, "a") if o.name == "7 x 1g.5gb")
    assert option.doubt == pytest.approx(doubt, abs=0.005)
    assert option.rate.error is not None
    assert option.rate.error >= doubt * 0.99
    assert not option.measured
    # 8 % ahead of the whole device: sure if copies were seen not to disturb each other, else not.
    assert (answer.sure > 0.95) is (slower == 1.0), answer.says


def test_what_is_hardly_known_is_no_warning() -> None:
    """Two repetitions that have little in common, beside others that agree: their interval has hardly an end."""
    rows = campaign("a", {"1g.5gb": 70.0, "2g.10gb": 30.0, "7g.40gb": 10.0}, 2, np.random.default_rng(3), noise=0.001)
    for at, ms in enumerate((10.0, 4000.0)):
        rows += run(1000 + at, copies_on("a", "4g.20gb", 1), at, [ms])
    for answer in recommend(options(figures(rows), MODEL, "a")):
        assert "nan" not in answer.says
        assert "inf" not in answer.says


def test_large_figures_are_written_out() -> None:
    answer = most_work(exact({"1g.5gb": 0.7, "7g.40gb": 0.6}))
    assert re.match(r"most work an hour: 7 x 1g\.5gb, \d+,\d{3} steps/s \(", answer.says)
    assert "e+" not in answer.says


def test_a_deadline_is_kept_surely_or_not_promised() -> None:
    known = exact({"1g.5gb": 70.0, "2g.10gb": 30.0, "3g.20gb": 20.0, "4g.20gb": 18.0, "7g.40gb": 10.0})
    answer = by_deadline(known, 1000, 31.0)
    assert answer.choice is not None
    assert answer.choice.name == "2g.10gb"
    on_the_line = by_deadline(known, 1000, 30.0)
    assert on_the_line.choice is not None
    assert on_the_line.choice.name == "3g.20gb"
    assert on_the_line.ties == ("2g.10gb",)
    assert by_deadline(known, 1000, 9.0).choice is None
    assert "none is fast enough; the fastest is 7g.40gb: 10 ms a step, 9 ms" in by_deadline(known, 1000, 9.0).says
    assert "none surely is; the likeliest is 7g.40gb" in by_deadline(known, 1000, 9.99).says
    fast = least_speed(known, 1e3 / 19.0)
    assert fast.choice is not None
    assert fast.choice.name == "4g.20gb"


def test_energy_only_where_it_was_measured() -> None:
    times = {"1g.5gb": 70.0, "2g.10gb": 30.0, "3g.20gb": 20.0, "4g.20gb": 18.0, "7g.40gb": 10.0}
    assert least_energy(exact(times)).choice is None
    assert "not measured" in least_energy(exact(times)).says
    answer = least_energy(exact(times, energy_j=700.0))
    assert answer.choice is not None
    assert answer.choice.name == "7 x 1g.5gb"
    assert answer.value is not None
    assert answer.value.value == pytest.approx(0.1)


def test_parallel_copies_that_did_not_run_are_predicted_and_say_so() -> None:
    rows = [row for at in range(3) for row in run(at, copies_on("a", "1g.5gb", 1), at, [10.0 + at / 100])]
    answer = most_work(options(figures(rows), MODEL, "a"))
    assert answer.choice is not None
    assert answer.choice.name == "7 x 1g.5gb"
    assert not answer.choice.measured
    assert "predicted, not measured" in answer.says


def test_parallel_copies_that_failed_are_not_predicted() -> None:
    rows = run(0, copies_on("a", "1g.5gb", 1), 0, [10.0]) + run(1, copies_on("a", "1g.5gb", 7), 0, [inf] * 7)
    assert [option.name for option in options(figures(rows), MODEL, "a")] == ["1g.5gb"]


def test_mig_mps_or_neither() -> None:
    rows = [
        row
        for at, wobble in enumerate((1.0, 1.001, 0.999))
        for row in [
            *run(3 * at, copies_on("a", None, 1, Way.WHOLE), at, [10.0 * wobble]),
            *run(3 * at + 1, copies_on("a", "1g.5gb", 7), at, [35.0 * wobble] * 7),
            *run(3 * at + 2, copies_on("a", None, 3, Way.TOGETHER), at, [20.0 * wobble] * 3),
        ]
    ]
    answer = mig_mps_or_neither(options(figures(rows), MODEL, "a"))
    assert ": MIG: 7 x 1g.5gb" in answer.says
    assert "MPS: not measured; neither: 3 x whole together, 150 steps/s" in answer.says


def test_nothing_measured_is_no_answer() -> None:
    assert all(answer.choice is None for answer in recommend([]))
    assert by_deadline([], 1, 1.0).choice is None


def test_a_belief_fills_what_was_not_run() -> None:
    workloads = list(load_figures().workloads.values())
    prior = learn(workloads, load_share_figures()).at(slices_of(MODEL))
    belief = Belief(slices_of(MODEL), prior).saw([0, 4], [3.4, 2.9])
    rows = [
        *run(0, copies_on("a", "1g.5gb", 1), 0, [exp(3.4)]),
        *run(1, copies_on("a", "7g.40gb", 1), 0, [exp(2.9)]),
    ]
    known = {option.name: option for option in options(figures(rows), MODEL, "a", belief)}
    assert known["1g.5gb"].measured
    assert not known["2g.10gb"].measured
    assert known["7g.40gb"].step.mean < known["2g.10gb"].step.mean < known["1g.5gb"].step.mean


@pytest.mark.parametrize(("goal", "answer"), [(OneCopy(), one_copy), (MostWork(), most_work)], ids=["one", "most"])
def test_what_is_said_after_two_runs_is_what_the_explorer_would_choose(
    goal: Goal, answer: Callable[..., Answer]
) -> None:
    """Of all known workloads: what the answer is expected to cost is what the explorer's choice is."""
    dice = np.random.default_rng(8)
    for name, workload in load_figures().workloads.items():
        true_ms = {profile: workload.batch_s * 1e3 / speed for profile, speed in workload.speeds.items()}
        every = campaign(name, true_ms, 1, dice)
        found = figures([row for row in every if row.copies == 1 and row.seat.profile in ("2g.10gb", "7g.40gb")])
        belief = believed(found, MODEL, name)
        said = answer(options(found, MODEL, name, belief), belief=belief)
        assert said.choice is not None
        names = [place.name for place in belief.places]
        doubts = np.array([0.0 if at in belief.ran else goal.doubt_pct for at in range(len(names))])
        costs = goal.costs(belief.places, belief.draws(4096)).mean(axis=0) + doubts
        assert costs[names.index(said.choice.place)] <= costs[choice(belief, goal)] + 100 * TIE, said.says
