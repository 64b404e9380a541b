"""How a copy's end becomes a row."""

import pytest

from gpuloom.measure.arrangement import Arrangement, Seat, Way
from gpuloom.measure.campaign.judge import Ended, Seen, by_the_right_clock, judge, window_of
from gpuloom.measure.campaign.order import Next
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.steps import Heard


def steady(steps: int, step_s: float = 0.1, begin_s: float = 0.0) -> list[Heard]:
    return [Heard(begin_s + step_s * step, step) for step in range(steps + 1)]


def misclocked(steps: int, told_s: float, step_s: float = 0.02) -> list[Heard]:
    """A clock that says `told_s` for steps of `step_s`."""
    return [Heard(1.0 + told_s * step, step, 1.0 + step_s * step) for step in range(steps + 1)]


def rows(*copies: Seen, stopped_s: float = 10.0) -> list[Copy]:
    arrangement = Arrangement(Way.TOGETHER, tuple(Seat("a") for _ in copies))
    copies = tuple(map(by_the_right_clock, copies))
    within = window_of(copies, stopped_s)
    return judge(Next(4, arrangement, 1), copies, within, stopped_s, 60.0, [0.0] * len(copies))


def test_all_is_well() -> None:
    one, other = rows(Seen(steady(80)), Seen(steady(50, 0.15), deaf=True))
    assert (one.outcome, one.said, one.run, one.repetition, one.copy) == (Outcome.OK, None, 4, 1, 0)
    assert (one.steps, one.warm_up_steps) == (80, 0)
    assert one.step_ms == pytest.approx(100)
    assert other.outcome is Outcome.OK
    assert other.said == "it did not end when it was asked to, and was killed"


@pytest.mark.parametrize(
    ("words", "code", "killed", "outcome"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", 1, False, Outcome.OUT_OF_MEMORY),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", -6, False, Outcome.OUT_OF_MEMORY),
        ("jaxlib: RESOURCE_EXHAUSTED: Out of memory while trying", 1, False, Outcome.OUT_OF_MEMORY),
        ("terminate called after throwing an instance of 'std::bad_alloc'", -6, False, Outcome.OUT_OF_MEMORY),
        ("", -9, True, Outcome.OUT_OF_MEMORY),
        ("", None, True, Outcome.OUT_OF_MEMORY),
        ("", -9, False, Outcome.CRASHED),
        ("", None, False, Outcome.CRASHED),
        ("KeyError: 'memory'", 1, False, Outcome.CRASHED),
    ],
)
def test_memory_is_told_apart(words: str, code: int | None, killed: bool, outcome: Outcome) -> None:
    (row,) = rows(Seen(steady(20), ended=Ended(code, 2.0, killed, f"before\n{words}\n\n")))
    assert row.outcome is outcome
    assert row.said is not None
    assert words[:20] in row.said or killed
    assert row.step_ms is None


SETTINGS = "config: on_out_of_memory=retry # CUDA out of memory handling\n"
FRAMES = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    train(out_of_memory="retry")\n'
)
OOM = f"{FRAMES}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (f"{SETTINGS}epoch 1\n{FRAMES}ValueError: bad label", Outcome.CRASHED),
        (f"{SETTINGS}epoch 1\nValueError: bad label", Outcome.CRASHED),
        (f"{SETTINGS}epoch 1\nthe label is bad", Outcome.CRASHED),
        (f"{FRAMES}ValueError: bad label\n{SETTINGS}", Outcome.CRASHED),
        (f"{FRAMES}KeyError: 7\nDuring handling of the above exception, another\n{FRAMES}ValueError", Outcome.CRASHED),
        (f"{OOM}trying half of the batch\n{FRAMES}mylib.BadLabel: 7", Outcome.CRASHED),
        (f"{SETTINGS}{OOM}", Outcome.OUT_OF_MEMORY),
        (f"{OOM}wandb: run 7 is over\nwandb: 3 files were synced", Outcome.OUT_OF_MEMORY),
        ("".join(f"[rank0]: {line}\n" for line in OOM.splitlines()), Outcome.OUT_OF_MEMORY),
        (
            f"{OOM}The above exception was the direct cause of the following exception:\n{FRAMES}RuntimeError: gave up",
            Outcome.OUT_OF_MEMORY,
        ),
        (f"{OOM}{FRAMES}subprocess.CalledProcessError: Command 'python' returned 1", Outcome.OUT_OF_MEMORY),
        (f"{SETTINGS}{FRAMES}subprocess.CalledProcessError: Command 'python' returned 1", Outcome.CRASHED),
        ("cudaMalloc failed: out of memory\nerror: the model is not loaded\nbye", Outcome.OUT_OF_MEMORY),
        ("terminate called\n  what():  CUDA out of memory\nframe #0: malloc", Outcome.OUT_OF_MEMORY),
    ],
)  # fmt: skip
def test_what_ended_it_decides_and_not_what_was_said_before(words: str, outcome: Outcome) -> None:
    (row,) = rows(Seen(steady(20), ended=Ended(1, 2.0, last_words=words)))
    assert row.outcome is outcome, row.said


