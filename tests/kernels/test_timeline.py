import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.kernels.profile import LOOKED_AT, Kernel, Launch, Profile, Run
from gpuloom.kernels.record import Record, runs_of
from gpuloom.kernels.timeline import MOST_BARS, WIDTH_PX, _time, page, placed
from tests.pages.seen import Seen

US = 1_000
KERNELS = {number: Kernel(number, f"k{number}", "64", "8") for number in range(1, 2001)}


def profile(launches: list[Launch], source: str = "python serve.py", notes: tuple[str, ...] = ()) -> Profile:
    used = {launch.kernel: KERNELS[launch.kernel] for launch in launches}
    return Profile(source, used, (Run(tuple(launches)),), "PoCL", notes)


def request() -> list[Launch]:
    return [
        Launch(1, 20 * US, 26 * US, 30 * US, True, 5 * US),
        Launch(2, 40 * US, 41 * US, 12 * US, False, 0),
        Launch(3, 9 * US, 9 * US, 3 * US, False, 30 * US),
    ]


def edges(rect: dict[str, str | None]) -> tuple[float, float]:
    """From where to where a bar goes, in percent of the picture."""
    left, width = (float((rect[name] or "").removesuffix("%")) for name in ("x", "width"))
    return left, left + width


def test_each_launch_of_the_first_requests_is_a_bar_and_its_gap_is_beside_it() -> None:
    tags = Seen(page(profile(request() * 10)))
    ran, gaps = tags.of("rect", "ran"), tags.of("rect", "gap")
    assert len(ran) == 4 * 3
    assert len(gaps) == 4 * 2
    assert len(tags.of("rect", "held")) == 4 * 2
    # In a row: held, ran, gap, ran, ran, gap; a bar starts where the one before it ended.
    assert edges(gaps[0])[0] == pytest.approx(edges(ran[0])[1], abs=0.02)
    assert edges(ran[2])[0] == pytest.approx(edges(ran[1])[1], abs=0.02)


def test_what_was_recorded_is_counted() -> None:
    once = profile(request() * 10)
    assert "PoCL · 1 queue recorded · 30 launches of 3 kernels" in page(once)
    twice = Profile(once.source, once.kernels, once.runs * 2, once.device)
    assert "PoCL · 2 queues recorded · 60 launches of 3 kernels" in page(twice)


def test_the_widths_are_the_times() -> None:
    tags = Seen(page(profile(request() * 10)))
    wide = [right - left for left, right in map(edges, tags.of("rect", "ran")[:3])]
    assert wide[1] / wide[0] == pytest.approx(40 / 20, rel=0.01)
    assert wide[1] / wide[2] == pytest.approx(40 / 9, rel=0.01)


def test_tooltips_name_the_kernel_the_time_and_the_gap() -> None:
    titles = Seen(page(profile(request() * 10))).said("title")
    assert "k2\n64 / 8\nran 40 µs" in titles
    assert "gap of 30 µs" in titles
    assert "the host: 30 µs, after waiting for results" in titles


