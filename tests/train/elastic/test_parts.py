"""What a user may hand to `wrap`, and what is refused: one process for all of it, since PyTorch is slow to import."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.xdist_group("torch"),
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
]

PROGRAM = """
import json, sys, threading, torch
from pathlib import Path
from torch import nn
from gpuloom.train import elastic

class Rows:
    def __len__(self):
        return 40
    def __getitem__(self, number):
        return {"given": torch.full((3,), float(number)) / 40, "wanted": torch.tensor([number % 3 / 3])}

def train_with(name, kind, batch, **options):
    def train(worker):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimiser = kind(model.parameters(), lr=0.1)
        made = {key: make(optimiser) if callable(make) else make for key, make in options.items()}
        job = worker.wrap(model, optimiser, Rows(), **made)
        for epoch in job.epochs(2):
            for rows in job.batches():
                job.backward(nn.functional.mse_loss(model(rows["given"]), rows["wanted"]), metric=1.0)
        if job.rank == 0:
            told = {"rate": optimiser.param_groups[0]["lr"], "factor": job._training.at.factor, "step": job.step}
            told["weights"] = [round(float(one.sum()), 5) for one in model.parameters()]
            told["scale"] = made["scaler"].get_scale() if "scaler" in made else None
            Path(name).write_text(json.dumps(told))
    elastic.run(train, batch=8, max_batch=16, workers=2)
    return json.loads(Path(name).read_text())

def steps(optimiser):
    return torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)

def refused(act):
    try:
        act()
    except elastic.ElasticError as error:
        return str(error)

def early(worker):
    model = nn.Linear(3, 1)
    job = worker.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), Rows())
    for rows in job.batches(epochs=10**6):
        job.backward(model(rows["given"]).mean())
        if job.step == 3:
            break

def main():
    torch.randn(1000, 1000).exp().sum()  # with threads, which no worker has
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    found = {
        "plain": train_with("plain", sgd, 8),
        "scaled": train_with("scaled", sgd, 8, scaler=lambda _: torch.amp.GradScaler("cpu", init_scale=1024.0)),
        "scheduled": train_with("scheduled", sgd, 8, scheduler=steps),
        "every_step": train_with("every_step", sgd, 8, scheduler=steps, scheduler_every="step"),
        "clipped": train_with("clipped", sgd, 8, clip_norm=1e-9),
        "adam": train_with("adam", adam, 8),
    }
    elastic.run(early, batch=8, workers=2)
    from gpuloom.train.elastic.worker import refuse
    model = nn.Linear(2, 2)
    found["compiled"] = refused(lambda: refuse(torch.compile(model)))
    found["synchronised"] = refused(lambda: refuse(nn.Sequential(nn.SyncBatchNorm(2))))
    found["fine"] = refused(lambda: refuse(elastic.sync_batch_norm(nn.Sequential(model, nn.BatchNorm1d(2)))))
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    found["threads"] = refused(lambda: elastic.run(early, batch=8))
    print(json.dumps(found))

main()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("parts")
    (folder / "program.py").write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPULOOM")}
    env |= {"GPULOOM_CHECKPOINT_DIR": str(folder), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_gradient_scaler_changes_nothing_but_the_scale(found: dict[str, Any]) -> None:
    assert found["scaled"]["weights"] == pytest.approx(found["plain"]["weights"], abs=2e-5)
    assert (found["scaled"]["scale"], found["plain"]["step"]) == (1024.0, 10)


def test_a_scheduler_is_stepped_by_the_job(found: dict[str, Any]) -> None:
    assert found["scheduled"]["rate"] == 0.1 * 0.5**2
    assert found["every_step"]["rate"] == pytest.approx(0.1 * 0.5**10)
    assert found["scheduled"]["weights"] != found["plain"]["weights"]


def test_clipping_and_other_optimisers(found: dict[str, Any]) -> None:
    assert found["clipped"]["weights"] != found["plain"]["weights"] != found["adam"]["weights"]
    assert {found[name]["factor"] for name in ("plain", "adam")} == {1.0}


def test_what_cannot_be_kept_whole_is_refused(found: dict[str, Any]) -> None:
    assert "torch.compile" in found["compiled"]
    assert "elastic.sync_batch_norm" in found["synchronised"]
    assert found["fine"] is None
    assert "thread" in found["threads"]
