"""Kernel profiles: written and read back, and every way in which a file can be wrong."""

import os
import resource
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.kernels.profile import Kernel, Launch, Profile, Run, period, read_profile, write_profile
from gpuloom.kernels.record import devices_of, read_records, runs_of

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


KERNELS = {7: Kernel(7, "conv", "64x64", "16x1"), 8: Kernel(8, "void f(int, float)", "-", "-")}
LAUNCHES = (Launch(7, 1000, 1200, 0, False, 50), Launch(8, 300, 400, 2000, True, 10))
SMALL = Profile("prog --x", KERNELS, (Run(LAUNCHES),))


def written(tmp_path: Path) -> Path:
    write_profile(SMALL, tmp_path / "a.kprof")
    return tmp_path / "a.kprof"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.kprof"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_profile(SMALL, pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    copy.write_bytes(os.read(reader, 65536))
    os.close(reader)
    assert read_profile(copy) == SMALL


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    if there:
        (folder / "target").write_text("old")
    (tmp_path / "link").symlink_to(folder / "target")
    write_profile(SMALL, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert read_profile(folder / "target") == SMALL
    assert [path.name for path in folder.iterdir()] == ["target"]


def test_what_cannot_be_written_whole_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """As on a full disk."""
    (tmp_path / "a.kprof").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(InputError, match=r"a\.kprof: File too large: expected a place"):
            write_profile(SMALL, tmp_path / "a.kprof")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.kprof", "old")]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for place in ("none/a.kprof", "circle", "."):
        with pytest.raises(InputError, match="expected a place where the profile can be written"):
            write_profile(SMALL, tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["circle"]


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
        ("launch\t0\t1000", "launch\t5\t1000", "line 9: '5': expected a whole number from 0 to 1$"),
        ("launch\t0\t1000", "launch\t0\t-5", "line 9: '-5': expected a whole number from 0 to 9223372036854775807$"),
        ("launch\t0\t1000", "launch\t0\tlong", "line 9: 'long': expected a whole number"),
        ("launch\t0\t1000", "launch\t0\t9223372036854775808", "line 9: '9223372036854775808': expected"),
        ("launch\t0\t1000", "launch\t0\t" + "9" * 5000, "line 9: '9{40}': expected a whole number"),
        ("launch\t0\t1000", "launch\t0\t1_0", "line 9: '1_0': expected a whole number"),
        ("launch\t0\t1000\t1200\t0\t0", "launch\t0\t1000\t1200\t0\t2", "line 9: '2': expected a whole number from 0"),
        ("launch\t0\t1000", "launch\t1000", "line 9: 5 columns after 'launch': expected 6"),
        ("run\t2\n", "", "line 8: expected a 'kernel' and a 'run' line before the first launch"),
        ("kernel\t0000000000000007", "kernel\tfffffffffffffffff", "line 5: id 'fffffffffffffffff': expected up to 16"),
        ("kernel\t0000000000000007", "kernel\t-7", "line 5: id '-7': expected up to 16 hexadecimal digits"),
        ("kernel\t0000000000000007\t1", "kernel\t0000000000000007\tx", "line 5: 'x': expected a whole number"),
        ("\t64x64", "", "line 5: 16 columns after 'kernel': expected 17"),
        ("run\t2", "walk\t2", "line 8: 'walk': expected source, device, note, kernel, run, launch or end"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = written(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=says):
        read_profile(path)


def test_the_largest_numbers_are_read_back(tmp_path: Path) -> None:
    most = 2**63 - 1
    kernel = Kernel(2**64 - 1, "k", "-", "-")
    launches = (Launch(kernel.id, most, most, most, True, most),) * 2
    profile = Profile("prog", {kernel.id: kernel}, (Run(launches),))
    write_profile(profile, tmp_path / "a.kprof")
    assert read_profile(tmp_path / "a.kprof") == profile


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a kernel profile"):
        read_profile(tmp_path / "none.kprof")
    (tmp_path / "binary.kprof").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.kprof: is not text: expected a kernel profile$"):
        read_profile(tmp_path / "binary.kprof")


@given(one=st.lists(st.integers(1, 5), min_size=1, max_size=6), times=st.integers(3, 30))
def test_the_period_divides_what_was_repeated(one: list[int], times: int) -> None:
    found = period(one * times)
    assert len(one) % found == 0
    assert (one * times)[:found] * (len(one) // found) == one


def test_what_never_repeats_is_one_request() -> None:
    assert period([1, 2, 3, 4, 5]) == 5


def test_the_sequence_of_a_request_is_told_by_the_kernels_places_in_the_file() -> None:
    """The first of enough requests may be another one: here it lacks a kernel, so all after it come one earlier."""
    again = (LAUNCHES[0], LAUNCHES[0], LAUNCHES[1])
    profile = Profile("prog", {8: KERNELS[8], 7: KERNELS[7]}, (Run(LAUNCHES[:1]), Run(again[1:] + again * 30)))
    assert profile.period() == 3
    assert profile.sequence() == [1, 0, 1]
    assert SMALL.sequence() == [0, 1]


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


def test_the_devices_of_a_record_are_told_and_are_no_kernels(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("device\tA CPU (x)\n" + RECORDS + "\ndevice\tA CPU (x)\ndevice\tanother\n")
    assert devices_of(tmp_path / "records") == {"A CPU (x)", "another"}
    assert len(read_records(tmp_path / "records")) == 4
    (tmp_path / "older").write_text(RECORDS)
    assert devices_of(tmp_path / "older") == set()
