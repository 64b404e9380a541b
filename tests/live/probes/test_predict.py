"""What the runner believes after a probe: the shipped predictor where it may speak, the simple rule where not."""

import pytest

from gpuloom.gpus.catalogue import MODELS, find
from gpuloom.live.probes.measure import UNCERTAIN, Rate, Rates, by_share
from gpuloom.live.probes.predict import trained
from gpuloom.perf.slices.mix import MpsSpeeds
from gpuloom.perf.slices.predictor import SlicePredictor
from gpuloom.work.measured.predictor_weights import load_weights
from gpuloom.work.model import Job

A100 = MODELS["A100-40GB"]
FLAT: Rates = {100.0: Rate(10.0), 50.0: Rate(9.5), 14.0: Rate(8.0)}
STEEP: Rates = {100.0: Rate(10.0), 50.0: Rate(5.5), 14.0: Rate(1.6)}


def test_it_is_what_the_shipped_predictor_says() -> None:
    jobs = [Job("a", workload="resnet 128"), Job("b", workload="my own 64", mem_mib=9000)]
    flat, steep = trained(jobs, [FLAT, STEEP], A100)
    told = [MpsSpeeds(10, 9.5, 8, family="resnet"), MpsSpeeds(10, 5.5, 1.6, 9000, "my")]
    first, second = SlicePredictor.from_arrays(load_weights().arrays).predict(told)
    assert {name: estimate.speed for name, estimate in flat.items()} == {
        name: speed.speed for name, speed in first.profiles.items()
    }
    assert steep["3g.20gb"].speed == second[3].speed
    assert flat["2g.10gb"].speed > steep["2g.10gb"].speed
    assert set(steep) == {"7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb"}, "the others lack the memory"


def test_who_was_not_measured_at_every_level_gets_the_simple_rule() -> None:
    jobs = [Job("a"), Job("mute"), Job("late")]
    rates: list[Rates] = [FLAT, {}, {100.0: Rate(5.0), 14.0: Rate(1.0)}]
    told, simple = trained(jobs, rates, A100), by_share(jobs, rates, A100)
    assert told[1:] == simple[1:]
    assert told[0] != simple[0]


def test_nobody_was_measured() -> None:
    assert trained([Job("a")], [{}], A100) == by_share([Job("a")], [{}], A100)


def test_on_a_chip_that_was_not_measured_nothing_is_certain() -> None:
    (here,), (there,) = trained([Job("a")], [STEEP], A100), trained([Job("a")], [STEEP], find("H100-80GB"))
    assert there["3g.40gb"].speed == here["3g.20gb"].speed
    assert there["3g.40gb"].high - there["3g.40gb"].low >= 2 * UNCERTAIN - 1e-9
    assert there["7g.80gb"] == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.mig])
def test_every_gpu_that_can_be_cut_has_an_answer_for_every_profile(name: str) -> None:
    model = MODELS[name]
    (answer,) = trained([Job("a")], [STEEP], model)
    assert set(answer) == {profile.name for profile in model.profiles}
    assert all(0 < estimate.low <= estimate.speed <= estimate.high for estimate in answer.values())
