"""mig-parted files, in and out, and what is said about bad ones."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.catalogue import MODELS, PCI_IDS
from gpuloom.gpus.migparted import Configs, dump_configs, entries_of, entry_for, layouts_for, parse_configs
from gpuloom.gpus.model import GpuModel, Instance, Layout

A100 = MODELS["A100-40GB"]
A30 = MODELS["A30-24GB"]

FILE = """
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  balanced:
    - device-filter: ["0x20B010DE", "0x20B110DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "2g.10gb": 1
        "3g.20gb": 1
    - device-filter: 0x20b710de
      devices: all
      mig-enabled: true
      mig-devices: {"1g.6gb": 2, "2g.12gb": 1}
  by-index:
    - devices: [0, 1]
      mig-enabled: true
      mig-devices: {"3g.20gb": 2}
    - devices: [2]
      mig-enabled: true
      mig-devices: {"1g.5gb": 7, "2g.10gb": 0}
"""


def layout_for(configs: Configs, name: str, model: GpuModel, device: int = 0, source: str = "mig-configs") -> Layout:
    """The best of those that the configuration allows."""
    layout = layouts.best(model, layouts_for(configs, name, model, device, source))
    assert layout is not None
    return layout


def test_counts_become_an_exact_layout() -> None:
    configs = parse_configs(FILE)
    assert layout_for(configs, "balanced", A100) == layouts.parse(A100, "1@0,1@1,2@2,3@4")
    assert layout_for(configs, "balanced", A30) == layouts.parse(A30, "2,1,1")
    assert layout_for(configs, "all-disabled", A100) == ()
    assert layout_for(configs, "by-index", A100, device=1) == layouts.parse(A100, "3,3")
    assert layout_for(configs, "by-index", A100, device=2) == layouts.parse(A100, "1,1,1,1,1,1,1")


def test_an_entry_must_be_about_the_gpu() -> None:
    configs = parse_configs(FILE)
    with pytest.raises(InputError, match="no entry for GPU 3"):
        layout_for(configs, "by-index", A100, device=3)
    with pytest.raises(InputError, match="device-filter"):
        layout_for(configs, "balanced", MODELS["H200-141GB"])
    with pytest.raises(InputError, match="accepted are all-disabled, balanced, by-index"):
        layout_for(configs, "nope", A100)


def test_what_is_written_is_read_back() -> None:
    configs = parse_configs(FILE)
    assert parse_configs(dump_configs(configs)) == configs


@settings(deadline=None)
@given(st.sampled_from([model for model in MODELS.values() if model.mig]), st.data())
def test_any_layout_survives_but_for_its_placement(model: GpuModel, data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(layouts.every(model)))
    again = layout_for(parse_configs(dump_configs({"x": (entry_for(model, layout),)})), "x", model)
    assert Counter(one.profile for one in again) == Counter(one.profile for one in layout)
    assert layouts.check(model, again) is None


def test_an_illegal_layout_is_not_written() -> None:
    with pytest.raises(ValueError, match="cannot start"):
        entry_for(A100, (Instance(7, "1g.5gb"),))


def entry(line: str) -> str:
    """A file with one good entry, one of its lines replaced or added."""
    fields = {"devices": "all", "mig-enabled": "true", "mig-devices": '{"1g.5gb": 1}'}
    key, _, value = line.partition(":")
    fields[key] = value
    return "version: v1\nmig-configs:\n  x:\n    - " + "\n      ".join(f"{k}: {v}" for k, v in fields.items())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "mig-configs"),
        ("[1, 2", "not valid YAML"),
        ("a: 1\n b: 2", "not valid YAML in line 2"),
        ("!!int ''", "not valid YAML"),
        ("version: v1", "mig-configs"),
        ("version: v2\nmig-configs: {}", "version is 'v2'; accepted is v1"),
        ("version: v1\nmig-configs: {}\nextra: 1", "extra"),
        ("version: v1\nmig-configs: {x: {}}", "mig-configs.x must be a list"),
        ("version: v1\nmig-configs: {x: []}", "mig-configs.x must be a list"),
        ("version: v1\nmig-configs: {x: [1]}", "mig-configs.x[0] must be a mapping"),
        (entry("devices: some"), "mig-configs.x[0].devices is 'some'"),
        (entry("devices: [-1]"), "mig-configs.x[0].devices"),
        (entry("devices: [true]"), "mig-configs.x[0].devices"),
        (entry("mig-enabled: 1"), "mig-configs.x[0].mig-enabled is 1"),
        (entry("mig-enabled: false"), "mig-configs.x[0].mig-devices must be empty"),
        (entry("mig-devices: 3"), "mig-configs.x[0].mig-devices"),
        (entry('mig-devices: {"1g.5gb": -1}'), "mig-devices.1g.5gb is -1"),
        (entry('mig-devices: {"1g.5gb": true}'), "mig-devices.1g.5gb is True"),
        (entry('mig-devices: {"1c.3g.20gb": 1}'), "'1c.3g.20gb' is not a GPU instance profile"),
        (entry("device-filter: A100"), "device-filter has 'A100'"),
        (entry("mig-device: {}"), "mig-device is not known"),
    ],
)
def test_bad_files_name_the_file_and_the_field(text: str, named: str) -> None:
    """A mistake in a configuration is told to whoever asks for it."""
    with pytest.raises(InputError) as caught:
        layouts_for(parse_configs(text, "mig.yaml"), "x", A100, 0, "mig.yaml")
    assert str(caught.value).startswith("mig.yaml: ")
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("counts", "named"), [('{"1g.6gb": 1}', "1g.6gb is not a profile of A100-40GB"), ('{"4g.20gb": 2}', "2 × 4g.20gb")]
)
def test_profiles_that_this_gpu_does_not_have_or_hold(counts: str, named: str) -> None:
    configs = parse_configs(entry(f"mig-devices: {counts}"), "mig.yaml")
    with pytest.raises(InputError) as caught:
        layout_for(configs, "x", A100, source="mig.yaml")
    assert named in str(caught.value)
    assert "mig.yaml: mig-configs.x" in str(caught.value)


def test_an_entry_that_cannot_be_used_refuses_its_own_configuration_only() -> None:
    text = (
        FILE
        + """
  compute:
    - {devices: all, mig-enabled: true, mig-devices: {"1c.3g.20gb": 2}}
  misspelt:
    - {devices: all, mig-enabled: true, mig-device: {}}
"""
    )
    configs = parse_configs(text, "mig.yaml")
    assert layout_for(configs, "by-index", A100, device=1) == layouts.parse(A100, "3,3")
    for name, named in (
        ("compute", "'1c.3g.20gb' is not a GPU instance profile"),
        ("misspelt", "mig-device is not known"),
    ):
        with pytest.raises(InputError, match=named) as caught:
            layout_for(configs, name, A100)
        assert f"mig.yaml: mig-configs.{name}[0]" in str(caught.value)


BOARD = "0x20B010DE:0x134F10DE"


@pytest.mark.parametrize(
    ("filters", "board", "is_meant"),
    [
        ('"0x20B010DE"', BOARD, True),
        ("0x20b010de", BOARD, True),
        ('["0x20F110DE", "0x20B010DE:0x134F10DE"]', BOARD, True),
        ('"0x20B010DE:0x134E10DE"', BOARD, False),
        ('"0x20F110DE"', BOARD, False),
        ('"0x20F110DE"', None, True),
        ('"0x20B010DE:0x134E10DE"', None, True),
        ('"0x20B210DE"', None, False),
    ],
)
def test_a_filter_is_about_the_board_that_is_here(filters: str, board: str | None, is_meant: bool) -> None:
    """Where none is, as in a plan for a model, about any board of that model."""
    (rule,) = entries_of(parse_configs(entry(f"device-filter: {filters}")), "x", "mig.yaml")
    assert rule.about(A100, 0, board) == is_meant


def test_the_boards_of_every_model_are_known() -> None:
    assert PCI_IDS.keys() == MODELS.keys()
    every = [number for numbers in PCI_IDS.values() for number in numbers]
    assert len(every) == len({*every}), "no board is two models"


@settings(deadline=None)
@given(st.text(alphabet="version: v1\n-[]{}!&*?|>'\"0x", max_size=40))
def test_any_text_is_a_file_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        parse_configs(text)
