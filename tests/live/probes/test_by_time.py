"""From counted time to speeds: jobs that keep the law are read exactly, whoever runs beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.host.cpu import cpu_model
from gpuloom.live.probes.by_time import MARGIN, by_time
from gpuloom.live.probes.measure import LEVELS_PCT, Rate, Rates, by_share
from gpuloom.work.model import Job

MODEL = cpu_model(4.0, 8_000)


@dataclass(frozen=True, slots=True)
class Made:
    """A job of which the truth is known."""

    busy: float
    idle: float
    reach: float

    def rate(self, part: float) -> float:
        return 1 / (self.busy / min(part, self.reach) + self.idle)

    def speed(self, slices: int) -> float:
        return self.rate(slices / 7) / self.rate(1.0)


def probed(jobs: Sequence[Made]) -> list[Rates]:
    """As a fair scheduler would have it, with everybody busy at the same time."""
    found: list[dict[float, Rate]] = [{} for _ in jobs]
    for level in LEVELS_PCT:
        fair = min(level / 100, 1 / len(jobs))
        for job, seen in zip(jobs, found, strict=True):
            seen[level] = Rate(job.rate(fair), job.busy * job.rate(fair), job.reach)
    return list(found)


made = st.builds(Made, st.floats(0.01, 2), st.floats(0, 5), st.floats(0.2, 1))


@given(st.lists(made, min_size=1, max_size=7))
def test_the_law_is_read_back(jobs: list[Made]) -> None:
    answers = by_time([Job(f"{at}") for at in range(len(jobs))], probed(jobs), MODEL)
    for job, answer in zip(jobs, answers, strict=True):
        for profile in MODEL.profiles:
            estimate = answer[profile.name]
            assert estimate.low <= estimate.speed <= estimate.high
            assert estimate.speed == pytest.approx(job.speed(profile.slices), abs=1e-6)


@given(made, st.integers(1, 5))
def test_neighbours_do_not_change_the_answer(job: Made, neighbours: int) -> None:
    alone = by_time([Job("a")], probed([job]), MODEL)[0]
    crowded = by_time([Job("a"), *map(Job, "bcdef"[:neighbours])], probed([job] * (neighbours + 1)), MODEL)[0]
    for name, estimate in alone.items():
        assert crowded[name].speed == pytest.approx(estimate.speed, abs=1e-6)
        assert crowded[name].high - crowded[name].low >= estimate.high - estimate.low - 1e-6


def test_threads_bound_what_was_not_seen() -> None:
    """Seven on one thread of four each: nobody had more than a seventh, and nobody can use more than a quarter."""
    jobs = [Made(0.1, 0.0, 0.25)] * 7
    (first, *_) = by_time([Job(f"{at}") for at in range(7)], probed(jobs), MODEL)
    assert first["2c"].speed == pytest.approx(1.0)
    assert first["2c"].low >= 1.0 - MARGIN - 1e-9
    assert first["1c"].speed == pytest.approx(4 / 7)


def test_who_was_not_measured_gets_the_simple_rule() -> None:
    jobs = [Job("mute"), Job("never low"), Job("used nothing"), Job("large", mem_mib=3_000)]
    rates: list[Rates] = [
        {},
        {100.0: Rate(5.0, 0.5), 50.0: Rate(4.0, 0.4)},
        {level: Rate(1.0, 0.0) for level in LEVELS_PCT},
        probed([Made(0.1, 0.1, 1.0)])[0],
    ]
    answers, simple = by_time(jobs, rates, MODEL), by_share(jobs, rates, MODEL)
    assert answers[:3] == simple[:3]
    assert [*answers[3]] == ["3c", "4c", "7c"], "the others lack the memory"
