"""Free against placeable, in cases from real life."""

import pytest

from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.fragmentation import fragmentation, free_slices, free_units, largest_placeable, largest_suggested
from gpuloom.gpus.layouts import parse


@pytest.mark.parametrize(
    ("name", "used", "free", "placeable", "expected"),
    [
        ("A100-40GB", "none", 7, 7, 0),
        ("A100-40GB", "7", 0, 0, 0),
        ("A100-40GB", "1@0,1@1,1@5", 4, 2, 0.5),  # left over by a day of arrivals and departures
        ("A100-40GB", "1@0", 6, 3, 0.25),  # the first free place, and 4g is gone
        ("A100-40GB", "1@6", 6, 4, 0),
        ("A100-40GB", "2@2,2@4", 3, 2, 1 / 3),
        ("A100-40GB", "3@0,2@4,1@6", 1, 0, 1),  # a slice that nothing can use
        ("A100-40GB", "3@0,3@4", 1, 0, 0),  # its memory is all in use, so nothing is lost by placement
        ("A30-24GB", "1@0,1@2", 2, 1, 0.5),
        ("RTX-PRO-6000-96GB", "1@3,1@6", 2, 1, 0.5),
        ("T4-16GB", "none", 0, 0, 0),
    ],
)
def test_cases(name: str, used: str, free: int, placeable: int, expected: float) -> None:
    model = MODELS[name]
    layout = parse(model, used)
    assert free_slices(model, layout) == free
    assert largest_placeable(model, layout) == placeable
    assert fragmentation(model, layout) == pytest.approx(expected)


def test_memory_counts_beside_slices() -> None:
    a100 = MODELS["A100-40GB"]
    used = parse(a100, "1g.10gb@0,1g.10gb@2,1g.10gb@4")
    assert (free_slices(a100, used), free_units(a100, used)) == (4, 2)
    assert largest_suggested(a100, used) == 2
