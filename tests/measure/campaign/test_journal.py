"""Runs are kept whole, or not at all; the table is read as it was written."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.campaign.journal import Journal
from gpuloom.measure.campaign.order import Run
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.table import COLUMNS, from_csv, to_csv

texts = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=30)
figures = st.none() | st.floats(0.001, 1e9) | st.integers(0, 10**6).map(float)
seats = st.builds(Seat, texts, st.none() | st.sampled_from(["1g.5gb", "3c"]), st.floats(1, 100))
copies = st.builds(
    Copy,
    run=st.integers(0, 999),
    arrangement=texts,
    way=st.sampled_from(Way),
    copies=st.integers(1, 48),
    copy=st.integers(0, 47),
    repetition=st.integers(0, 99),
    seat=seats,
    outcome=st.sampled_from(Outcome),
    said=st.none() | texts,
    warm_up_steps=st.none() | st.integers(0, 999),
    steps=st.none() | st.integers(1, 999),
    seconds=figures,
    step_ms=figures,
    step_p95_ms=figures,
    host_cpus=figures,
    power_w=figures,
    gract=st.none() | st.floats(0, 1),
)
runs = st.builds(
    Run,
    st.integers(0, 999),
    st.builds(Arrangement, st.sampled_from(Way), st.tuples(seats)),
    st.integers(0, 9),
    st.floats(0, 1e6),
    st.tuples(copies, copies),
)


@given(st.lists(copies, max_size=5))
def test_a_table_is_read_as_it_was_written(rows: list[Copy]) -> None:
    text = to_csv(rows)
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert from_csv(text, "x.csv") == rows


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "x.csv: has no column run; expected a table that gpuloom measure wrote"),
        (
            ",".join(COLUMNS) + "\n" + "," * (len(COLUMNS) - 1) + "\n",
            "x.csv: line 2: way is ''; accepted are whole, cut",
        ),
        (",".join(COLUMNS) + "\nx,a,cut\n", "x.csv: line 2: run is 'x', but must be a number"),
        (
            ",".join(COLUMNS) + "\n0," + "a" * 200_000 + "\n",
            "x.csv: after line 1 it is not CSV (field larger than field limit (131072)); expected a table that gpuloom",
        ),
        (",".join(COLUMNS) + "\n,a,cut,1,0,0,w,,100,ok\n", "x.csv: line 2: run is empty, but must have a value"),
    ],
)
def test_another_table_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        from_csv(text, "x.csv")
    assert str(error.value).startswith(sentence)


@settings(max_examples=30)
@given(st.lists(runs, min_size=1, max_size=4), st.data())
def test_a_torn_line_is_dropped_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, told: list[Run], data: st.DataObject
) -> None:
    path: Path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    with Journal(path) as journal:
        for run in told:
            journal.write(run)
    whole = path.read_bytes()
    with Journal(path) as journal:
        assert journal.runs == told
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(whole[: data.draw(st.integers(last, len(whole) - 1))])
    with Journal(path) as journal:
        assert journal.runs == told[:-1]
        journal.write(told[-1])
    assert path.read_bytes() == whole


def test_a_damaged_line_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("{}\n")
    with pytest.raises(InputError, match="line 1 is not a run that gpuloom has measured"), Journal(path):
        pass
