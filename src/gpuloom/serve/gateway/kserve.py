"""The few messages of the KServe v2 protocol over gRPC, as Triton speaks it, read and written by hand.

Requests pass the gateway as bytes; only the name of the model is looked at, which is field 1 of every request that has
one. A request for `gpuloom load` is made from the same JSON that is sent over HTTP.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

SERVICE = "/inference.GRPCInferenceService/"
INFER = f"{SERVICE}ModelInfer"
LIVE, READY, METADATA = (f"{SERVICE}Server{name}" for name in ("Live", "Ready", "Metadata"))
OF_A_MODEL = frozenset(
    f"{SERVICE}{name}" for name in ("ModelInfer", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics")
)
HEALTH = "/grpc.health.v1.Health/Check"
_VARINT, _I64, _LENGTH, _I32 = 0, 1, 2, 5
KINDS = {
    "BOOL": "?", "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "<u1", "UINT16": "<u2",
    "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip


def model_of(request: bytes) -> str | None:
    """The model that a request is for; None if it names none, or is no message at all."""
    model = None
    try:
        for number, value in _fields(request):
            if number == 1:
                model = value.decode()
    except ValueError:
        return None
    return model


def yes_or_no(answer: bool) -> bytes:
    """ServerLive's and ServerReady's answer."""
    return b"\x08\x01" if answer else b""


def health(serving: bool) -> bytes:
    """The standard health service's answer: SERVING or NOT_SERVING."""
    return b"\x08\x01" if serving else b"\x08\x02"


def infer_request(model: str, body: bytes) -> bytes:
    """The JSON of a request over HTTP as a ModelInferRequest; ValueError says what is wrong with it."""
    try:
        request = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        raise ValueError("it has no list of inputs")
    outputs = request.get("outputs") or []
    if not isinstance(outputs, list) or not all(isinstance(tensor, dict) and "name" in tensor for tensor in outputs):
        raise ValueError("its outputs are not a list of names")
    parts = [_bytes(1, model.encode())]
    parts += [_bytes(5, _tensor(tensor)) for tensor in inputs]
    parts += [_bytes(6, _bytes(1, str(tensor["name"]).encode())) for tensor in outputs]
    parts += [_bytes(7, _raw(tensor)) for tensor in inputs]
    return b"".join(parts)


def _tensor(tensor: dict[str, Any]) -> bytes:
    name, kind, shape = tensor.get("name"), tensor.get("datatype"), tensor.get("shape")
    if not isinstance(name, str):
        raise ValueError("an input has no name")
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"the shape of input {name} is not a list of sizes")
    return _bytes(1, name.encode()) + _bytes(2, str(kind).encode()) + _bytes(3, b"".join(map(_varint, shape)))


def _raw(tensor: dict[str, Any]) -> bytes:
    name, kind, data = tensor["name"], tensor.get("datatype"), tensor.get("data")
    if data is None:
        raise ValueError(f"input {name} has no data")
    if kind == "BYTES":
        texts = [str(element).encode() for element in np.asarray(data, object).ravel()]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the datatype of input {name} is {kind!r}; known are BYTES, {', '.join(KINDS)}")
    try:
        with np.errstate(over="raise"):
            return np.array(data, KINDS[kind]).tobytes()
    except (ValueError, TypeError, ArithmeticError):
        raise ValueError(f"the data of input {name} is not of datatype {kind}") from None


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length, each with its number; the others are passed over."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            _, position = _read_varint(message, position)
        elif kind == _LENGTH:
            length, position = _read_varint(message, position)
            end = position + length
            if end > len(message):
                raise ValueError("a field goes beyond the message")
            yield tag >> 3, message[position:end] if tag >> 3 == 1 else b""
            position = end
        elif kind in (_I64, _I32):
            position += 8 if kind == _I64 else 4
        else:
            raise ValueError("no such kind of field")


def _read_varint(message: bytes, begin: int) -> tuple[int, int]:
    """The number that begins there, and where the next thing does."""
    value = 0
    for step, byte in enumerate(message[begin : begin + 10]):
        value |= (byte & 127) << (7 * step)
        if byte < 128:
            return value, begin + step + 1
    raise ValueError("a number does not end")


def _varint(value: int) -> bytes:
    low_bytes = bytearray()
    while value > 127:
        low_bytes.append(value & 127 | 128)
        value >>= 7
    return bytes([*low_bytes, value])


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(value)) + value
