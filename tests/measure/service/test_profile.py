"""From rows to profiles: what was measured comes back, with intervals, and what did not fit is told."""

import json
from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import pytest

from gpuloom.gpus.catalogue import MODELS
from gpuloom.measure.arrangement import Arrangement
from gpuloom.measure.plan import parse
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.service.profile import by_batch, mig_csv, models_of, pairs_of, points
from gpuloom.work.measured.latency_profiles import as_json, read_latency_profile
from gpuloom.work.measured.mig_services import read_mig_services

A100 = MODELS["A100-40GB"]


def asked(run: int, arrangement: Arrangement, batches: tuple[int, ...], *ms: float, repetition: int = 0) -> list[Copy]:
    """One time that all servers of a run were asked; an endless time is out of memory."""
    return [
        Copy(
            run,
            arrangement.name,
            arrangement.way,
            len(ms),
            at,
            repetition,
            seat,
            Outcome.OK if np.isfinite(step_ms) else Outcome.OUT_OF_MEMORY,
            steps=10 if np.isfinite(step_ms) else None,
            seconds=step_ms / 100 if np.isfinite(step_ms) else None,
            step_ms=step_ms if np.isfinite(step_ms) else None,
            step_p95_ms=1.5 * step_ms if np.isfinite(step_ms) else None,
            batches=",".join(map(str, batches)),
        )
        for at, (seat, step_ms) in enumerate(zip(arrangement.seats, ms, strict=True))
    ]


def layout(text: str) -> Arrangement:
    return parse(text, ("a", "b"), A100)


def test_alone_and_beside(tmp_path: Path) -> None:
    rows = [
        *asked(0, layout("whole (a)"), (1,), 10.0),
        *asked(0, layout("whole (a)"), (4,), 22.0),
        *asked(1, layout("whole (b)"), (1,), 30.0),  # called "whole" as a's is
        *asked(2, layout("whole 30% (a) + whole 70% (b)"), (1, 4), 12.0, 90.0),
        *asked(3, layout("whole 50% (a) + whole 50% (a)"), (1, 4), 13.0, 33.0),
        *asked(4, layout("whole 50% (a) + whole 50% (a)"), (4, 4), 30.0, 40.0),
        *asked(5, layout("3g.20gb (a)"), (1,), 21.0),
    ]
    found = points(rows)
    file = tmp_path / "profile.json"
    file.write_text(as_json({"name": "A100-40GB", "mem_mib": 40960}, models_of(found), pairs_of(found)))
    profile = read_latency_profile(file)
    assert {model: dict(grid) for model, grid in profile.alone_ms.items()} == {
        "a": {(1, 100.0): 10.0, (4, 100.0): 22.0},
        "b": {(1, 100.0): 30.0},
    }
    assert profile.p95_ms["a"][4, 100.0] == 33.0
    sides = {(row.model, row.batch, row.share_pct, row.neighbour, row.neighbour_batch): row for row in profile.pairs}
    assert {key: row.latency_ms for key, row in sides.items()} == {
        ("a", 1, 30.0, "b", 4): 12.0,
        ("b", 4, 70.0, "a", 1): 90.0,
        ("a", 1, 50.0, "a", 4): 13.0,
        ("a", 4, 50.0, "a", 1): 33.0,
        ("a", 4, 50.0, "a", 4): pytest.approx(float(np.sqrt(30 * 40)), 1e-5),
    }
    assert sides["b", 4, 70.0, "a", 1].neighbour_share_pct == 30.0


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    dice, held = np.random.default_rng(5), 0
    for _ in range(200):
        times = [20.0 * exp(dice.normal(0.0, 0.05)) for _ in range(4)]
        rows = [
            row
            for number, ms in enumerate(times)
            for row in asked(number, layout("whole (a)"), (1,), ms, repetition=number)
        ]
        (point,) = models_of(points(rows))["a"]
        held += float(str(point["low_ms"])) <= 20.0 <= float(str(point["high_ms"]))
        assert point["runs"] == 4
        assert point["requests"] == 40
    assert 165 <= held <= 194  # of 180; three standard errors


