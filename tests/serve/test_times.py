"""How long a batch takes on another share."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.serve.deployment import read_plan
from gpuloom.serve.times import batch_times
from gpuloom.work.measured.service_figures import load_service_figures
from tests.serve.plans import row, write_plan


@pytest.fixture(scope="module")
def model() -> SharingModel:
    return SharingModel.from_figures(load_service_figures("V100"))


def test_the_plans_own_table_is_taken(tmp_path: Path, model: SharingModel) -> None:
    deployment = read_plan(write_plan(tmp_path, row()))
    (planned,) = deployment.plan.replicas
    larger = replace(planned, grant=planned.grant._replace(share_pct=60.0))
    assert batch_times(deployment, model)(planned) == (4.2, 6.9)
    assert batch_times(deployment, None)(larger) == [2.1, 3.45]
    modelled = batch_times(deployment, model)(larger)
    assert all(half < now < then for half, now, then in zip([2.1, 3.45], modelled, [4.2, 6.9], strict=True))


def test_without_one_the_model_is_asked_with_the_neighbours(tmp_path: Path, model: SharingModel) -> None:
    bare = {"batch_ms": None, "batch": 4}
    alone = read_plan(write_plan(tmp_path, row("W6", **bare)))
    crowded = read_plan(write_plan(tmp_path, row("W6", **bare), row("W9", workload="vgg19", share_pct=50, **bare)))
    times = [batch_times(one, model)(one.plan.replicas[0]) for one in (alone, crowded)]
    assert len(times[0]) == 4
    assert list(times[0]) == sorted(times[0])
    assert all(slow > fast for fast, slow in zip(*times, strict=True))


def test_a_model_without_times_is_named(tmp_path: Path, model: SharingModel) -> None:
    for workload, told in (("unheard-of", "'unheard-of'"), (None, "does not name")):
        deployment = read_plan(write_plan(tmp_path, row(batch_ms=None, workload=workload)))
        with pytest.raises(InputError, match=f"service W6: the plan has no batch_ms.*{told}"):
            batch_times(deployment, model)(deployment.plan.replicas[0])
