"""gRPC's messages, by hand: the model's name out of any request, and a request out of JSON."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.serve.gateway.kserve import infer_request, model_of

TENSOR = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2.5]}


def body(**fields: Any) -> bytes:
    return json.dumps({"inputs": [TENSOR | fields]}).encode()


def test_a_request_of_the_protocol() -> None:
    """Written out after the protocol's definition, field by field."""
    tensor = b"\x0a\x01x" + b"\x12\x04FP32" + b"\x1a\x02\x01\x02"
    raw = struct.pack("<2f", 1.0, 2.5)
    assert infer_request("m", body()) == b"\x0a\x01m" + b"\x2a\x0d" + tensor + b"\x3a\x08" + raw


def test_other_kinds_of_data() -> None:
    assert infer_request("m", body(datatype="INT64", data=[[1], [-1]])).endswith(struct.pack("<2q", 1, -1))
    assert infer_request("m", body(datatype="BYTES", data=["ab", "ü"])).endswith(b"\x02\0\0\0ab\x02\0\0\0\xc3\xbc")
    assert infer_request("m", body(shape=[300, 1])).count(b"\x1a\x03\xac\x02\x01") == 1  # 300 takes two bytes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "Expecting"),
        (b"[]", "no list of inputs"),
        (b'{"inputs": [1]}', "no list of inputs"),
        (body(name=None), "has no name"),
        (body(shape="1x2"), "shape of input x"),
        (body(datatype="FP4"), "datatype of input x is 'FP4'; known are BYTES, BOOL"),
        (body(data=None), "input x has no data"),
        (body(data=["a"]), "not of datatype FP32"),
        (body(datatype="UINT8", data=[-1]), "not of datatype UINT8"),
        (body(data=[[1], [2, 3]]), "not of datatype FP32"),
    ],
)
def test_what_is_no_request(text: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("[", r"\[")):
        infer_request("m", text)


@given(model=st.text(min_size=1), floats=st.lists(st.floats(width=32), max_size=300))
def test_the_model_of_a_request(model: str, floats: list[float]) -> None:
    assert model_of(infer_request(model, body(data=floats))) == model


def test_the_model_wherever_it_stands() -> None:
    number, fixed64, fixed32, text = b"\x10\xff\x01", b"\x19" + b"\x0a" * 8, b"\x25" + b"\x0a" * 4, b"\x2a\x03\x0a\x01z"
    assert model_of(number + fixed64 + fixed32 + text + b"\x0a\x01m") == "m"
    assert model_of(b"\x0a\x01a" + text + b"\x0a\x01m") == "m"  # of two the last one counts, as for Triton
    assert model_of(text) is None


@given(st.binary(max_size=60))
def test_anything_else_has_no_model_or_one(data: bytes) -> None:
    found = model_of(data)
    assert found is None or found.encode() in data
