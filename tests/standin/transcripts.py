"""Transcripts of the self-test: read, and told apart. The format is in docs/selftest.md."""

import difflib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gpuloom.gpus.host.selftest.transcript import FORMAT, VERSION


class TranscriptError(Exception):
    """A file is not a transcript that can be used; the text says why, in a sentence."""


class CallTold(BaseModel):
    model_config = ConfigDict(extra="forbid")
    call: str
    args: list[Any]
    code: int
    us: int
    answer: Any
    waiting: bool


class PartTold(BaseModel):
    part: str
    verdict: str
    detail: str
    seconds: float
    facts: dict[str, Any]
    calls: list[CallTold]


class Told(BaseModel):
    format: str
    version: int
    gpuloom: str
    gpu: int
    stopped: str | None
    interrupted: bool
    parts: list[PartTold]

    def facts(self, part: str) -> dict[str, Any]:
        """What a part found; empty if there was none."""
        return next((each.facts for each in self.parts if each.part == part), {})


def read_transcript(path: Path) -> Told:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TranscriptError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise TranscriptError(f"{path}: is not whole: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise TranscriptError(f"{path}: is not a transcript of `gpuloom doctor --selftest`")
    if told.get("version") != VERSION:
        raise TranscriptError(f"{path}: has version {told.get('version')} of the format; accepted is {VERSION}")
    try:
        return Told.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        raise TranscriptError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def differences(one: Told, other: Told) -> list[str]:
    """What is in only one of them, times and how often was asked while waiting aside."""
    changes = difflib.unified_diff(_lines(one), _lines(other), n=0, lineterm="")
    return [line for line in changes if line[:1] in "+-" and line.rstrip() not in ("---", "+++")]


def _lines(told: Told) -> list[str]:
    lines = [f"stopped: {told.stopped}"]
    for part in told.parts:
        lines.append(f"{part.part}: {part.verdict}")
        lines += [f"{part.part}: {name} = {json.dumps(fact)}" for name, fact in _lasting(part.facts).items()]
        for call in part.calls:
            if not call.waiting:
                asked = f"{call.call}({', '.join(map(json.dumps, call.args))})"
                lines.append(f"{part.part}: {asked}: {call.code} {json.dumps(call.answer)}")
    return lines


def _lasting(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if name != "seconds" and not name.endswith("_s")}
