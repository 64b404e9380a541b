"""Models for servers that take as long as they are told, and one ONNX file."""

import json
import struct
import sys
from pathlib import Path

CONFIG = 'backend: "python"\nmax_batch_size: 16\n'
SHAPE = 64, 10


def fake_program(folder: Path) -> Path:
    program = folder / "tritonserver"
    source = Path(__file__).with_name("fake_triton.py").read_text()
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(0o755)
    return program


def fake_model(folder: Path, name: str, fixed_ms: float = 4.0, each_ms: float = 2.0, **more: object) -> str:
    place = folder / "given" / name
    (place / "1").mkdir(parents=True)
    (place / "config.pbtxt").write_text(CONFIG)
    (place / "behaviour.json").write_text(json.dumps({"fixed_ms": fixed_ms, "each_ms": each_ms, **more}))
    return str(place)


def onnx_file(path: Path) -> Path:
    """y = x @ w, written as protobuf by hand: x is [N, 64], w all ones, y [N, 10]."""
    rows, columns = SHAPE
    weights = struct.pack(f"<{rows * columns}f", *[1.0] * (rows * columns))
    tensor = _number(1, rows) + _number(1, columns) + _number(2, 1) + _part(8, b"w") + _part(9, weights)
    node = _part(1, b"x") + _part(1, b"w") + _part(2, b"y") + _part(4, b"MatMul")
    ends = _part(11, _told(b"x", rows)) + _part(12, _told(b"y", columns))
    graph = _part(1, node) + _part(2, b"g") + _part(5, tensor) + ends
    path.write_bytes(_number(1, 8) + _part(7, graph) + _part(8, _number(2, 13)))
    return path


def _told(name: bytes, size: int) -> bytes:
    shape = _part(1, _part(2, b"N")) + _part(1, _number(1, size))
    return _part(1, name) + _part(2, _part(1, _number(1, 1) + _part(2, shape)))


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _part(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
