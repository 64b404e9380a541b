"""What an elastic job reports becomes a model of its goodput, at steady intervals and only from what has lasted."""

from dataclasses import replace

import pytest

from gpuloom.live.elastic.reports import Reports
from gpuloom.live.store import FIGURES, Progress
from gpuloom.perf.goodput.model import BatchLimits
from gpuloom.work.model import Job, Kind

JOB = Job("a", kind=Kind.ELASTIC, max_gpus=4, batch=64, max_batch=512, max_local_batch=32)


def told(**more: float) -> Progress:
    figures = {
        "epoch": 2.0, "progress": 10.5, "metric": 0.9, "batch": 64.0, "local_batch": 32.0, "accumulation": 1.0,
        "workers": 2.0, "nodes": 1.0, "step_s": 0.3, "compute_s": 0.2, "grad_sqr": 1.0, "grad_var": 3.0,
    }  # fmt: skip
    return Progress(1, 1.0, 1.0, figures | more)


def test_at_steady_intervals() -> None:
    reports = Reports(5.0, 1.0)
    at = [now_s / 10 for now_s in range(300)]
    found = [report.at_s for now_s in at if (report := reports.of(JOB, told(), now_s)) is not None]
    assert found == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]


def test_a_model_of_what_has_lasted() -> None:
    reports = Reports(5.0, 2.0)
    first = reports.of(JOB, told(), 0.0)
    assert first is not None
    assert (first.epoch, first.progress, first.metric, first.goodput) == (2, 10.5, 0.9, None)
    second = reports.of(JOB, told(), 5.0)
    assert second is not None
    assert second.goodput is not None
    assert second.goodput.limits == BatchLimits(64, 512, 1, 32)
    assert (second.goodput.most_replicas, second.goodput.max_replicas) == (2, 4)
    third = reports.of(JOB, told(workers=3.0, grad_sqr=5.0), 10.0)  # it has just been resized
    assert third is not None
    assert third.goodput == second.goodput
    fourth = reports.of(JOB, told(workers=3.0, grad_sqr=5.0), 15.0)
    assert fourth is not None
    assert fourth.goodput is not None
    assert (fourth.goodput.most_replicas, fourth.goodput.grad_sqr) == (3, 5.0)


def test_there_is_a_sample_for_each_worker_at_least() -> None:
    reports, small = Reports(5.0, 1.0), replace(JOB, batch=3, max_batch=None, max_gpus=16)
    for now_s in (0.0, 5.0):
        report = reports.of(small, told(batch=3.0), now_s)
    assert report is not None
    assert report.goodput is not None
    assert report.goodput.max_replicas == 3


def test_times_are_the_engines_and_of_one_pass() -> None:
    """Two passes of 0.2 s and an exchange of 0.1 s, at twice the pace."""
    reports = Reports(5.0, 2.0)
    several = told(accumulation=2.0, compute_s=0.4, step_s=0.5)
    reports.of(JOB, several, 0.0)
    report = reports.of(JOB, several, 5.0)
    assert report is not None
    assert report.goodput is not None
    times = report.goodput.times
    assert times.a_c + times.b_c * 16 == pytest.approx(0.4, rel=0.01)


def test_who_says_little_is_told_of_as_far_as_it_goes() -> None:
    reports = Reports(5.0, 1.0)
    for odd in ({"workers": 0.0}, {"batch": -1.0}, {"step_s": 0.0}, {"compute_s": -2.0}, {"accumulation": 1e300}):
        for now_s in (0.0, 5.0, 10.0):
            report = reports.of(Job(f"{odd}", kind=Kind.ELASTIC, batch=8), told(**odd), now_s)
            assert report is not None
            assert report.goodput is None
    assert reports.of(JOB, Progress(3, 1.0, 1.0, {"batch": 3.0}), 0.0) is None
    assert set(told().figures) == set(FIGURES)
