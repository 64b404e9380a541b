"""Verdicts: each holds, does not, or says that it cannot be told; its sentence has the numbers."""

from dataclasses import replace
from math import exp, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.figures import LogMean, alone, figures, in_parallel
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.verdicts import Verdict, interference, verdicts
from tests.measure.rows import MODEL, campaign, copies_on, run

SMALL = {"1g.5gb": 23.4, "2g.10gb": 20.9, "3g.20gb": 19.5, "4g.20gb": 19.3, "7g.40gb": 19.0}
LARGE = {"3g.20gb": 257.0, "4g.20gb": 230.0, "7g.40gb": 131.0}
FLAT = dict.fromkeys(SMALL, 20.0)


def judged(rows: list[Copy]) -> dict[str, Verdict]:
    return {verdict.about: verdict for verdict in verdicts(figures(rows), MODEL, "a")}


def test_a_small_workload_gains_from_seven_copies() -> None:
    said = judged(campaign("a", SMALL, 8, np.random.default_rng(1), noise=0.01))
    assert said["scaling"].holds is True
    assert said["scaling"].says.startswith("seven copies on 1g.5gb do 5.")
    assert "the work of one on the whole device" in said["scaling"].says
    assert said["saturation"].holds is False
    assert said["memory"].holds is True


def test_a_large_one_fills_the_device_and_does_not_fit_everywhere() -> None:
    said = judged(campaign("a", LARGE, 8, np.random.default_rng(2), noise=0.01))
    assert said["saturation"].holds is True
    assert "fills the device by itself" in said["saturation"].says
    assert said["memory"].holds is False
    assert said["memory"].says == "the smallest place on which it ran is 3g.20gb; out of memory on 1g.5gb, 2g.10gb"
    assert said["host"].holds is False
    assert "a larger slice helps" in said["host"].says


def test_more_memory_was_used_elsewhere_than_the_smallest_place_has() -> None:
    rows = run(0, copies_on("a", "1g.5gb", 1), 0, [10.0], mem_peak_mib=4000.0)
    more, less = (
        [*rows, *run(1, copies_on("a", "7g.40gb", 1), 0, [5.0], mem_peak_mib=mib)] for mib in (6000.0, 4500.0)
    )
    says = judged(more)["memory"].says
    assert says.startswith(
        "the smallest place on which it ran is 1g.5gb with 4,000 MiB at most; but up to 6,000 MiB were"
    )
    assert "but" not in judged(less)["memory"].says


def test_where_only_shares_ran_it_did_run() -> None:
    """A share has all of the device's memory: one is named where nothing else ran, and only there."""
    shares = [Arrangement(Way.SHARED, (Seat("a", share_pct=share_pct),)) for share_pct in (25.0, 50.0)]
    rows = [row for at, share in enumerate(shares) for row in run(at, share, 0, [40.0 / (at + 1)])]
    said = judged(rows)["memory"]
    assert (said.holds, said.says) == (True, "the smallest place on which it ran is whole 25%")
    rows += run(2, copies_on("a", "1g.5gb", 1), 0, [inf])
    assert judged(rows)["memory"].says == "the smallest place on which it ran is whole 25%; out of memory on 1g.5gb"
    rows += run(3, copies_on("a", "2g.10gb", 1), 0, [50.0])
    assert judged(rows)["memory"].says == "the smallest place on which it ran is 2g.10gb; out of memory on 1g.5gb"


def test_out_of_memory_everywhere_is_a_verdict() -> None:
    said = judged(campaign("a", {}, 1, np.random.default_rng(0)))
    assert said["memory"].says == "it ran nowhere"
    assert set(said) == {"memory"}


@pytest.mark.parametrize(
    ("slower", "repetitions", "holds", "words"),
    [
        (1.0, 40, False, "none: within 2 % of alone"),
        (1.1, 40, True, "% slower than alone"),
        (1.0, 3, None, "cannot be told yet: more repetitions are needed"),
        (1.0, 1, None, "cannot be told yet: more repetitions are needed"),
    ],
)
def test_interference_is_an_equivalence_test(slower: float, repetitions: int, holds: bool | None, words: str) -> None:
    rows = campaign("a", SMALL, repetitions, np.random.default_rng(7), slower=slower)
    found = figures(rows)
    figure = next(f for f in in_parallel(found, "a") if f.seat.profile == "1g.5gb")
    verdict = interference(figure, alone(found, "a"))
    assert verdict is not None
    assert verdict.holds is holds, verdict.says
    assert words in verdict.says


