"""Where steps are read: what is new, once, whatever else a job writes."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.live.store import Launch
from gpuloom.measure.campaign.listen import MOST_LINE, Output, OwnFile, Report, Tail, last_step


def test_a_report_is_heard_once_with_its_own_time(tmp_path: Path) -> None:
    listener = Report(Launch(tmp_path, 1, 1, None))
    assert listener.hear() == []
    listener._begun_s = 5.0
    for step, at_s in ((0, 10.0), (0, 11.0), (4, 12.0)):
        told = {"step": step, "at_unix_s": 1.0, "at_monotonic_s": at_s}
        (tmp_path / "progress").write_text(json.dumps(told))
        heard = listener.hear()
        assert [(one.step, one.at_s) for one in heard] == ([] if at_s == 11.0 else [(step, at_s)])
    assert listener.late_s == 0.0
    (tmp_path / "progress").write_text(json.dumps({"step": 5, "at_unix_s": 1.0, "at_monotonic_s": 1e12}))
    (heard_now,) = listener.hear()
    assert heard_now.at_s < 1e12, "a time that has not come is not believed"
    assert listener.late_s > 0


def test_a_clock_that_stands_still_is_not_believed(tmp_path: Path) -> None:
    listener = Report(Launch(tmp_path, 1, 1, None))
    listener._begun_s = 5.0
    heard = []
    for step in range(3):
        (tmp_path / "progress").write_text(json.dumps({"step": step, "at_unix_s": 1.0, "at_monotonic_s": 10.0}))
        heard += listener.hear()
    assert heard[0].at_s == 10.0
    assert heard[0].at_s < heard[1].at_s < heard[2].at_s


@pytest.mark.parametrize(("number", "odd"), [(-5, "-5"), (10**16, "10000000000000000")])
def test_a_number_that_is_no_step_is_remembered(tmp_path: Path, number: int, odd: str) -> None:
    (tmp_path / "progress").write_text(json.dumps({"step": number, "at_unix_s": 1.0}))
    (tmp_path / "own").write_text(json.dumps({"step": number}))
    (tmp_path / "out").write_text(f"step {number}\n")
    listeners = (
        Report(Launch(tmp_path, 1, 1, None)),
        OwnFile(tmp_path / "own"),
        Output([tmp_path / "out"], r"step (\S+)"),
    )
    for listener in listeners:
        assert listener.hear() == []
        assert listener.odd == odd


@pytest.mark.parametrize(
    ("expression", "text", "steps"),
    [
        (r"step (\d+)", "step 1 of 9\nnothing\nstep 2 step 3\n", [1, 2, 3]),
        (r"loss", "loss 3\nloss 2\n\nloss 1\n", [1, 2, 3]),
        (r"it (\S+)", "it 1,000\nit 2e3\nit is\nit 1e999\nit -4\n", [1000, 2000]),
        (r"(\d+)/100", "\r 1/100\r 2/100\r 3/100\n", [1, 2, 3]),
        (r"a(\d)?b", "ab a1b\n", [1]),
    ],
)
def test_lines_of_output(tmp_path: Path, expression: str, text: str, steps: list[int]) -> None:
    path = tmp_path / "out.log"
    listener = Output([path, tmp_path / "err.log"], expression)
    assert listener.hear() == []
    path.write_text(text)
    assert [one.step for one in listener.hear()] == steps
    assert listener.hear() == []


def test_steps_in_both_outputs_are_told_once_and_in_order(tmp_path: Path) -> None:
    """However they lie between two looks, and whichever output is late."""
    out, err = tmp_path / "out.log", tmp_path / "err.log"
    listener = Output([out, err], r"step (\d+)")
    heard = []
    for lines in (("1 2 3", "1 2"), ("", "3"), ("4 5", ""), ("6", "4 5 6 7"), ("7", "")):
        for path, steps in zip((out, err), lines, strict=True):
            with path.open("a") as file:
                file.writelines(f"step {step}\n" for step in steps.split())
        heard += [one.step for one in listener.hear()]
    assert sorted(heard) == heard
    assert set(heard) == {1, 2, 3, 4, 5, 6, 7}
    with out.open("a") as file:
        file.write("step 2\n")
    assert [one.step for one in listener.hear()] == [2], "that is a step back"


def test_an_expression_that_finds_no_end_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("a" * 60 + "!\n")
    listener = Output([path], "(a+)+$")
    assert listener.hear() == []
    assert listener.trouble is not None
    assert listener.trouble.startswith("in what it printed its steps could not be found within 1 s of CPU time")
    assert listener.hear() == []
    other = Output([path], "a!")
    assert [one.step for one in other.hear()] == [1], "of the clock nothing is left"


@given(
    st.lists(st.binary(max_size=40).filter(lambda data: b"\n" not in data and b"\r" not in data), max_size=20),
    st.data(),
)
def test_a_tail_gives_every_whole_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("t") / "out.log"
    tail, found = Tail(path), list[str]()
    written = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=4)))
    for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        with path.open("ab") as file:
            file.write(written[begin:end])
        if data.draw(st.booleans()):
            found += tail.lines()
    found += tail.lines()
    wanted = [line.decode(errors="replace") for line in lines]
    assert [line for line in found if line] == [line for line in wanted if line]


def test_a_tail_follows_its_file_when_that_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    tail = Tail(path)
    path.write_text("one\n")
    assert tail.lines() == ["one"]
    with path.open("a") as file:
        file.write("two\n")
        path.rename(tmp_path / "out.log.1")
    path.write_text("three\n")
    assert tail.lines() == ["two"]
    assert tail.lines() == ["three"]


def test_a_tail_neither_waits_nor_grows(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder", "nothing"):
        assert Tail(tmp_path / name).lines() == []
    (tmp_path / "long").write_bytes(b"x" * (1 << 20))
    tail = Tail(tmp_path / "long")
    assert tail.lines() == []
    assert len(tail._rest) == MOST_LINE


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("17", 17),
        ("step 17 of 20\n", 17),
        ('{"step": 3}\n{"step": 4, "loss": 0.5}\n', 4),
        ("1\n2\n3\n\n", 3),
        ("", None),
        ("nothing", None),
        ('{"loss": 4}', None),
        ('{"step": 1.5}', None),
        ('{"step": -3}', None),
        ("[" * 100_000, None),
    ],
)
def test_the_step_in_a_progress_file(text: str, step: int | None) -> None:
    assert last_step(text) == step


def test_a_progress_file_is_heard_when_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    listener = OwnFile(path)
    assert listener.hear() == []
    path.write_text("3")
    assert [one.step for one in listener.hear()] == [3]
    assert listener.hear() == []
    path.write_text('{"step": 12}')
    assert [one.step for one in listener.hear()] == [12]
    path.unlink()
    path.mkdir()
    assert listener.hear() == []
