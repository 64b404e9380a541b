"""Memory: what was seen beats what was predicted, is a mean that grows surer, and is kept apart by GPU model."""

from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.catalogue import find
from gpuloom.perf.slices.memory import RunMemory, Seen, fingerprint
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Job

A100, H100 = find("A100-80GB"), find("H100-80GB")
PREDICTED = {
    "7g.80gb": Estimate(1.0, 1.0, 1.0),
    "3g.40gb": Estimate(0.6, 0.5, 0.7),
    "2g.20gb": Estimate(0.4, 0.3, 0.5),
    "1g.10gb": Estimate(0.2, 0.1, 0.3),
}


def test_one_slice_alone_says_nothing_about_relative_speeds() -> None:
    memory = RunMemory()
    memory.observe("w", A100, "3g.40gb", 5.0)
    assert memory.correct("w", A100, PREDICTED) == PREDICTED


def test_beside_the_whole_gpu_it_replaces_the_prediction() -> None:
    memory = RunMemory()
    memory.observe("w", A100, "3g.40gb", 4.5)
    memory.observe("w", A100, "7g.80gb", 5.0)
    corrected = memory.correct("w", A100, PREDICTED)
    assert corrected["3g.40gb"].speed == pytest.approx(0.9)
    assert corrected["3g.40gb"].low < 0.9 < corrected["3g.40gb"].high
    assert corrected["7g.80gb"] == (1.0, 1.0, 1.0)
    assert corrected["2g.20gb"] == PREDICTED["2g.20gb"]


def test_two_slices_correct_each_other_without_the_whole_gpu() -> None:
    memory = RunMemory()
    memory.observe("w", A100, "3g.40gb", 6.0)
    memory.observe("w", A100, "2g.20gb", 2.0)  # three times slower, where 1.5 was predicted
    corrected = memory.correct("w", A100, PREDICTED)
    assert corrected["3g.40gb"].speed / corrected["2g.20gb"].speed == pytest.approx(3.0)
    assert corrected["3g.40gb"].speed > 0.6
    assert corrected["2g.20gb"].speed < 0.4


def test_another_gpu_and_another_workload_are_not_corrected() -> None:
    memory = RunMemory()
    for profile, rate in (("7g.80gb", 5.0), ("1g.10gb", 3.0)):
        memory.observe("w", H100, profile, rate)
    assert memory.correct("w", A100, PREDICTED) == PREDICTED
    assert memory.correct("v", H100, PREDICTED) == PREDICTED


def test_a_slice_that_it_ran_on_has_the_memory() -> None:
    memory = RunMemory()
    memory.observe("w", A100, "7g.80gb", 5.0)
    memory.observe("w", A100, "1g.10gb", 1.0)
    without = {name: estimate for name, estimate in PREDICTED.items() if name != "1g.10gb"}
    assert memory.correct("w", A100, without)["1g.10gb"].speed == pytest.approx(0.2)


def test_only_what_moves_the_mean_is_news() -> None:
    memory = RunMemory()
    assert memory.observe("w", A100, "1g.10gb", 100.0)
    assert not memory.observe("w", A100, "1g.10gb", 101.0)
    assert memory.observe("w", A100, "1g.10gb", 150.0)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1000.0), min_size=2, max_size=30))
def test_it_is_a_running_mean_that_grows_surer(rates: list[float]) -> None:
    seen = Seen(0, 0.0, 0.0)
    for rate in rates:
        seen = seen.with_run(rate)
    assert seen.runs == len(rates)
    assert seen.mean == pytest.approx(fmean(rates))
    assert seen.squares == pytest.approx(sum((rate - fmean(rates)) ** 2 for rate in rates), rel=1e-6, abs=1e-6)
    assert seen.with_run(seen.mean).reach < seen.reach


def test_it_refuses_what_is_no_rate() -> None:
    for rate in (0.0, -0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="must be above 0"):
            RunMemory().observe("w", A100, "1g.10gb", rate)


def test_fingerprints() -> None:
    assert fingerprint(Job("a", workload="resnet 128", command=("python", "x.py"))) == "resnet 128"
    assert fingerprint(Job("a", command=("python", "x.py"))) == "python x.py"
    assert fingerprint(Job("a")) is None


reports = st.lists(st.tuples(st.sampled_from(sorted(PREDICTED)), st.floats(0.1, 100.0)), min_size=1, max_size=20)


def remembering(told: list[tuple[str, float]]) -> RunMemory:
    memory = RunMemory()
    for profile, rate in told:
        memory.observe("w", A100, profile, rate)
    return memory


@settings(deadline=None, max_examples=60)
@given(reports.flatmap(lambda told: st.tuples(st.just(told), st.permutations(told))))
def test_the_order_of_reports_does_not_matter(case: tuple[list[tuple[str, float]], list[tuple[str, float]]]) -> None:
    straight, permuted = (remembering(told).correct("w", A100, PREDICTED) for told in case)
    assert straight.keys() == permuted.keys() == PREDICTED.keys()
    for profile, estimate in straight.items():
        assert permuted[profile] == pytest.approx(estimate, rel=1e-6)


@settings(deadline=None, max_examples=60)
@given(reports, st.floats(0.01, 100.0))
def test_the_unit_of_a_rate_does_not_matter(told: list[tuple[str, float]], unit: float) -> None:
    straight = remembering(told).correct("w", A100, PREDICTED)
    scaled = remembering([(profile, rate * unit) for profile, rate in told]).correct("w", A100, PREDICTED)
    for profile, estimate in straight.items():
        assert scaled[profile] == pytest.approx(estimate, rel=1e-6)


@settings(deadline=None, max_examples=60)
@given(reports)
def test_what_was_seen_is_relative_to_what_the_whole_gpu_was_seen_to_do(told: list[tuple[str, float]]) -> None:
    told = [*told, ("7g.80gb", 10.0)]
    memory, corrected = remembering(told), remembering(told).correct("w", A100, PREDICTED)
    seen = memory.recall("w", A100)
    assert set(seen) == {profile for profile, _ in told}
    whole = fmean(rate for profile, rate in told if profile == "7g.80gb")
    for profile in seen:
        speed, low, high = corrected[profile]
        assert speed == pytest.approx(fmean(rate for name, rate in told if name == profile) / whole)
        assert 0 <= low <= speed <= high
    assert all(corrected[profile] == PREDICTED[profile] for profile in PREDICTED if profile not in seen)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.1, 100.0), st.integers(1, 30))
def test_reports_that_agree_make_it_surer(rate: float, runs: int) -> None:
    reaches = []
    seen = Seen(0, 0.0, 0.0)
    for _ in range(runs + 1):
        seen = seen.with_run(rate)
        reaches.append(seen.reach)
    assert reaches == sorted(reaches, reverse=True)
    assert reaches[0] == pytest.approx(1.645 * 0.03), "one report: what is assumed of it"
    runs += 1
    assert reaches[-1] == pytest.approx(1.645 * (2 * 0.03**2 / (2 + runs - 1) / runs) ** 0.5), "as two reports more"
