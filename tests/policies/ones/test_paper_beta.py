"""The progress predictor of ONES: what it learns from completed jobs, and its gradient."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from gpuloom.policies.ones.paper_beta import HIDDEN, MOST_LESSONS, Path, _inputs, _loss, fit


def path(epochs: int, epoch_size: float, of: int) -> Path:
    """So many epochs of a job that will have `of`; its metric tells little."""
    found = Path()
    for epoch in range(1, epochs + 1):
        found.reach(epoch, epoch * epoch_size, 0.5 + 0.4 * epoch / of)
    return found


def test_it_tells_long_jobs_from_short_ones_by_what_completed_ones_were() -> None:
    lessons = [
        lesson for _ in range(5) for size, of in ((1e3, 10), (1e6, 100)) for lesson in path(of - 1, size, of).lessons()
    ]
    predictor = fit(lessons)
    assert predictor is not None
    rows = np.array([path(5, 1e3, 10).regressors(5), path(5, 1e6, 100).regressors(5)])
    short, long = predictor.epochs_left(rows)
    assert short == pytest.approx(5, rel=0.3)
    assert long == pytest.approx(95, rel=0.3)


def test_without_lessons_there_is_no_predictor_and_a_job_that_reported_nothing_teaches_nothing() -> None:
    assert fit([]) is None
    assert Path().lessons() == []


def test_lessons_are_few_and_end_with_an_epoch_that_nobody_saw() -> None:
    lessons = path(99, 1.0, 100).lessons()
    assert len(lessons) == MOST_LESSONS
    assert lessons[0][1] == pytest.approx(0.01)
    assert lessons[-1][1] == pytest.approx(0.99)


def test_who_lost_work_is_back_where_it_was() -> None:
    found = path(5, 10.0, 9)
    found.reach(3, 30.0, 0.6)
    assert (found.epochs, found.samples, [*found.by_epoch]) == (3, 30.0, [1, 2, 3])
    found.reach(0, 0.0, 0.0)
    assert (found.epochs, found.samples) == (0, 0.0)


def test_the_gradient_is_that_of_the_likelihood() -> None:
    rng = np.random.default_rng(1)
    inputs, epochs, done = (
        _inputs(rng.normal(size=(7, 5))),
        rng.integers(1, 9, 7).astype(float),
        rng.uniform(0.1, 0.9, 7),
    )
    weights = rng.normal(size=(inputs.shape[1] + 1) * HIDDEN + 1)
    wrong = check_grad(
        lambda at: _loss(at, inputs, epochs, done)[0], lambda at: _loss(at, inputs, epochs, done)[1], weights
    )
    assert wrong < 1e-4


def test_far_from_all_that_was_seen_it_stays_finite() -> None:
    predictor = fit(path(9, 1e3, 10).lessons())
    assert predictor is not None
    assert np.isfinite(predictor.epochs_left(np.array([[99.0, 1e9, 1e6, -1e9, 1e9]]))).all()