def test_slices(tmp_path: Path) -> None:
    rows = [
        *asked(0, layout("3g.20gb (a)"), (8,), 20.0),
        *asked(1, layout("2 x 3g.20gb 50% (a)"), (8, 8), 40.0, 40.0),
        *asked(2, layout("1g.5gb (a)"), (8,), np.inf),
        *asked(3, layout("whole (a)"), (8,), 9.0),
    ]
    text = mig_csv(rows, A100)
    assert text is not None
    file = tmp_path / "mig.csv"
    file.write_text(text)
    alone, shared = sorted(read_mig_services(file)["a"], key=lambda point: point.processes)
    assert (alone.slices, alone.batch, alone.each_rps, alone.latency_ms) == (3, 8, 400.0, 20.0)
    assert (shared.slices, shared.processes, shared.each_rps, shared.rps) == (3, 2, 200.0, 400.0)
    assert "a,1,8,1,0,0,,,,1g.5gb" in text.splitlines()
    assert mig_csv(asked(0, layout("whole (a)"), (8,), 9.0), A100) is None


def test_rows_of_commands_are_no_points() -> None:
    rows = asked(0, layout("whole (a)"), (1,), 10.0)
    plain = [Copy(**{name: getattr(row, name) for name in Copy.__slots__} | {"batches": None}) for row in rows]
    assert points(plain) == []
    assert json.loads(as_json({}, {}, []))["models"] == {}


def test_for_answers_a_model_at_a_batch_is_a_workload() -> None:
    rows = [
        *asked(0, layout("whole (a)"), (1,), 10.0),
        *asked(0, layout("whole (a)"), (4,), 22.0),
        *asked(1, layout("whole 50% (a) + whole 50% (a)"), (1, 4), 13.0, 33.0),
        *asked(2, layout("2 x 3g.20gb 50% (a)"), (4, 4), 40.0, 40.0),
        *asked(3, layout("3g.20gb (a)"), (4,), 30.0),
    ]
    told = [(row.seat.workload, row.arrangement) for row in by_batch(rows)]
    assert told == [
        ("a batch 1", "whole"),
        ("a batch 4", "whole"),
        ("a batch 1", "2 x whole 50% at 1,4"),
        ("a batch 4", "2 x whole 50% at 1,4"),
        ("a batch 4", "3g.20gb"),
    ]
    commands = [replace(row, batches=None) for row in rows]
    assert by_batch(commands) == commands


def test_beside_one_that_did_nothing_is_not_beside_it() -> None:
    pair = layout("whole 50% (a) + whole 50% (b)")
    crashed = asked(0, pair, (1, 4), 12.0, 90.0)
    crashed[1] = replace(crashed[1], outcome=Outcome.CRASHED, step_ms=None)
    assert pairs_of(points(crashed)) == []
    assert len(pairs_of(points([*crashed, *asked(1, pair, (1, 4), 12.0, 90.0, repetition=1)]))) == 2


def test_what_ran_out_of_memory_once_does_not_fit() -> None:
    rows = [
        *asked(0, layout("2g.10gb (a)"), (4,), 20.0),
        *asked(1, layout("2g.10gb (a)"), (4,), np.inf, repetition=1),
        *asked(2, layout("whole (a)"), (4,), 9.0),
        *asked(3, layout("whole (a)"), (4,), np.inf, repetition=1),
    ]
    text = mig_csv(rows, A100)
    assert text is not None
    assert text.splitlines()[1:] == ["a,2,4,1,0,0,,,,2g.10gb"]
    assert models_of(points(rows)) == {}


def test_of_profiles_with_as_many_slices_the_usual_one_counts(tmp_path: Path) -> None:
    rows = [*asked(0, layout("1g.10gb (a)"), (1,), 18.0), *asked(1, layout("1g.5gb (a)"), (1,), 20.0)]
    text = mig_csv(rows, A100)
    assert text is not None
    file = tmp_path / "mig.csv"
    file.write_text(text)
    (point,) = read_mig_services(file)["a"]
    assert point.latency_ms == 20.0