@given(st.floats(-0.2, 0.2), st.floats(1e-4, 0.3), st.integers(1, 60), st.integers(1, 9))
def test_a_wide_interval_is_never_called_none(slower: float, error: float, freedom: int, of: int) -> None:
    found = figures(campaign("a", SMALL, 2, np.random.default_rng(3)))
    seven = next(f for f in in_parallel(found, "a") if f.seat.profile == "1g.5gb")
    solo = replace(alone(found, "a")["1g.5gb"], step=LogMean(3.0, 0.0, 60.0))
    verdict = interference(replace(seven, step=LogMean(3.0 + slower, error, freedom)), {"1g.5gb": solo}, of=of)
    assert verdict is not None
    ends = LogMean(slower, error, freedom).interval
    assert ends.low is not None
    assert ends.high is not None
    if verdict.holds is False:
        assert (ends.low >= 0.98 - 1e-9 and ends.high <= 1.02 + 1e-9) or ends.high < 1
    if verdict.holds is True:
        assert ends.low > 1


def test_equals_are_rarely_called_slower() -> None:
    """One in twenty is what the interval allows on that side; of 400 more than 40 would be no chance."""
    dice, wrong = np.random.default_rng(5), 0
    for _ in range(400):
        rows: list[Copy] = []
        for at in range(5):
            for count in (1, 7):
                rows += run(len(rows), copies_on("a", "1g.5gb", count), at, [dice.lognormal(3, 0.03)] * count)
        found = figures(rows)
        verdict = interference(in_parallel(found, "a")[0], alone(found, "a"))
        wrong += verdict is not None and verdict.holds is True
    assert wrong <= 40


def equals(dice: np.random.Generator) -> list[Copy]:
    """Nobody gains, nobody slows anybody down: whatever is done with the device does the same work."""
    rows: list[Copy] = []
    for at in range(4):
        for profile, count in (("1g.5gb", 7), ("2g.10gb", 3), ("3g.20gb", 2), ("7g.40gb", 1)):
            for copies in {1, count}:
                times = [20.0 * count * exp(dice.normal(0.0, 0.03))] * copies
                rows += run(len(rows), copies_on("a", profile, copies), at, times)
    return rows


def test_of_several_comparisons_chance_finds_no_more_than_of_one() -> None:
    """Of 300 campaigns without any difference one in twenty may be told to have one, by each kind of verdict."""
    gained, slowed, campaigns = 0, 0, 300
    for seed in range(campaigns):
        said = verdicts(figures(equals(np.random.default_rng(seed))), MODEL, "a")
        gained += any(one.about == "scaling" and one.holds is True for one in said)
        slowed += any(one.about == "interference" and one.holds is True for one in said)
    assert gained <= 0.08 * campaigns
    assert slowed <= 0.08 * campaigns


def test_no_division_may_be_in_doubt_if_the_device_is_full() -> None:
    """The best division gains nothing; another one does less on the whole, and sometimes half as much again."""
    rows: list[Copy] = []
    for at, odd_ms in enumerate((95.0, 240.0, 155.0, 130.0, 190.0)):
        for profile, count, ms in (("7g.40gb", 1, 20.0), ("2g.10gb", 3, 60.0), ("1g.5gb", 7, odd_ms)):
            rows += run(len(rows), copies_on("a", profile, count), at, [ms * (1 + at % 3 / 1000)] * count)
    said = judged(rows)["saturation"]
    assert said.holds is None
    assert "cannot be told yet" in said.says
    assert said.ratio is not None
    assert said.ratio.value < 1
    assert said.ratio.high is not None
    assert said.ratio.high > 1.1
    without = judged([row for row in rows if row.seat.profile != "1g.5gb"])["saturation"]
    assert without.holds is True


def test_a_division_that_failed_may_have_done_more() -> None:
    rows = [
        row for row in campaign("a", LARGE, 8, np.random.default_rng(2), noise=0.01) if row.seat.profile != "1g.5gb"
    ]
    assert judged(rows)["saturation"].holds is True
    seven = run(1000, copies_on("a", "1g.5gb", 7), 0, [200.0] * 7)
    rows += [replace(row, outcome=Outcome.TOO_FEW, step_ms=None) for row in seven]
    said = judged(rows)
    assert said["saturation"].holds is None
    assert "cannot be told: 7 x 1g.5gb failed" in said["saturation"].says
    assert "7 x 1g.5gb failed in 1 of 1 run (too few steps)" in said["failures"].says


