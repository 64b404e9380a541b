"""Measured pairs as arrays, and what leaving a model out means."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.perf.sharing.pairs import Pairs, containing, left_out_intervals, models_of, without
from gpuloom.work.measured.service_pairs import PairRow
from tests.perf.sharing.v100 import MODELS, ours, rows_as

rows = st.lists(
    st.builds(
        PairRow,
        st.sampled_from(MODELS),
        st.integers(1, 64),
        st.floats(10, 90),
        st.sampled_from(MODELS),
        st.integers(1, 64),
        st.floats(10, 90),
        st.floats(0.5, 500.0),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=50)
@given(rows, st.sampled_from(MODELS))
def test_a_row_has_the_model_or_does_not(pairs: list[PairRow], model: str) -> None:
    with_it, rest = containing(pairs, model), without(pairs, model)
    assert sorted(with_it + rest) == sorted(pairs)
    assert all(model in (row.model, row.neighbour) for row in with_it)
    assert model not in models_of(rest)
    assert models_of(pairs) == models_of(with_it) | models_of(rest)


@settings(deadline=None, max_examples=50)
@given(rows, st.permutations(MODELS))
def test_the_rows_own_model_is_in_the_first_seat(pairs: list[PairRow], names: list[str]) -> None:
    arrays = Pairs.of(pairs, names)
    assert arrays.crowd.model.shape == (len(pairs), 2)
    assert arrays.crowd.here.all()
    for number, row in enumerate(pairs):
        assert [names[index] for index in arrays.crowd.model[number]] == [row.model, row.neighbour]
        assert arrays.crowd.batch[number].tolist() == [row.batch, row.neighbour_batch]
        assert arrays.crowd.share_pct[number].tolist() == [row.share_pct, row.neighbour_share_pct]
        assert arrays.measured_ms[number] == row.latency_ms


def test_pairs_that_cannot_be_used_are_named() -> None:
    with pytest.raises(InputError, match="the measured pairs name bert"):
        Pairs.of([PairRow("bert", 1, 50.0, "ssd", 1, 50.0, 3.0)], MODELS)
    with pytest.raises(InputError, match="no measured pairs"):
        Pairs.of([], MODELS)


def test_each_model_is_judged_by_a_fit_that_has_not_seen_it() -> None:
    """A model that is right but for one factor: the interval reaches to that factor, and no further than it."""
    pairs = [row._replace(latency_ms=1.1 * row.latency_ms) for row in rows_as(ours())]
    trained_on: list[set[str]] = []

    def fit(training: Sequence[PairRow]) -> SharingModel:
        trained_on.append(models_of(training))
        return ours()

    intervals = left_out_intervals(pairs, fit)
    assert trained_on == [set(MODELS) - {model} for model in sorted(MODELS)]
    assert np.exp(intervals.high) == pytest.approx(1.1)
    assert intervals.low == (0.0, 0.0, 0.0)


def test_with_two_models_nothing_can_be_left_out() -> None:
    pairs, seen = rows_as(ours(), MODELS[:2]), []

    def fit(training: Sequence[PairRow]) -> SharingModel:
        seen.append(len(training))
        return ours()

    intervals = left_out_intervals(pairs, fit)
    assert seen == [len(pairs)] * 2, "errors are those on the very pairs of the fit"
    assert max(intervals.high) < 1e-12
