"""The arithmetic of a step: who computes what, how noisy it is, how fast to learn. No processes, no PyTorch."""

import contextlib
import io
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.train.elastic.launch import checkpoint_place, run
from gpuloom.train.elastic.settings import ElasticError, Scaling, Settings, launch_target, seats_from, target_from
from gpuloom.train.elastic.steps.noise import Noise, estimate, gain
from gpuloom.train.elastic.steps.sampler import batches_of, even, mixed, passes
from gpuloom.train.elastic.steps.scaling import Ramp, chosen, factor
from gpuloom.train.elastic.wire import Lines, Message
from gpuloom.train.elastic.words import flush, tell

counts = st.integers(1, 40)


@given(st.integers(1, 300), counts, st.none() | counts)
def test_every_sample_of_a_step_is_computed_once(batch: int, workers: int, limit: int | None) -> None:
    dealt = [passes(batch, workers, rank, limit) for rank in range(workers)]
    counted = [number for one in dealt for part in one if part.counts for number in range(part.start, part.stop)]
    assert counted == list(range(batch))
    assert len({len(one) for one in dealt}) == 1  # whatever they do together in a pass, all do
    every = [part for one in dealt for part in one]
    assert all(0 < part.stop - part.start <= (limit or batch) for part in every)


@given(st.integers(1, 500), st.lists(counts, min_size=1, max_size=8), st.booleans())
def test_an_epoch_is_visited_once_whatever_the_batches(samples: int, sizes: list[int], drop_last: bool) -> None:
    position = turn = 0
    while (step := next(batches_of(samples, sizes[turn % len(sizes)], position, drop_last), None)) is not None:
        assert step[0] == position < step[1]
        position, turn = step[1], turn + 1
    assert samples - position < (sizes[turn % len(sizes)] if drop_last else 1)


@given(st.integers(0, 1000), counts)
def test_even_parts(total: int, parts: int) -> None:
    found = even(total, parts)
    assert sum(found) == total
    assert max(found) - min(found) <= 1


def test_seeds_of_neighbours_are_unrelated() -> None:
    seeds = [mixed(seed, step, rank) for seed in range(4) for step in range(50) for rank in range(4)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [3, 1, 12], [20, 2]])
def test_the_noise_is_found_also_from_uneven_parts(sizes: list[int]) -> None:
    dice = np.random.default_rng(1)
    true, sigma, initial, rounds = np.array([1.0, -2.0, 0.5]), 3.0, 16, 20_000
    found = np.zeros(2)
    for _ in range(rounds):
        parts = [(true + dice.normal(0, sigma, (size, 3))).mean(0) for size in sizes]
        batch = sum(sizes)
        whole = sum(part * size for part, size in zip(parts, sizes, strict=True)) / batch
        weighted = sum(size / batch * float(part @ part) for part, size in zip(parts, sizes, strict=True))
        found += estimate(weighted, float(whole @ whole), len(sizes), batch, initial)
    assert found / rounds == pytest.approx([true @ true, 3 * sigma**2 / initial], rel=0.04)


def test_what_a_larger_batch_is_worth() -> None:
    assert gain(Noise(), 8) == 1  # nothing is claimed that was not measured
    only_noise, none, both = Noise(0, 1, 1), Noise(1, 0, 1), Noise(1, 1, 1)
    assert (gain(only_noise, 8), gain(none, 8)) == (8, 1)
    assert 1 < gain(both, 8) < 2 < 8
    seen = Noise().seen(2.0, 4.0)
    assert [seen.sqr, seen.var] == pytest.approx([2, 4])  # no pull towards the start at zero


def test_how_the_learning_rate_follows() -> None:
    assert [factor(rule, 4, Noise()) for rule in (Scaling.LINEAR, Scaling.SQRT, Scaling.NONE)] == [4, 2, 1]
    assert factor(Scaling.GAIN, 4, Noise(1, 1, 1)) == pytest.approx(1.6)
    assert [chosen(Scaling.AUTO, name) for name in ("SGD", "AdamW")] == [Scaling.LINEAR, Scaling.SQRT]
    assert chosen(Scaling.LINEAR, "Adam") is Scaling.LINEAR
    ramp = Ramp(1.0, 100)
    assert [ramp.at(step, 4.0, 10) for step in (100, 105, 110, 500)] == [1.0, 2.5, 4.0, 4.0]
    assert ramp.at(100, 4.0, 0) == 4.0