@pytest.mark.parametrize(
    ("seven_ms", "host_cpus", "words"),
    [
        (26.0, 7, ["7 x 1g.5gb: the CPU is the limit: the copies use 6.86 of the host's 7 CPUs together, and slow"]),
        (26.0, 64, []),
        (26.0, None, []),
        (20.0, 7, []),
    ],
)
def test_copies_may_run_out_of_cpus_together(seven_ms: float, host_cpus: int | None, words: list[str]) -> None:
    rows: list[Copy] = []
    for at in range(3):
        for count, ms in ((1, 20.0), (7, seven_ms)):
            times = [ms + at / 100] * count
            rows += run(len(rows), copies_on("a", "1g.5gb", count), at, times, host_cpus=0.98)
    said = [one for one in verdicts(figures(rows), MODEL, "a", host_cpus) if one.about == "host"]
    assert [one.holds for one in said] == [True] * len(words)
    assert all(one.says.startswith(start) for one, start in zip(said, words, strict=True))


@pytest.mark.parametrize(
    ("cpus", "holds", "words"),
    [
        (None, None, "the CPU's time was not measured"),
        (
            0.98,
            True,
            "a step spends 98% of its time on the CPU (19.6 ms of CPU time in a step of 20 ms), a larger",
        ),
        (3.0, None, "whether the CPU is cannot be told: it keeps 3 CPUs busy (60 ms of CPU time in a step of 20 ms)"),
        (15.0, True, "the CPU is the limit: it uses 15 of the host's 16 CPUs"),
        (0.1, False, "neither the device nor the CPU is the limit"),
        (0.6, None, "the CPU may be"),
    ],
)
def test_who_does_not_gain_from_a_larger_slice(cpus: float | None, holds: bool | None, words: str) -> None:
    rows = [
        row
        for at, profile in enumerate(["1g.5gb", "7g.40gb"] * 3)
        for row in run(at, copies_on("a", profile, 1), at // 2, [20.0 + at % 3 / 100], host_cpus=cpus)
    ]
    said = next(one for one in verdicts(figures(rows), MODEL, "a", 16) if one.about == "host")
    assert said.holds is holds, said.says
    assert words in said.says
    assert "no activity counters, this rests on step times" in said.says


@pytest.mark.parametrize(
    ("step_ms", "saturated", "bound"),
    [
        ({"1g.5gb": 20.0, "7g.40gb": 20.0}, "does not fill the device by itself", "a larger slice will not help"),
        ({"1g.5gb": 150.0, "7g.40gb": 20.0}, "fills the device by itself", "a larger slice helps"),
    ],
)
def test_verdicts_rest_on_step_times_and_say_so_beside_counters_or_none(
    step_ms: dict[str, float], saturated: str, bound: str
) -> None:
    def rows(**counters: float) -> list[Copy]:
        """On all of the device there is little to count, elsewhere much."""
        made: list[Copy] = []
        for repetition in range(3):
            for profile, copies in (("1g.5gb", 1), ("1g.5gb", 7), ("7g.40gb", 1)):
                more = counters if profile == "7g.40gb" else dict.fromkeys(counters, 0.99)
                times = [step_ms[profile] + repetition / 100] * copies
                made += run(len(made), copies_on("a", profile, copies), repetition, times, **more)
        return made

    counted, uncounted = judged(rows(gract=0.25, smact=0.125)), judged(rows())
    for about, words in (("saturation", saturated), ("host", bound)):
        assert words in counted[about].says
        told = "; this rests on step times, the whole device's counters are gract 25%, smact 12%"
        assert counted[about].says.endswith(told)
        assert uncounted[about].says.endswith("; no activity counters, this rests on step times")
        assert (counted[about].holds, counted[about].ratio) == (uncounted[about].holds, uncounted[about].ratio)


def test_what_cannot_be_told_yet_says_what_it_rests_on_too() -> None:
    said = judged(campaign("a", FLAT, 1, np.random.default_rng(3)))
    for about in ("saturation", "host"):
        assert said[about].holds is None
        assert said[about].says.endswith("; no activity counters, this rests on step times")


def test_the_uncut_device_is_the_whole_one_if_it_was_measured() -> None:
    rows = campaign("a", FLAT, 3, np.random.default_rng(6), noise=0.001)
    for at in range(3):
        rows += run(1000 + at, copies_on("a", None, 1, Way.WHOLE), at, [10.0 + at / 1000])
    said = judged(rows)["scaling"]
    assert said.ratio is not None
    assert said.ratio.value == pytest.approx(3.5, rel=0.01)
