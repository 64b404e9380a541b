"""The requests that a model is asked with, at any batch: from the JSON of one item, or made up. Pure.

Made-up ones are binary (KServe's extension, as Triton's own clients send them), so that a picture is not a megabyte of
digits to be read; what the user wrote is sent as it was written, so often in one request as the batch has items.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuloom.serve.gateway.kserve import KINDS

TEXT = b"gpuloom"


@dataclass(frozen=True, slots=True)
class Body:
    """Of a request over HTTP."""

    content: bytes
    json_bytes: int | None = None
    """So much of it is JSON, binary tensors follow; None: all of it."""


def written_body(content: bytes, batch: int) -> Body:
    """The user's request with its items so many times; ValueError says why it cannot be."""
    try:
        request = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not inputs or not all(isinstance(tensor, dict) for tensor in inputs):
        raise ValueError("it has no list of inputs")
    request["inputs"] = [_repeated(tensor, batch) for tensor in inputs]
    return Body(json.dumps(request).encode())


def _repeated(tensor: dict[str, Any], batch: int) -> dict[str, Any]:
    name, shape, data = tensor.get("name"), tensor.get("shape"), tensor.get("data")
    if not isinstance(shape, list) or not shape or shape[0] != 1:
        raise ValueError(f"input {name!r} has the shape {shape}: the first size must be 1, for one item")
    if not isinstance(data, list):
        raise ValueError(f"input {name!r} has no data")
    return {**tensor, "shape": [batch, *shape[1:]], "data": data * batch}


def made_up_body(metadata: Mapping[str, Any], batch: int) -> Body:
    """From what the server says of the model; ValueError says why it cannot be made up."""
    inputs = metadata.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise ValueError("the server does not say what the model takes")
    dice = np.random.default_rng(0)
    told, raw = [], []
    for tensor in inputs:
        name, kind, shape = tensor["name"], tensor["datatype"], [int(size) for size in tensor["shape"]]
        if min(shape[1:], default=0) < 0:
            raise ValueError(f"input {name} has sizes that are free ({shape})")
        data = _content(dice, str(kind), [batch, *shape[1:]], str(name))
        told.append(
            {
                "name": name,
                "datatype": kind,
                "shape": [batch, *shape[1:]],
                "parameters": {"binary_data_size": len(data)},
            }
        )
        raw.append(data)
    header = json.dumps({"inputs": told, "parameters": {"binary_data_output": True}}).encode()
    return Body(header + b"".join(raw), len(header))


def _content(dice: np.random.Generator, kind: str, shape: list[int], name: str) -> bytes:
    """Numbers of a usual size; whole ones are 0 or 1, which are valid wherever they are an index."""
    count = int(np.prod(shape))
    if kind == "BYTES":
        return (len(TEXT).to_bytes(4, "little") + TEXT) * count
    if kind not in KINDS:
        raise ValueError(f"input {name} is of {kind}; known are BYTES, {', '.join(KINDS)}")
    values = dice.standard_normal(count) if kind.startswith("FP") else dice.integers(0, 2, count)
    return values.astype(KINDS[kind]).tobytes()
