"""The catalogue against published figures, and the names that people use."""

import pytest

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import MODELS, base_profiles, find, guess
from gpuloom.gpus.host.cpu import cpu_model
from gpuloom.gpus.model import GpuModel


def test_the_accepted_names() -> None:
    assert list(MODELS) == [
        "A100-40GB",
        "A100-80GB",
        "A30-24GB",
        "H100-SXM-80GB",
        "H100-PCIe-80GB",
        "H200-141GB",
        "RTX-PRO-6000-96GB",
        "V100-16GB",
        "V100-32GB",
        "T4-16GB",
    ]


def test_every_model_is_called_a_gpu_but_parts_of_a_cpu() -> None:
    assert {model.noun for model in MODELS.values()} == {"GPU"}
    assert cpu_model(1.9, 8000).noun == "device"


def test_profiles_of_an_a100_are_those_that_nvidia_smi_lists() -> None:
    listed = {p.name: (p.nvml_id, p.starts, p.size, p.mem_mib, p.sms, p.limit) for p in MODELS["A100-40GB"].profiles}
    ones = (0, 1, 2, 3, 4, 5, 6)
    assert listed == {
        "1g.5gb": (19, ones, 1, 4864, 14, 7),
        "1g.5gb+me": (20, ones, 1, 4864, 14, 1),
        "1g.10gb": (15, (0, 2, 4, 6), 2, 9856, 14, 4),
        "2g.10gb": (14, (0, 2, 4), 2, 9856, 28, 3),
        "3g.20gb": (9, (0, 4), 4, 19968, 42, 2),
        "4g.20gb": (5, (0,), 4, 19968, 56, 1),
        "7g.40gb": (0, (0,), 8, 40192, 98, 1),
    }


def test_sms_of_a_hopper_are_not_multiples_of_one_slice() -> None:
    assert [p.sms for p in base_profiles(MODELS["H100-SXM-80GB"])] == [16, 32, 60, 64, 132]
    assert [p.sms for p in base_profiles(MODELS["H100-PCIe-80GB"])] == [14, 30, 46, 62, 114]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_profile_stays_on_its_gpu(model: GpuModel) -> None:
    for profile in model.profiles:
        assert all(start >= 0 and start + profile.size <= model.units for start in profile.starts)
        assert profile.mem_mib <= model.mem_mib
        assert 0 < profile.sms <= model.sms
        assert 1 <= profile.limit <= len(profile.starts)
    assert model.mig == (model.units > 0)
    assert len({profile.nvml_id for profile in model.profiles}) == len(model.profiles)


def test_base_profiles_leave_out_variants_and_double_memory() -> None:
    assert [p.name for p in base_profiles(MODELS["A100-80GB"])] == [
        "1g.10gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
    ]
    assert [p.name for p in base_profiles(MODELS["RTX-PRO-6000-96GB"])] == ["1g.24gb", "2g.48gb", "4g.96gb"]
    assert base_profiles(MODELS["T4-16GB"]) == ()


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100", "A100-40GB"),
        ("a100-80gb", "A100-80GB"),
        (" a30 ", "A30-24GB"),
        ("H100", "H100-SXM-80GB"),
        ("h100-80GB", "H100-SXM-80GB"),
        ("H100 PCIe", "H100-PCIe-80GB"),
        ("h200", "H200-141GB"),
        ("rtx_pro_6000", "RTX-PRO-6000-96GB"),
        ("v100", "V100-16GB"),
        ("T4", "T4-16GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
    ],
)
def test_names_and_aliases(written: str, name: str) -> None:
    assert find(written) is MODELS[name]


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA A30", "A30-24GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H200 NVL", "H200-141GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-96GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("Tesla T4", "T4-16GB"),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA A100X", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_drivers_product_names(product: str, name: str | None) -> None:
    assert guess(product) is (None if name is None else MODELS[name])


@pytest.mark.parametrize("name", ["", "A1000", "A100-41GB", "-", "3g.20gb", "nvidia", "H100 NVL", "\u00b2"])
def test_an_unknown_name_gets_one_sentence_with_the_accepted_ones(name: str) -> None:
    with pytest.raises(InputError) as caught:
        find(name)
    assert repr(name) in str(caught.value)
    assert all(known in str(caught.value) for known in MODELS)
