"""Kernel profiles: written and read back, and every way in which a file can be wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run, period, read_profile, write_profile
from gpuloom.kernels.record import read_records, runs_of

names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
numbers = st.integers(0, 10**12)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    ids = draw(st.lists(st.integers(1, 2**64 - 1), min_size=1, max_size=5, unique=True))
    kernels = {one: Kernel(one, draw(names), "4x4", "-") for one in ids}
    launch = st.builds(Launch, st.sampled_from(ids), numbers, numbers, numbers, st.booleans(), numbers)
    runs = draw(
        st.lists(st.builds(lambda all_: Run(tuple(all_)), st.lists(launch, min_size=1, max_size=8)), min_size=1)
    )
    return Profile(draw(names), kernels, tuple(runs), draw(names), tuple(draw(st.lists(names, max_size=2))))


@given(profile=profiles())
def test_a_profile_is_read_as_it_was_written(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("profile") / "a.kprof"
    write_profile(profile, path)
    assert read_profile(path) == profile


def written(tmp_path: Path) -> Path:
    kernels = {7: Kernel(7, "conv", "64x64", "16x1"), 8: Kernel(8, "void f(int, float)", "-", "-")}
    launches = (Launch(7, 1000, 1200, 0, False, 50), Launch(8, 300, 400, 2000, True, 10))
    write_profile(Profile("prog --x", kernels, (Run(launches),)), tmp_path / "a.kprof")
    return tmp_path / "a.kprof"


def test_every_cut_of_a_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_text()
    for length in range(len(text) - len("end\t\n") + 1):
        path.write_text(text[:length])
        with pytest.raises(InputError, match=r"a\.kprof"):
            read_profile(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpuloom-kernel-profile\t1", "gpuloom-kernel-profile\t2", "version '2'"),
        ("gpuloom-kernel-profile", "something", "is no kernel profile"),
        ("launch\t0\t1000", "launch\t5\t1000", "line 9"),
        ("launch\t0\t1000", "launch\t0\t-5", "line 9: a negative number"),
        ("launch\t0\t1000", "launch\t0\tlong", "line 9"),
        ("run\t2", "walk\t2", "'walk' is no kind of line"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=says):
        read_profile(path)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a kernel profile"):
        read_profile(tmp_path / "none.kprof")
    (tmp_path / "binary.kprof").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="expected a kernel profile"):
        read_profile(tmp_path / "binary.kprof")


@given(one=st.lists(st.integers(1, 5), min_size=1, max_size=6), times=st.integers(3, 30))
def test_the_period_divides_what_was_repeated(one: list[int], times: int) -> None:
    found = period(one * times)
    assert len(one) % found == 0
    assert (one * times)[:found] * (len(one) // found) == one


def test_what_never_repeats_is_one_request() -> None:
    assert period([1, 2, 3, 4, 5]) == 5


RECORDS = """0\t00000000000000aa\t1000\t5000\t3000\t0\t64\t16\tconv
0\t00000000000000bb\t2000\t9000\t3500\t0\t-\t-\tmatmul
1\t00000000000000aa\t2500\t9500\t400\t1\t64\t16\tconv
0\t00000000000000aa\t12000\t14000\t1500\t1\t64\t16\tconv
0\t00000000000000aa\t13000\t16"""


def test_records_become_a_run_for_each_queue(tmp_path: Path) -> None:
    """By hand: the second kernel could start when the first ended; the third was launched 3000 ns after a wait."""
    (tmp_path / "records").write_text(RECORDS)
    kernels, runs = runs_of(read_records(tmp_path / "records"))
    assert kernels[0xAA] == Kernel(0xAA, "conv", "64", "16")
    assert runs == [
        Run(
            (
                Launch(0xAA, 3000, 4000, 0, False, 0),
                Launch(0xBB, 3500, 4000, 1000, False, 3000),
                Launch(0xAA, 1500, 2000, 3000, True, 0),
            )
        ),
        Run((Launch(0xAA, 400, 7000, 0, True, 0),)),
    ]
