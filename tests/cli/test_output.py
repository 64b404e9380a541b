"""Tables on terminals of every width, and text that others have written."""

import io
import re
import sys

import pytest

from gpuloom.cli.output import Output, emit

ROWS: list[dict[str, object]] = [
    {
        "workload": "a rather long name",
        "arrangement": "7 x 1g.5gb",
        "copy": copy,
        "step_ms": 102.105 + copy,
        "mem_peak_mib": 12345.5,
        "said": "it ended after step 12 with exit code 3, its last words: ValueError: the loss is NaN",
    }
    for copy in range(2)
]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, width: int, rows: list[dict[str, object]]) -> str:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    emit(rows, Output.table, spare=("mem_peak_mib", "step_ms"))
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())  # bold


@pytest.mark.parametrize(
    ("width", "there", "left_out"),
    [
        (200, ("12,345.5", "103.105"), ()),
        (80, ("12,345.5", "103.105"), ()),
        (70, ("103.105",), ("mem_peak_mib",)),
        (52, ("arrangement",), ("mem_peak_mib", "step_ms")),
    ],
)
def test_no_number_is_folded(
    monkeypatch: pytest.MonkeyPatch, width: int, there: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    text = shown(monkeypatch, width, ROWS)
    assert all(word in text for word in there)
    assert not any(word in text for word in left_out)
    assert max(map(len, text.splitlines())) <= width


def test_where_nothing_fits_lines_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 30, ROWS)
    assert len(text.splitlines()) == 3
    assert "7 x 1g.5gb" in text.splitlines()[1]


@pytest.mark.parametrize("output", [Output.table, Output.csv])
def test_what_others_wrote_does_nothing_to_a_terminal(monkeypatch: pytest.MonkeyPatch, output: Output) -> None:
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    emit([{"name": "a\x1b[2J\x07b", "of": ["c\x9b"]}], output)
    assert "a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}b" in text.getvalue()
    assert not set("\x1b\x07\x9b") & set(text.getvalue())
