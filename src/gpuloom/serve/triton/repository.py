"""Triton's model repository: the configuration's text, and the folder of one server's one model.

Two kinds of model: the user's own, whose batching alone is ours to set, and the stand-in that takes measured times.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.work.source import read_text

CONFIG = "config.pbtxt"
STANDIN = Path(__file__).with_name("standin_model.py")
_OURS = ("max_batch_size", "dynamic_batching", "name")
"""Fields of a user's configuration that the plan decides."""


def batching_text(max_batch: int, delay_ms: float) -> str:
    """Of one instance of a model: the max batch is the only preferred size, as `perf.queueing.batching` has it."""
    delay_us = max(0, round(delay_ms * 1000.0))
    return f"max_batch_size: {max_batch}\ndynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}\n"


def standin_text(batch_ms: Sequence[float], max_batch: int, delay_ms: float, slowdown_file: Path) -> str:
    """The configuration of the stand-in; all times as they shall pass on the clock."""
    times = json.dumps([round(ms, 4) for ms in batch_ms[:max_batch]])
    return (
        'backend: "python"\n'
        + batching_text(max_batch, delay_ms)
        + 'input [{ name: "x" data_type: TYPE_FP32 dims: [1] }]\n'
        + 'output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]\n'
        + "instance_group [{ kind: KIND_CPU count: 1 }]\n"
        + _parameter("batch_ms", times)
        + _parameter("slowdown_file", str(slowdown_file))
    )


def with_batching(text: str, max_batch: int, delay_ms: float) -> str:
    """A user's configuration with the plan's batching in place of its own."""
    return "".join(f"{field.strip()}\n" for name, field in fields(text) if name not in _OURS) + batching_text(
        max_batch, delay_ms
    )


def write_standin(folder: Path, model: str, config: str) -> None:
    """A repository with the stand-in as its one model."""
    shutil.rmtree(folder, ignore_errors=True)
    version = folder / model / "1"
    version.mkdir(parents=True)
    shutil.copy(STANDIN, version / "model.py")
    (folder / model / CONFIG).write_text(config, encoding="utf-8")


def write_own(folder: Path, model: str, source: Path, max_batch: int, delay_ms: float) -> None:
    """A repository with the user's model as its one model: its files are linked, its configuration is written anew."""
    own = source / CONFIG
    text = read_text(own, "a Triton model's configuration")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / model).mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name != CONFIG:
            (folder / model / entry.name).symlink_to(entry.resolve())
    try:
        (folder / model / CONFIG).write_text(with_batching(text, max_batch, delay_ms), encoding="utf-8")
    except ValueError as error:
        raise InputError(f"{own}: {error}: expected a Triton model's configuration") from None


def _parameter(key: str, value: str) -> str:
    # JSON's escapes are those of protobuf's text form.
    return f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value)} }} }}\n"


def fields(text: str) -> list[tuple[str, str]]:
    """The fields at the top of a protobuf text, each with its name; ValueError if brackets or quotes do not close."""
    found: list[tuple[str, str]] = []
    position, begin, depth, name = 0, 0, 0, ""
    token = re.compile(r'\s+|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_][\w.]*|[\[{<]|[\]}>]|[^\s]')
    while position < len(text):
        match = token.match(text, position)
        assert match is not None, "the last alternative takes anything"
        word, here = match[0], position
        position = match.end()
        if word in ('"', "'"):
            raise ValueError("a quote that does not close")
        depth += (word in "[{<") - (word in "]}>") if len(word) == 1 else 0
        if depth < 0:
            raise ValueError("a bracket that closes nothing")
        starts = depth == 0 and re.fullmatch(r"[A-Za-z_][\w.]*", word) and re.match(r"\s*(:|[{<\[])", text[position:])
        if starts:
            if name:
                found.append((name, text[begin:here]))
            name, begin = word, here
    if depth:
        raise ValueError("a bracket that does not close")
    return [*found, (name, text[begin:])] if name else found
