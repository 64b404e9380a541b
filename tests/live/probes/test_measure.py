"""Probing without processes: the order of levels, who is measured, and the simple rule."""

from collections.abc import Generator

import pytest

from gpuloom.gpus.catalogue import MODELS
from gpuloom.live.probes.measure import LEVELS_PCT, Count, Rate, Rates, by_share, measure
from gpuloom.live.store import Progress
from gpuloom.work.model import Job

A100 = MODELS["A100-40GB"]
Probing = Generator[None, None, dict[str, Rates]]


class Pretended:
    """Jobs that do `speed` batches a second at 100 %, in a time that the test moves."""

    def __init__(self, speeds: dict[str, float]) -> None:
        self.speeds, self.time_s, self.levels = speeds, 0.0, list[tuple[str, float | None]]()
        self.share = dict.fromkeys(speeds, 100.0)
        self.done = dict.fromkeys(speeds, 0.0)
        self.silent = set[str]()
        self.monotonic, self.clock_set_s = False, 0.0

    def wait(self, seconds: float) -> None:
        self.time_s += seconds
        for job_id, speed in self.speeds.items():
            self.done[job_id] += speed * self.share[job_id] / 100 * seconds

    def now_s(self) -> float:
        return self.time_s

    def used_s(self, job_id: str) -> float | None:  # noqa: ARG002
        return None

    def count(self, job_id: str) -> Count:  # noqa: ARG002
        return Count({})

    def reshare(self, job_id: str, share_pct: float | None) -> None:
        self.levels.append((job_id, share_pct))
        self.share[job_id] = share_pct or 100.0

    def is_there(self, job_id: str) -> bool:
        return job_id in self.speeds

    def is_up(self, job_id: str) -> bool:
        return job_id in self.speeds

    def progress(self, job_id: str) -> Progress | None:
        if job_id in self.silent:
            return None
        at_s = self.time_s if self.monotonic else None
        return Progress(int(self.done[job_id]), self.time_s + self.clock_set_s, at_s)


def finish(jobs: Pretended, probing: Probing) -> dict[str, Rates]:
    """Let time pass until it has measured."""
    for _ in range(100):
        try:
            next(probing)
        except StopIteration as done:
            return dict(done.value)
        jobs.wait(1)
    pytest.fail("it does not end")


@pytest.mark.parametrize("monotonic", [True, False])
@pytest.mark.parametrize("clock_set_s", [0.0, 3600.0, -86400.0])
def test_everybody_at_every_level(monotonic: bool, clock_set_s: float) -> None:
    jobs = Pretended({"a": 100.0, "b": 10.0})
    jobs.monotonic = monotonic
    probing = measure(jobs, ("a", "b"), level_s=10)
    for _ in range(5):  # in the middle of the first level somebody sets the clock
        next(probing)
        jobs.wait(1)
    jobs.clock_set_s = clock_set_s
    rates = finish(jobs, probing)
    assert jobs.levels == [(job_id, level) for level in LEVELS_PCT for job_id in ("a", "b")]
    seen = {job_id: {level: rate.batches_per_s for level, rate in of.items()} for job_id, of in rates.items()}
    assert seen["a"] == pytest.approx({100.0: 100.0, 50.0: 50.0, 14.0: 14.0})
    assert seen["b"] == pytest.approx({100.0: 10.0, 50.0: 5.0, 14.0: 1.4}, rel=0.1)


def test_who_ends_or_says_nothing() -> None:
    jobs = Pretended({"a": 100.0, "b": 10.0, "mute": 1.0})
    jobs.silent.add("mute")
    probing = measure(jobs, ("a", "b", "mute"), level_s=10)
    next(probing)
    del jobs.speeds["b"]
    rates = finish(jobs, probing)
    assert set(rates) == {"a", "mute"}
    assert rates["mute"] == {}


def test_the_simple_rule() -> None:
    known, unknown = by_share(
        [Job("a"), Job("b", mem_mib=15_000)], [{100.0: Rate(10.0), 50.0: Rate(8.0), 14.0: Rate(4.0)}, {}], A100
    )
    assert known["7g.40gb"].speed == 1.0
    assert known["1g.5gb"].speed == pytest.approx(0.4, abs=0.01)
    assert 0.4 < known["3g.20gb"].speed < 0.8 < known["4g.20gb"].speed < 1.0
    assert all(0 < estimate.low <= estimate.speed <= estimate.high <= 1 for estimate in known.values())
    assert set(unknown) == {"3g.20gb", "4g.20gb", "7g.40gb"}  # the others lack the memory
    assert unknown["3g.20gb"] == pytest.approx((3 / 7, 0.01, 1.0))
