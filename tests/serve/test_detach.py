"""A deployment in a session of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.serve.detach import EndedError, detach
from gpuloom.serve.state import State

SERVES = """
import os, sys, time
from pathlib import Path
from gpuloom.serve.state import Record, State
with State(Path(sys.argv[1])) as state:
    state.publish(Record(os.getpid(), "127.0.0.1", 1, 1.0, True, ()))
    time.sleep(600)
"""


STARTS = """
import sys
from pathlib import Path
from gpuloom.serve.detach import detach
from gpuloom.serve.state import State
print(detach([sys.executable, "-c", *sys.argv[2:]], State(Path(sys.argv[1]))).pid)
"""


def test_it_serves_after_the_one_who_started_it_has_gone(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    folder = str(state.folder)
    done = subprocess.run([sys.executable, "-c", STARTS, folder, SERVES, folder], capture_output=True, check=True)
    try:
        assert state.record().pid == int(done.stdout)
        with pytest.raises(InputError, match="something is served there already"):
            detach(["true"], state)
    finally:
        assert state.take_down()
    assert (state.folder / "serve.log").read_text() == ""


@pytest.mark.parametrize(("end", "code"), [("sys.exit('no such plan')", 1), ("print('no such plan'); sys.exit(2)", 2)])
def test_one_that_ends_before_it_serves_says_why(tmp_path: Path, end: str, code: int) -> None:
    with pytest.raises(EndedError, match=r"^no such plan$") as ended:
        detach([sys.executable, "-c", f"import sys; {end}"], State(tmp_path))
    assert ended.value.code == code


def test_one_that_ends_well_without_having_served_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(EndedError) as ended:
        detach([sys.executable, "-c", ""], State(tmp_path))
    assert ended.value.code == 1