def test_the_histograms_count_every_launch_once() -> None:
    late = Launch(3, 9 * US, 9 * US, 3 * US, False, 30_000 * US)
    titles = Seen(page(profile([*request()[:2], late] * 10))).said("title")
    counted = [int(found[1]) for title in titles if (found := re.fullmatch(r".* to .*: (\d+)", title))]
    kernels, gaps = counted[: len(counted) // 2], counted[len(counted) // 2 :]
    assert sum(kernels) == 30
    assert sum(gaps) == 20


def test_the_longest_kernels_have_colours_and_the_table_has_them_all() -> None:
    text = page(profile(request() * 10))
    assert text.index("k2</span>") < text.index("k1</span>") < text.index("k3</span>")
    assert "58.0 %" in text
    assert [rect["class"] for rect in Seen(text).of("rect", "ran")[:3]] == ["c1 ran", "c0 ran", "c2 ran"]


def test_a_request_too_long_to_look_at_is_cut_and_that_is_said() -> None:
    launches = [Launch(number, US, US, US, False, 0) for number in range(1, 2001)]
    text = page(profile(launches))
    assert len(Seen(text).of("rect", "ran")) == MOST_BARS
    assert "The first 1,200 of 2,000 launches." in text
    assert "And 1,970 more." in text


def test_a_few_launches_fit_the_screen_and_many_get_the_room_they_need() -> None:
    for count, width in ((100, None), (500, "3500")):
        launches = [Launch(number, US, US, US, False, 0) for number in range(1, count + 1)]
        picture, *_ = Seen(page(profile(launches))).of("svg", "drawing")
        assert picture.get("width") == width


def test_on_paper_a_long_picture_has_no_more_times_than_fit() -> None:
    seen = Seen(page(profile([Launch(number, US, US, US, False, 0) for number in range(1, 1001)])))
    times = [found for found in seen.of("text") if found["y"] == "0.8rem"]
    assert len(times) > 40
    assert len([found for found in times if "class" not in found]) <= 10


def test_a_long_run_without_repetition_is_one_request() -> None:
    dice = random.Random(1)
    launches = [Launch(dice.randrange(1, 9), US, US, US, False, 0) for _ in range(LOOKED_AT + 5)]
    text = page(profile(launches))
    assert "<dt>launches, which never repeat</dt><dd>20,005</dd>" in text
    assert "The first 1,200 of 20,005 launches." in text


def test_names_from_outside_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>"
    launch = Launch(7, US, US, 0, False, 0)
    text = page(Profile(evil, {7: Kernel(7, evil, evil, evil)}, (Run((launch,)),), evil, (evil,)))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_profile_without_launches_is_refused() -> None:
    with pytest.raises(InputError, match="has no launches"):
        page(Profile("x", {}, ()))
    with pytest.raises(InputError, match="has no launches"):
        page(Profile("x", {}, (Run(()),)))


lengths = st.integers(0, 10**11)
launches = st.builds(
    lambda kernel, ran, more, host, waited, gap: Launch(kernel, ran, ran + more, host, waited, gap),
    st.integers(1, 20), lengths, lengths, lengths, st.booleans(), lengths,
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(launches, min_size=1, max_size=60))
def test_any_profile_makes_a_whole_page_with_its_bars_in_the_picture(made: list[Launch]) -> None:
    text = page(profile(made))
    tags = Seen(text)
    assert "nan" not in text.partition("</head>")[2]
    assert text == page(profile(made))
    a_pixel = 100 / WIDTH_PX
    assert all(0 <= left <= right <= 100 + 2 * a_pixel for left, right in map(edges, tags.of("rect", "ran")))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 9), st.integers(1, 50), st.booleans()), min_size=1, max_size=20
    )
)
def test_times_are_rebuilt_as_they_were_recorded(made: list[tuple[int, int, int, bool]]) -> None:
    records: list[Record] = []
    launched = ended = 0
    for host, late, ran, waited in made:
        waited = waited and bool(records)
        launched = (ended if waited else launched) + (host if records else 0)
        ended = max(launched, ended) + late + ran
        records.append(Record(1, KERNELS[1], launched, ended, ran, waited))
    ((run,),) = [runs_of(records)[1]]
    assert [(one.launched_ns, one.ended_ns) for one in placed(run.launches)] == [
        (one.launched_ns, one.ended_ns) for one in records
    ]


@pytest.mark.parametrize(
    ("ns", "said"),
    [(0, "0 ns"), (999, "999 ns"), (1_000, "1 µs"), (12_340, "12.3 µs"), (4.5e6, "4.5 ms"), (9e12, "9,000 s")],
)
def test_times_have_the_unit_that_fits(ns: float, said: str) -> None:
    assert _time(ns) == said
