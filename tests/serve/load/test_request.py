"""Requests at any batch: what a user wrote, repeated; what a model says that it takes, made up."""

import json
from typing import Any

import numpy as np
import pytest

from gpuloom.serve.load.request import made_up_body, written_body

ONE = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 2.0]}], "id": "7"}


def tensor(name: str, kind: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": kind, "shape": [*shape]}


def test_what_was_written_is_sent_so_many_times() -> None:
    body = written_body(json.dumps(ONE).encode(), 3)
    told = json.loads(body.content)
    assert told["inputs"][0]["shape"] == [3, 2]
    assert told["inputs"][0]["data"] == [0.5, 2.0] * 3
    assert told["id"] == "7"
    assert body.json_bytes is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "it is no JSON"),
        (b"[]", "it has no list of inputs"),
        (b'{"inputs": []}', "it has no list of inputs"),
        (b'{"inputs": [{"name": "x", "shape": [2, 2], "data": [1]}]}', "the first size must be 1, for one item"),
        (b'{"inputs": [{"name": "x", "shape": [1, 2]}]}', "input 'x' has no data"),
        (b"[" * 100_000, "it is no JSON"),
    ],
)
def test_what_is_no_request(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        written_body(content, 1)
    assert sentence in str(error.value)


def test_made_up_requests_are_as_long_as_they_say() -> None:
    inputs = [tensor("x", "FP16", -1, 3, 4), tensor("ids", "INT64", -1, 5), tensor("text", "BYTES", -1)]
    body = made_up_body({"inputs": inputs}, 2)
    assert body.json_bytes is not None
    told = json.loads(body.content[: body.json_bytes])["inputs"]
    assert [one["shape"] for one in told] == [[2, 3, 4], [2, 5], [2]]
    sizes = [one["parameters"]["binary_data_size"] for one in told]
    assert sizes == [2 * 3 * 4 * 2, 2 * 5 * 8, 2 * (4 + len("gpuloom"))]
    assert len(body.content) == body.json_bytes + sum(sizes)
    ids = np.frombuffer(body.content[body.json_bytes + sizes[0] :][: sizes[1]], "<i8")
    assert {*ids.tolist()} <= {0, 1}
    assert made_up_body({"inputs": inputs}, 2) == body


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({}, "the server does not say what the model takes"),
        ({"inputs": [tensor("x", "FP32", -1, -1)]}, "input x has sizes that are free"),
        ({"inputs": [tensor("x", "BF16", -1, 4)]}, "input x is of BF16; known are BYTES, BOOL"),
    ],
)
def test_what_cannot_be_made_up(metadata: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        made_up_body(metadata, 1)
    assert sentence in str(error.value)
