"""GPUs that have to be reset before they can be cut, and a runner that is asked to cut them."""

import pytest

from gpuloom.gpus.catalogue import MODELS
from tests.live.shop import Shop, until
from tests.standin.hardware import Hardware

pytestmark = pytest.mark.xdist_group("mps")
NEEDS_A_RESET = "A100-40GB"


def refused(shop: Shop, policy: str) -> str:
    runner = shop.begin(policy)
    _, err = runner.communicate(timeout=40)
    assert runner.returncode == 1, err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("policy", ["miso", "miso-paper", "static:3,2,2", "ones"])
def test_a_policy_that_cuts_is_refused_before_anything_runs(shop: Shop, policy: str) -> None:
    shop.hardware.install(NEEDS_A_RESET, "A100-40GB+resets")
    shop.job("a", steps=20)
    err = refused(shop, policy)
    assert "GPU 0: MIG is off, and to switch it on takes a reset" in err
    assert "run `nvidia-smi -i 0 -mig 1`, then run `nvidia-smi --gpu-reset -i 0`, then start this again" in err
    found = [shop.hardware.show(gpu) for gpu in (0, 1)]
    assert [(gpu["mig"], gpu["mig_pending"], gpu["instances"]) for gpu in found] == [(False, False, [])] * 2
    assert list((shop.hardware.folder / "state").glob("*.json")) == [], "no GPU is ours"
    assert not shop.store.log_path.exists(), "nothing has begun"


def test_the_advice_works(shop: Shop) -> None:
    shop.hardware.install(NEEDS_A_RESET)
    shop.job("a", steps=20)
    refused(shop, "miso")
    switch_on(shop.hardware)
    shop.hardware.ctl("reset", "0")
    assert shop.run("miso") == {"a": "completed"}
    assert shop.hardware.show()["mig"] is True, "as it was found"


@pytest.mark.parametrize("policy", ["whole-fifo", "ones:-slices"])
def test_a_policy_that_does_not_cut_needs_no_reset(shop: Shop, policy: str) -> None:
    shop.hardware.install(NEEDS_A_RESET)
    shop.job("a", steps=20)
    assert shop.run(policy) == {"a": "completed"}
    shop.check_left_as_found()


def test_a_runner_holds_no_gpu_between_its_turns(shop: Shop) -> None:
    """While its job runs on one GPU, another, which has fallen off the bus, is reset and comes back."""
    shop.hardware.install("A100-40GB+resets", "A100-40GB+resets")
    shop.job("a", steps=400)
    runner = shop.begin("static:3,3", restore_s=1e6)
    until(lambda: bool(shop.steps("a")), "it works")
    shop.hardware.ctl("lose", "1")
    shop.hardware.ctl("find", "1")
    until(lambda: shop.hardware.ctl("reset", "1", check=False).returncode == 0, "nobody holds the driver")
    assert runner.poll() is None
    answer = shop.finish(runner)
    assert [row["state"] for row in answer["jobs"]] == ["completed"]


def switch_on(hardware: Hardware) -> None:
    """As `nvidia-smi -mig 1` does."""
    worker = hardware.worker()
    try:
        assert "takes effect at a GPU reset" in worker.ask("apply", target=[(0, "7g.40gb")])["reason"]
    finally:
        worker.close()
    for record in (hardware.folder / "state").glob("*.json"):
        record.unlink()


def test_an_old_driver_runs_jobs_on_slices_of_every_model(shop: Shop) -> None:
    """It says how a GPU can be cut only while MIG is on: each job has the small slice of another model."""
    models = [model.name for model in MODELS.values() if model.mig]
    shop.hardware.install(*(f"{name}+resets" for name in models))
    shop.environment["GPULOOM_STANDIN_DRIVER"] = "535.183.01"
    for name in models:
        shop.command(
            name, "sh", "-c", "case $CUDA_VISIBLE_DEVICES in MIG-*) echo $CUDA_VISIBLE_DEVICES ;; *) exit 1 ;; esac"
        )
    assert shop.run("static:1") == dict.fromkeys(models, "completed")
    used = {(shop.store.job_dir(name) / "out.log").read_text() for name in models}
    assert len(used) == len(models)
    shop.check_left_as_found()
