"""What a campaign was begun with, and what its commands are when it goes on."""

import subprocess
from dataclasses import replace
from pathlib import Path

from gpuloom.measure.campaign.asked import Asked, Code, DeviceFacts, LaterCode, code_in, goes_on_with
from gpuloom.measure.plan import Plan, Ways, Workload

FIRST, SECOND = Code("1" * 40, changed=False), Code("2" * 40, changed=False)
DEVICE = DeviceFacts("GPU-1", "NVIDIA A100", "A100-40GB", 40960, None)
BEGUN = Asked(
    Plan((Workload("a", ("x",)),), (Ways.ALONE,)), DEVICE, (), "/", 0, 1.0, 0.0, FIRST, noise=None, host_cpus=2
)


def test_other_code_is_kept_with_its_first_run() -> None:
    assert goes_on_with(BEGUN, FIRST, 3) == BEGUN
    later = goes_on_with(BEGUN, SECOND, 3)
    assert later.later_code == (LaterCode(3, SECOND),)
    assert goes_on_with(later, SECOND, 5) == later
    assert goes_on_with(later, FIRST, 5).later_code == (LaterCode(3, SECOND), LaterCode(5, FIRST))
    assert goes_on_with(later, None, 5).later_code[1] == LaterCode(5, None)


def test_code_of_no_run_is_forgotten() -> None:
    assert goes_on_with(goes_on_with(BEGUN, SECOND, 3), FIRST, 3) == BEGUN
    assert goes_on_with(BEGUN, SECOND, 0) == replace(BEGUN, code=SECOND)


def test_the_code_of_a_working_directory(tmp_path: Path) -> None:
    assert code_in(str(tmp_path)) is None
    program = tmp_path / "train.py"
    commit(program, "0.1")
    clean = code_in(str(tmp_path))
    assert clean is not None
    assert (clean.changed, clean.changes) == (False, None)
    program.write_text("0.2")
    edited = code_in(str(tmp_path))
    program.write_text("0.3")
    again = code_in(str(tmp_path))
    assert edited is not None
    assert again is not None
    assert (edited.commit, edited.changed, again.commit) == (clean.commit, True, clean.commit)
    assert edited.changes != again.changes, "another edit is other code"
    assert str(again) == f"commit {clean.commit[:12]} with changes"


def commit(path: Path, text: str) -> None:
    path.write_text(text)
    for words in (["init", "-q"], ["add", path.name], [*IDENTITY, "commit", "-q", "-m", "as it is"]):
        subprocess.run(["git", "-C", str(path.parent), *words], check=True)


IDENTITY = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