def test_what_a_program_says_cannot_break_the_table() -> None:
    (row,) = rows(Seen([], ended=Ended(1, 1.0, last_words="\x1b[31m\x00 bad \r" + "x" * 5000)))
    assert row.said is not None
    assert row.said.isprintable()
    assert len(row.said) < 250


def test_the_first_that_ends_ends_the_window() -> None:
    """Figures up to there are kept, of who did nothing wrong; what an end says first is an exit code."""
    ended = Seen(steady(40), ended=Ended(0, 4.1))
    one, other = rows(ended, Seen(steady(90)))
    assert {one.outcome, other.outcome} == {Outcome.OK}
    assert other.steps == one.steps == 40
    crashed = Seen(steady(40), ended=Ended(2, 4.1, last_words="boom"))
    one, other = rows(crashed, Seen(steady(90)))
    assert (one.outcome, other.outcome) == (Outcome.CRASHED, Outcome.OK)
    assert one.said == "it ended after step 40 with exit code 2, its last words: boom"


def test_who_steps_no_more_is_not_fine_and_his_neighbour_had_the_device_to_himself() -> None:
    (row,) = rows(Seen(steady(20)), stopped_s=14.0)
    assert (row.outcome, row.step_ms) == (Outcome.STALLED, None)
    assert row.said == "it did no step for the last 12 s of the run, and none before had taken more than 0.1 s"
    hung, other = rows(Seen(steady(20)), Seen(steady(20, 0.2) + steady(200, 0.05, 4.05)), stopped_s=14.0)
    assert hung.outcome is Outcome.STALLED
    assert other.outcome is Outcome.OK
    assert other.step_ms == pytest.approx(200)
    assert other.steps == 10
    hung, other = rows(Seen(steady(20)), Seen(steady(8, 1.7)), stopped_s=14.0)
    assert other.said == "copy 0 failed beside it (stalled), so there is no time in which all of them were steady"


@pytest.mark.parametrize(
    ("steps", "step_s", "stopped_s"),
    [(20, 0.1, 3.9), (5, 3.0, 25.0), (1, 0.1, 20.0), (100, 0.1, 13.0)],
)
def test_a_silence_may_be_a_long_step(steps: int, step_s: float, stopped_s: float) -> None:
    """Too short, or no longer than its own, or nothing is known yet, or a small part of the time."""
    (row,) = rows(Seen(steady(steps, step_s)), stopped_s=stopped_s)
    assert row.outcome in (Outcome.OK, Outcome.TOO_FEW)


def test_who_could_not_be_measured_says_whose_fault_that_was() -> None:
    late, failed = Seen([]), Seen([], ended=Ended(1, 1.0))
    _, row = rows(failed, late)
    assert (row.outcome, row.said) == (
        Outcome.TOO_FEW,
        "copy 0 failed beside it (crashed), so there is no time in which all of them were steady",
    )
    (row,) = rows(Seen(steady(3)), stopped_s=0.35)
    assert row.outcome is Outcome.TOO_FEW
    assert row.said == "3 steps, of which not 5 while all copies were steady: give it more seconds"


@pytest.mark.parametrize("told_s", [1e-9, 2e-5])
def test_a_clock_that_hardly_moves_is_not_believed(told_s: float) -> None:
    """Neither a billion steps a second nor a stall: what was seen counts, and that is said."""
    (row,) = rows(Seen(misclocked(100, told_s)), stopped_s=3.05)
    assert row.outcome is Outcome.OK
    assert row.step_ms == pytest.approx(20)
    assert row.said is not None
    assert row.said.endswith("so what was seen counts")


def test_steps_that_are_seen_late_keep_their_own_times() -> None:
    """A busy machine hears in a burst what was told in time; or the teller lags behind what is due, for a while."""
    for seen_s in (1e-4, 0.06):
        (row,) = rows(Seen(misclocked(100, 0.02, seen_s)), stopped_s=3.05)
        assert row.step_ms == pytest.approx(20)
        assert row.said is None


def test_silence() -> None:
    (row,) = rows(Seen([], waited=True))
    assert (row.outcome, row.said) == (
        Outcome.SILENT,
        "it told no step within 60 s: see how steps are told, or have more patience",
    )
    (row,) = rows(Seen([Heard(0.0, 0)], waited=True))
    assert row.said is not None
    assert row.said.startswith("it told step 0 and no other within 60 s")
    (row,) = rows(Seen([], waited=True, odd="-5"))
    assert row.said == "it told no step within 60 s, but -5: a step is a whole number from 0 to 10^15"
    (row,) = rows(Seen([Heard(0.0, 3)], ended=Ended(0, 1.0)))
    assert row.outcome is Outcome.ENDED_EARLY
