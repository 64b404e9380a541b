"""gRPC's messages, by hand: the model's name out of any request, and a request out of JSON."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.serve.gateway.kserve import health, infer_request, model_of, yes_or_no

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
        (body(data=[1e300]), "not of datatype FP32"),
        (body(datatype=["FP32"]), "datatype of input x is ['FP32']; known are BYTES"),
        (body(name="\ud800"), "surrogates not allowed"),
        (json.dumps({"inputs": [TENSOR], "outputs": [{}]}).encode(), "outputs are not a list of names"),
        (json.dumps({"inputs": [TENSOR], "outputs": 5}).encode(), "outputs are not a list of names"),
        (b"[" * 100_000, "nested too deeply"),
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


# ---- protobuf's wire format as its documentation has it, read without the code that is tested ------------------------


def take_number(rest: list[int]) -> int:
    groups = [rest.pop(0)]
    while groups[-1] >= 0x80:
        groups.append(rest.pop(0))
    return sum((group & 0x7F) << (7 * place) for place, group in enumerate(groups))


def numbers_of(packed: bytes) -> list[int]:
    rest, numbers = list(packed), []
    while rest:
        numbers.append(take_number(rest))
    return numbers


def fields_of(message: bytes) -> dict[int, bytes]:
    """Of a message whose fields all have a length."""
    rest, fields = list(message), {}
    while rest:
        field, kind = divmod(take_number(rest), 8)
        assert kind == 2
        length = take_number(rest)
        fields[field] = bytes(rest[:length])
        del rest[:length]
    return fields


SHAPES = st.lists(st.integers(0, 2**63 - 1), max_size=5)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@settings(deadline=None, max_examples=50)
@given(model=NAMES, name=NAMES, shape=SHAPES, data=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_a_request_says_what_its_json_said(model: str, name: str, shape: list[int], data: list[int]) -> None:
    tensor = {"name": name, "shape": shape, "datatype": "INT64", "data": data}
    fields = fields_of(infer_request(model, json.dumps({"inputs": [tensor], "outputs": [{"name": name}]}).encode()))
    assert list(fields) == [1, 5, 6, 7]
    assert fields[1] == model.encode()
    described = fields_of(fields[5])
    assert (described[1], described[2], numbers_of(described[3])) == (name.encode(), b"INT64", shape)
    assert fields_of(fields[6]) == {1: name.encode()}
    assert fields[7] == struct.pack(f"<{len(data)}q", *data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(
    field=st.sampled_from([*TENSOR, "inputs", "outputs"]), value=JSON, kind=st.sampled_from(["FP16", "BYTES", "BOOL"])
)
def test_anything_anywhere_is_translated_or_refused(field: str, value: Any, kind: str) -> None:
    tensor = TENSOR | {"datatype": kind, "data": ["1"]}
    request = {"inputs": [tensor | {field: value}]} if field in TENSOR else {"inputs": [tensor]} | {field: value}
    try:
        message = infer_request("m", json.dumps(request).encode())
    except ValueError:
        return
    assert model_of(message) == "m"


@settings(deadline=None, max_examples=100)
@given(model=NAMES, cut=st.integers(0, 300))
def test_a_request_that_is_cut_short_has_no_model_or_the_one_it_had(model: str, cut: int) -> None:
    assert model_of(infer_request(model, body())[:cut]) in (None, model)


def test_yes_and_no() -> None:
    """A bool or an enum in field 1; false is not sent, as proto3 has it."""
    assert (yes_or_no(True), yes_or_no(False)) == (b"\x08\x01", b"")
    assert (health(True), health(False)) == (b"\x08\x01", b"\x08\x02")
