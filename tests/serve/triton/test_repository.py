"""The text that Triton reads."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.serve.triton.repository import batching_text, standin_text, with_batching, write_own, write_standin

OWN = """
name: "other"   # its own idea of a name
platform: "onnxruntime_onnx"
max_batch_size: 64
input [ { name: "x{" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100000 }
instance_group [ { kind: KIND_GPU count: 1 } ]
"""


def test_the_plan_decides_the_batching() -> None:
    assert batching_text(8, 1.5) == "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 1500 }\n"


def test_the_stand_in_is_told_its_times() -> None:
    text = standin_text([4.25, 6.5, 9.0], 2, 0.0, Path('/a "b"/slowdown'))
    assert "max_batch_size: 2" in text
    assert json.loads(json.loads(re.findall(r'"batch_ms" value { string_value: (".*") }', text)[0])) == [4.25, 6.5]
    assert r'"/a \"b\"/slowdown"' in text


def test_a_users_configuration_keeps_all_but_its_batching() -> None:
    text = with_batching(OWN, 6, 0.25)
    assert text.count("max_batch_size") == text.count("dynamic_batching") == 1
    assert "max_batch_size: 6" in text
    assert "max_queue_delay_microseconds: 250 " in text
    assert "other" not in text
    for kept in ('platform: "onnxruntime_onnx"', 'name: "x{"', "dims: [ 3, 224, 224 ]", "KIND_GPU"):
        assert kept in text


@pytest.mark.parametrize("broken", ["input [", "a: }", 'a: "open'])
def test_a_configuration_that_does_not_close_is_refused(tmp_path: Path, broken: str) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(broken)
    with pytest.raises(InputError, match=r"config\.pbtxt: a (quote|bracket) that"):
        write_own(tmp_path / "r", "m", tmp_path / "m", 4, 0.0)
    with pytest.raises(InputError, match="does not exist"):
        write_own(tmp_path / "r", "m", tmp_path, 4, 0.0)


@given(st.text(st.sampled_from("ab:{}[]\"\\'# \n<>0"), max_size=40))
def test_any_text_is_taken_apart_or_refused(text: str) -> None:
    try:
        found = with_batching(text, 4, 0.0)
    except ValueError:
        return
    assert found.endswith(batching_text(4, 0.0))


def test_repositories_are_written_anew(tmp_path: Path) -> None:
    for _ in range(2):
        write_standin(tmp_path / "r", "m", "text")
    assert (tmp_path / "r" / "m" / "config.pbtxt").read_text() == "text"
    assert "TritonPythonModel" in (tmp_path / "r" / "m" / "1" / "model.py").read_text()
    own = tmp_path / "own"
    (own / "1").mkdir(parents=True)
    (own / "1" / "weights").write_text("w")
    (own / "config.pbtxt").write_text(OWN)
    write_own(tmp_path / "r", "m", own, 4, 0.0)
    assert (tmp_path / "r" / "m" / "1" / "weights").read_text() == "w"
    assert "max_batch_size: 4" in (tmp_path / "r" / "m" / "config.pbtxt").read_text()
    assert "max_batch_size: 64" in (own / "config.pbtxt").read_text()
