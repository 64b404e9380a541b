"""What is said of a run before it begins: what, why, and how many are to come."""

from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from gpuloom.cli.measure.measure_progress import Bar, Lines
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.campaign.order import Ahead, Next

ARRANGEMENT = Arrangement(Way.CUT, (Seat("train", "3g.20gb"),))


@pytest.mark.parametrize(
    ("chosen", "ahead", "line"),
    [
        (Next(0, ARRANGEMENT, 0), Ahead(9, None), "run 0: train on 3g.20gb; 9 runs or more to go"),
        (
            Next(2, ARRANGEMENT, 0, "with it the choice is expected to be 3.1 % better"),
            Ahead(2, 61.0, at_most=True),
            "run 2: train on 3g.20gb (with it the choice is expected to be 3.1 % better); at most 2 runs to go, "
            "about 1 min 01 s",
        ),
    ],
)
def test_a_run_begins(capsys: pytest.CaptureFixture[str], chosen: Next, ahead: Ahead, line: str) -> None:
    Lines().begins(chosen, ahead)
    assert capsys.readouterr().err == f"{line}\n"


def test_why_stands_above_the_bar_which_has_no_room_for_it() -> None:
    out = StringIO()
    with Progress(console=Console(file=out, width=80, force_terminal=True), transient=True) as progress:
        Bar(progress).begins(Next(2, ARRANGEMENT, 0, "as nothing is known"), Ahead(2, 61.0, at_most=True))
        assert progress.tasks[0].description == "train on 3g.20gb; at most 2 runs to go, about 1 min 01 s"
    assert "run 2: train on 3g.20gb (as nothing is known)" in out.getvalue()
