"""The calls of NVIDIA's mig-parted lead, on the stand-in, to what was asked for, and gpuloom sees the same."""

import json
from collections import Counter

import pytest

from gpuloom.gpus.catalogue import MODELS
from tests.clients.conftest import Client
from tests.standin.hardware import Hardware

ADDRESS = "0000:10:00.0"
CONFIGURATIONS = {
    "A100-40GB": [{"1g.5gb": 7}, {"1g.5gb+me": 1}, {"1g.10gb": 4}, {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}],
    "A30-24GB": [{"2g.12gb": 2}, {"1g.6gb": 2, "2g.12gb": 1}, {"2g.12gb+me": 1}],
    "H100-SXM-80GB": [{"1g.20gb": 4}, {"3g.40gb": 2}, {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}],
    "H200-141GB": [{"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}, {"7g.141gb": 1}],
    "RTX-PRO-6000-96GB": [{"1g.24gb": 2, "2g.48gb": 1}, {"1g.24gb-me": 4}, {"2g.48gb+me.all": 1}, {"4g.96gb+gfx": 1}],
}
"""Of its default file, those of each kind: all alike, balanced, each suffix."""


def seen_by_gpuloom(hardware: Hardware) -> Counter[str]:
    [gpu] = json.loads(hardware.gpuloom("gpus", "--host", "--output", "json").stdout)
    return Counter(instance.partition("@")[0] for instance in gpu["instances"])


@pytest.mark.parametrize("model", CONFIGURATIONS)
def test_it_makes_what_it_was_asked_for(hardware: Hardware, client: Client, model: str) -> None:
    hardware.install(f"{model}+resets")
    for wanted in CONFIGURATIONS[model]:
        assert json.loads(client("mig_parted.py", json.dumps(wanted), ADDRESS)) == [wanted]
        assert Counter(instance.profile for instance in hardware.layout()) == wanted
        assert seen_by_gpuloom(hardware) == wanted
    assert json.loads(client("mig_parted.py", "{}", ADDRESS)) == [{}]
    assert hardware.show()["mig"] is False


def test_every_profile_has_the_name_that_it_gives_it(hardware: Hardware, client: Client) -> None:
    """Made of the memory of board and slice, without asking the driver for a name."""
    models = [model for model in MODELS.values() if model.mig]
    hardware.install(*(f"{model.name}+mig" for model in models))
    for gpu, model in enumerate(models):
        for name in model.by_name:
            found = json.loads(client("mig_parted.py", json.dumps({name: 1}), f"0000:1{gpu}:00.0"))
            assert found == [{name: 1}], model.name
