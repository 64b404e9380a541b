"""The questions that a planner asks of any model: of one device, of many at once, of a service alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.perf.sharing.interference import (
    NOBODY,
    WHOLE,
    Capacity,
    Crowd,
    InterferenceModel,
    Placed,
    crowd_of,
    predict,
    solo_ms,
)
from tests.perf.sharing.v100 import MODELS, crowds, gpulets, igniter, ours, placed, totals

ALL = (ours(), igniter(), gpulets())


@settings(deadline=None, max_examples=60)
@given(crowds.flatmap(lambda crowd: st.tuples(st.just(crowd), st.permutations(range(len(crowd))))))
def test_the_order_of_residents_does_not_matter(case: tuple[list[Placed], list[int]]) -> None:
    crowd, order = case
    for model in ALL:
        straight = totals(model, crowd)
        assert totals(model, [crowd[seat] for seat in order]) == pytest.approx([straight[seat] for seat in order])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(placed, max_size=4), min_size=1, max_size=4), st.floats(0.2, 1.0), st.floats(0.2, 1.0))
def test_many_devices_at_once_are_each_as_one(rows: list[list[Placed]], compute: float, memory: float) -> None:
    device = Capacity(compute, memory, beside_w=20.0)
    for model in ALL:
        latencies = model.latencies(crowd_of(model, rows, device))
        for number, row in enumerate(rows):
            alone = predict(model, row, device)
            for field in ("load_ms", "gpu_ms", "feedback_ms", "total_ms", "low_ms", "high_ms"):
                together = getattr(latencies, field)[number, : len(row)]
                assert together == pytest.approx([getattr(latency, field) for latency in alone])


def test_rows_of_unlike_length_have_empty_seats() -> None:
    rows = [
        [Placed("ssd", 4, 50.0)],
        [Placed("vgg19", 2, 30.0), Placed("alexnet", 9, 10.0), Placed("ssd", 1, 60.0)],
        [],
    ]
    for model in (ours(), igniter()):
        crowd = crowd_of(model, rows)
        assert crowd.model[0, 1] == NOBODY
        total = model.latencies(crowd).total_ms
        for number, row in enumerate(rows):
            assert total[number, : len(row)] == pytest.approx(totals(model, row))
    assert predict(ours(), []) == []


@settings(deadline=None, max_examples=40)
@given(crowds, st.integers(1, 3))
def test_an_empty_seat_is_nobody(crowd: list[Placed], empty: int) -> None:
    for model in ALL:
        full = crowd_of(model, [crowd])
        wider = Crowd(
            np.pad(full.model, ((0, 0), (0, empty)), constant_values=NOBODY),
            np.pad(full.batch, ((0, 0), (0, empty)), constant_values=32.0),
            np.pad(full.share_pct, ((0, 0), (0, empty)), constant_values=90.0),
        )
        assert wider.here.sum() == len(crowd)
        assert model.latencies(wider).total_ms[0, : len(crowd)] == pytest.approx(totals(model, crowd))


@settings(deadline=None, max_examples=40)
@given(st.lists(placed, min_size=1, max_size=3), st.integers(1, 3))
def test_a_process_is_a_seat_and_throughput_is_that_of_all_of_them(residents: list[Placed], processes: int) -> None:
    first, *others = residents
    for model in ALL:
        folded = predict(model, [first._replace(processes=processes), *others])
        unfolded = predict(model, [first] * processes + others)
        assert len(folded) == len(residents)
        assert [one.total_ms for one in folded] == pytest.approx(
            [one.total_ms for one in (unfolded[0], *unfolded[processes:])]
        )
        assert folded[0].throughput_per_s == pytest.approx(sum(one.throughput_per_s for one in unfolded[:processes]))
        latency = folded[0]
        per_batch_ms = max(latency.gpu_ms + latency.feedback_ms, latency.load_ms)
        assert latency.throughput_per_s == pytest.approx(1000.0 * first.batch * processes / per_batch_ms)


@pytest.mark.parametrize("model", ALL, ids=lambda model: type(model).__name__)
def test_alone_is_a_crowd_of_one_over_any_arrays(model: InterferenceModel) -> None:
    batch, share_pct = np.array([1, 4, 32])[:, None], np.array([10.0, 50.0])
    for device in (WHOLE, Capacity(0.5, 0.25, 60.0)):
        times = solo_ms(model, "vgg19", batch, share_pct, device)
        assert times.shape == (3, 2)
        for row, column in np.ndindex(3, 2):
            crowd = [Placed("vgg19", int(batch[row, 0]), float(share_pct[column]))]
            assert times[row, column] == pytest.approx(totals(model, crowd, device)[0])
    assert solo_ms(model, "ssd", 2, 40.0).shape == ()


@pytest.mark.parametrize(
    ("resident", "complaint"),
    [
        (Placed("bert", 1, 50.0), "no profile of the model 'bert': expected one of alexnet, resnet50, ssd, vgg19"),
        (Placed("ssd", 0, 50.0), "the batch of ssd is 0"),
        (Placed("ssd", float("nan"), 50.0), "the batch of ssd is nan"),
        (Placed("ssd", float("inf"), 50.0), "the batch of ssd is inf"),
        (Placed("ssd", 1, 0.0), "the share of ssd is 0.0"),
        (Placed("ssd", 1, float("nan")), "the share of ssd is nan"),
        (Placed("ssd", 1, 101.0), "the share of ssd is 101.0"),
        (Placed("ssd", 1, 50.0, 0), "ssd has 0 processes"),
    ],
)
def test_a_wrong_resident_is_refused(resident: Placed, complaint: str) -> None:
    for others in ([], [Placed("ssd", 1, 50.0)]):
        with pytest.raises(InputError, match=complaint):
            predict(ours(), [*others, resident])


@pytest.mark.parametrize("part", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_device_is_a_part_of_a_gpu(part: float) -> None:
    with pytest.raises(InputError, match="compute of a device is"):
        Capacity(part, 1.0)
    with pytest.raises(InputError, match="memory of a device is"):
        Capacity(1.0, part)


def test_other_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="memory of a device is 0"):
        Capacity(1.0, 0.0)
    with pytest.raises(InputError, match="differ in shape"):
        Crowd(np.zeros((1, 2), int), np.ones((1, 1)), np.ones((1, 2)))
    with pytest.raises(InputError, match="no profile of the model 'x'"):
        solo_ms(ours(), "x", 1, 50)
    assert ours().names == igniter().names == gpulets().names == MODELS