def test_wrong_wishes_are_one_sentence() -> None:
    with pytest.raises(ElasticError, match="batch is 0"):
        Settings(0)
    with pytest.raises(ElasticError, match="warmup_steps is -1"):
        Settings(1, warmup_steps=-1)
    nan, endless = float("nan"), float("inf")
    for wish in (
        {"batch": "4"}, {"batch": 4.5}, {"batch": True}, {"seed": "a"}, {"warmup_steps": None}, {"max_batch": "9"},
        {"timeout_s": nan}, {"timeout_s": endless}, {"timeout_s": "60"}, {"checkpoint_s": nan}, {"address": 127},
    ):  # fmt: skip
        with pytest.raises(ElasticError, match=f"^{next(iter(wish))} is [^\n]*$"):
            Settings(**{"batch": 16, **wish})  # type: ignore[arg-type]
    assert Settings(16, checkpoint_s=endless).checkpoint_s == endless  # never
    for workers in (0, "2", 1.5):
        with pytest.raises(ElasticError, match="workers is "):
            launch_target(workers, ())  # type: ignore[arg-type]
    with pytest.raises(ElasticError, match="checkpoint_dir is 3"):
        checkpoint_place(3)  # type: ignore[arg-type]
    with pytest.raises(ElasticError, match="train is None"):
        run(None, batch=16)  # type: ignore[arg-type]
    with pytest.raises(ElasticError, match="scaling is 'cube'; one of auto, linear"):
        Scaling("cube")
    with pytest.raises(ElasticError, match="MIG"):
        seats_from([{"device": "MIG-1"}, {"device": "MIG-2"}])
    with pytest.raises(ElasticError, match="twice"):
        seats_from([{"device": "a"}, {"device": "a"}])
    for wrong in ({}, {"generation": 1}, {"generation": 1, "workers": [{"device": 3}]}):
        with pytest.raises(ElasticError):
            target_from(wrong)
    for name, value in (("A", None), ("A", []), ("A", "b\0"), ("", "b"), ("A=", "b"), ("A", "\ud800"), ("A", True)):
        with pytest.raises(ElasticError, match="env"):
            seats_from([{"device": "a", "env": {name: value}}])
    assert seats_from([{"device": "a", "env": {"A": 3}}])[0].env == (("A", "3"),)
    assert seats_from([{"device": "MIG-1"}])[0].device == "MIG-1"
    assert Settings(16, max_batch=64).allowed(100) == 64


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPULOOM_WORKERS", "GPULOOM_BATCH", "GPULOOM_GENERATION"):
        monkeypatch.delenv(name, raising=False)
    assert [seat.device for seat in launch_target(None, ()).seats] == ["cpu"]
    assert [seat.device for seat in launch_target(2, ()).seats] == ["cpu:0", "cpu:1"]
    assert [dict(seat.env) for seat in launch_target(1, ("0", "1")).seats] == [{"CUDA_VISIBLE_DEVICES": "0"}]
    with pytest.raises(ElasticError, match="2 CUDA devices"):
        launch_target(3, ("0", "1"))
    monkeypatch.setenv("GPULOOM_WORKERS", '[{"device": "GPU-1", "env": {"A": "b"}}]')
    monkeypatch.setenv("GPULOOM_BATCH", "32")
    monkeypatch.setenv("GPULOOM_GENERATION", "7")
    target = launch_target(None, ())
    assert (target.generation, target.batch, target.seats[0].env) == (7, 32, (("A", "b"),))
    monkeypatch.setenv("GPULOOM_WORKERS", "[")
    with pytest.raises(ElasticError, match="no JSON"):
        launch_target(None, ())


def test_the_library_comes_without_a_gpu_and_without_the_scheduler() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    program = (
        "import sys; from gpuloom.train import elastic; elastic.run, elastic.Worker, elastic.sync_batch_norm;"
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('gpuloom.')}))"
    )
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "['train']"


def test_the_last_words_of_the_dead_are_all_that_is_read() -> None:
    ours, theirs = socket.socketpair()
    held = theirs.dup()  # by a process that it had started
    with ours, held:
        theirs.sendall(b'{"say": "at"}\n{"say": "crash"}\n{"say": "cut o')
        theirs.close()
        assert [message["say"] for message in Lines(ours).last_words()] == ["at", "crash"]


@pytest.mark.parametrize("rubbish", [b"[" * 50_000, b'{"a":' * 50_000, b"[1]", b"\xff", b"{"])
def test_who_talks_rubbish_has_gone(rubbish: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        lines = Lines(ours)
        found: list[Message] | None = []
        ours.setblocking(False)
        rest = rubbish + b"\n"
        while rest and found is not None:
            with contextlib.suppress(BlockingIOError):
                rest = rest[theirs.send(rest) :]
            found = lines.receive()
        while found == []:
            found = lines.receive()
        assert found is None


def test_nobody_dies_of_closed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        flush()
        tell("to nobody")


def test_the_client_comes_without_pytorch() -> None:
    program = (
        "import sys, gpuloom.train.elastic.client as c; print('torch' in sys.modules, 'gpuloom.errors' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
