"""Steps, states and checkpoints by themselves: groups of threads instead of processes, and PyTorch in this process."""

import os
import threading
from collections import namedtuple
from collections.abc import Callable
from copy import deepcopy
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuloom.train import elastic
from gpuloom.train.elastic.settings import ElasticError, Every, Scaling, Settings

pytestmark = [
    pytest.mark.xdist_group("torch"),
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
]
Row = namedtuple("Row", ["given", "wanted"])
SAMPLES, BATCH = 24, 8


def together(size: int, act: Callable[[Any], Any]) -> list[Any]:
    """What each of `size` members of a real group finds; each is a thread."""
    import torch
    import torch.distributed as dist

    from gpuloom.train.elastic.steps.group import Group

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found: dict[int, Any] = {}

    def member(rank: int) -> None:
        group = Group(1, rank, size, torch.device("cpu"))
        group.form("127.0.0.1", store.port, 20.0)
        found[rank] = act(group)
        assert group.works(), group.failed
        group.close()

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


def training(make_model: Callable[[], Any], trained: Callable[[Any], Any], rate: float = 0.1) -> Any:
    import torch

    from gpuloom.train.elastic.state import At, Training

    generator = torch.Generator().manual_seed(4)
    model = make_model().double()
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.randn(one.shape, generator=generator, dtype=torch.float64) / 3)
    optimiser = torch.optim.SGD(trained(model), lr=rate, momentum=0.9)
    return Training(model, optimiser, at=At(batch=BATCH, initial=BATCH))


def stepper(parts: Any, **options: Any) -> Any:
    """With inputs that depend on the samples' numbers alone."""
    import torch

    from gpuloom.train.elastic.steps.stepper import Options, Stepper

    inputs = torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    chosen = Options(options.pop("every", Every.EPOCH), None, options.pop("measure_noise", False))
    settings = Settings(BATCH, scaling=Scaling.NONE, **options)
    return Stepper(parts, settings, chosen, SAMPLES, lambda numbers: inputs[numbers], torch.device("cpu"))


def weights(parts: Any) -> list[float]:
    return [value for one in parts.model.parameters() for value in one.detach().reshape(-1).tolist()]


def train(group: Any, parts: Any, steps: int, between: Callable[[int, Any], None] = lambda *_: None) -> Any:
    made = stepper(parts)
    for step in range(steps):
        between(step, parts)
        for given in made.passes(group):
            made.backward(group, parts.model(given).square().mean(), None)
    return parts


def layers() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 1))


def test_reentrant_checkpointing_adds_up_all_of_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passes within the pass bring the shared layer's gradient in parts, and only the first came in time."""
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    from gpuloom.train.elastic.steps import reducer

    class Twice(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.shared = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, given: Any) -> Any:
            inner = checkpoint(self.shared, self.first(given).tanh(), use_reentrant=True)
            return checkpoint(self.shared, inner.tanh(), use_reentrant=True)

    monkeypatch.setattr(reducer, "BUCKET_BYTES", 64)  # a bucket for every parameter
    (alone,) = together(1, lambda group: weights(train(group, training(Twice, lambda one: one.parameters()), 5)))
    two = together(2, lambda group: weights(train(group, training(Twice, lambda one: one.parameters()), 5)))
    assert two[0] == two[1] == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_synchronised_batch_norm_computes_with_many_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast its inputs have few; a count of 70,000 is more than a float16 can say."""
    import torch
    from torch import nn

    from gpuloom.train.elastic.steps.batchnorm import Here

    monkeypatch.setattr(Here, "group", None)
    dtype, dice = getattr(torch, kind), torch.Generator().manual_seed(1)
    given = torch.randn(70_000, 2, generator=dice).to(dtype).requires_grad_()
    plain, synchronised = nn.BatchNorm1d(2), elastic.sync_batch_norm(nn.BatchNorm1d(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = synchronised(given)
        found.float().square().mean().backward()
    assert found.dtype == given.grad.dtype == dtype
    torch.testing.assert_close(found.float(), plain(given.detach().float()), atol=0.02, rtol=0.01)
    assert synchronised.running_var.tolist() == pytest.approx(plain.running_var.tolist(), abs=1e-5)
    assert elastic.sync_batch_norm(nn.BatchNorm1d(2)).to(dtype)(given).dtype == dtype


def test_a_batch_norm_that_is_replaced_keeps_its_own_parameters() -> None:
    from torch import nn

    plain = nn.BatchNorm1d(3).double().eval()
    plain.weight.requires_grad_(False)
    made: Any = elastic.sync_batch_norm(nn.Sequential(plain))[0]
    assert (made.weight is plain.weight, made.running_var is plain.running_var, made.training) == (True, True, False)
    assert [one.requires_grad for one in made.parameters()] == [False, True]


def test_parameters_that_are_unfrozen_or_added_later_are_added_up() -> None:
    def frozen_first(group: Any) -> Any:
        parts = training(layers, lambda model: [*model[2].parameters(), *model[4].parameters()])
        parts.model[2].requires_grad_(False)
        return train(group, parts, 8, change)

    def change(step: int, parts: Any) -> None:
        if step == 2:
            parts.model[2].requires_grad_(True)
        if step == 5:
            parts.optimiser.add_param_group({"params": list(parts.model[0].parameters()), "lr": 0.05})

    (alone,) = together(1, frozen_first)
    two = together(2, frozen_first)
    assert weights(two[0]) == weights(two[1]) == pytest.approx(weights(alone), abs=1e-12)

    newcomer = training(layers, lambda model: [*model[2].parameters(), *model[4].parameters()])
    newcomer.model[2].requires_grad_(False)
    newcomer.put_back(deepcopy(alone.gather()))  # as it wrapped its model, the others have changed since
    assert [group["lr"] for group in newcomer.optimiser.param_groups] == [0.1, 0.05]
    for parts in (newcomer, alone):
        together(1, lambda group: train(group, parts, 3))  # noqa: B023
    assert weights(newcomer) == weights(alone)


def test_what_cannot_be_added_up_is_refused_by_name() -> None:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, IterableDataset

    from gpuloom.train.elastic.steps.reducer import Reducer, Step
    from gpuloom.train.elastic.steps.samples import length
    from gpuloom.train.elastic.worker import refuse_optimiser, refuse_scheduler, refuse_state

    rows = nn.Embedding(4, 2, sparse=True)
    reducer = Reducer(list(rows.parameters()))
    (group,) = together(1, lambda group: group)
    reducer.last_pass(Step(group, []))
    rows(torch.tensor([1])).sum().backward()
    with pytest.raises(ElasticError, match="sparse"):
        reducer.finish()

    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(range(3))

    for wrong, word in ((Stream(), "Stream"), (DataLoader([1, 2]), "DataLoader"), ([], "empty")):
        with pytest.raises(ElasticError, match=word):
            length(wrong)
    assert length([1, 2]) == 2
    with pytest.raises(ElasticError, match="LBFGS"):
        refuse_optimiser(torch.optim.LBFGS([torch.zeros(1)]))
    with pytest.raises(ElasticError, match="ReduceLROnPlateau"):
        refuse_scheduler(torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.zeros(1)])))
    with pytest.raises(ElasticError, match="list has no state_dict"):
        refuse_state([])
    strange = training(layers, lambda model: [*model.parameters(), nn.Parameter(torch.zeros(1))])
    with pytest.raises(ElasticError, match="no part of the model"):
        strange.groups()


def test_a_scheduler_that_has_a_last_step_stays_there() -> None:
    import torch

    parts = training(layers, lambda model: model.parameters())
    parts.scheduler = torch.optim.lr_scheduler.OneCycleLR(parts.optimiser, max_lr=0.1, total_steps=4)
    made = stepper(parts, every=Every.STEP)
    (group,) = together(1, lambda group: group)
    for _ in range(7):
        for given in made.passes(group):
            made.backward(group, parts.model(given).square().mean(), None)
    assert parts.optimiser.param_groups[0]["lr"] == pytest.approx(0.1 / 25 / 1e4)


def test_a_short_batch_does_not_spoil_the_noise_of_a_lone_worker() -> None:
    """Gradients of pure noise: a batch of 1 after one of 23, again and again. Their variance is known."""
    import torch
    from torch import nn

    from gpuloom.train.elastic.steps.stepper import Options, Stepper

    class Pull(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(40))

    parts, noise = training(Pull, lambda model: model.parameters(), rate=0.0), torch.Generator().manual_seed(6)
    parts.at.batch = SAMPLES - 1

    def fetch(numbers: Any) -> Any:
        return torch.randn(len(numbers), 40, generator=noise, dtype=torch.float64)

    options = Options(Every.EPOCH, None, measure_noise=True)
    made = Stepper(parts, Settings(BATCH, scaling=Scaling.NONE), options, SAMPLES, fetch, torch.device("cpu"))
    (group,) = together(1, lambda group: group)
    for _ in range(600):
        for given in made.passes(group):
            made.backward(group, (given * parts.model.weight).sum(1).mean(), None)
    assert parts.at.noise.var == pytest.approx(40 / BATCH, rel=0.25)


def test_the_users_own_data_set_is_asked() -> None:
    import torch
    from torch.utils.data import TensorDataset

    from gpuloom.train.elastic.steps.samples import fetcher

    class Doubled(TensorDataset):  # type: ignore[misc]
        def __getitem__(self, number: int) -> Any:
            return Row(*(2 * one for one in super().__getitem__(number)))

    tensors, chosen = (torch.arange(6.0), torch.arange(6)), torch.tensor([4, 1])
    found = fetcher(Doubled(*tensors), torch.device("cpu"))(chosen)
    assert isinstance(found, Row)
    assert (found.given.tolist(), found.wanted.tolist()) == ([8.0, 2.0], [8, 2])
    assert [one.tolist() for one in fetcher(TensorDataset(*tensors), torch.device("cpu"))(chosen)] == [[4, 1]] * 2


class Own:
    """A user's own state."""

    def __init__(self, **kept: Any) -> None:
        self.kept = kept

    def state_dict(self) -> dict[str, Any]:
        return self.kept

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        self.kept = kept


def test_the_users_own_state_is_sent_and_saved(tmp_path: Path) -> None:
    import torch

    from gpuloom.train.elastic.checkpoint import load, save
    from gpuloom.train.elastic.state import receive_state, send_state

    kept = {"best": np.float64(0.5), "seen": [np.int64(3)], "curve": np.arange(3.0), "mean": torch.ones(2)}
    kept["none"] = np.empty(0)
    parts = training(layers, lambda model: model.parameters())
    parts.own = Own(**kept)
    save(tmp_path, parts.gather(), "this launch")

    def exchange(group: Any) -> Any:
        if group.rank == 0:
            return send_state(group, parts.gather(), [1])
        return receive_state(group, 0)

    for state in (load(tmp_path, "another", resume=True), together(2, exchange)[1]):
        newcomer = training(layers, lambda model: model.parameters())
        newcomer.own = Own()
        newcomer.put_back(state)
        found = newcomer.own.kept
        assert (found["best"], found["seen"], found["curve"].tolist()) == (0.5, [3], [0, 1, 2])
        assert (found["mean"].tolist(), found["none"].tolist()) == ([1, 1], [])


def test_what_could_not_be_resumed_is_refused_or_not_saved(tmp_path: Path) -> None:
    """Whatever part of the training it is in; a checkpoint that can be read stays."""
    import torch

    from gpuloom.train.elastic.checkpoint import UnsavedError, check_that_it_can_be_read, load, save
    from gpuloom.train.elastic.worker import refuse_overlaps

    class Later(torch.optim.lr_scheduler.LRScheduler):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return list(self.base_lrs)

    parts = training(layers, lambda model: model.parameters())
    parts.scheduler, parts.own = Later(parts.optimiser), Own(best=0.5)
    check_that_it_can_be_read(parts.gather())
    save(tmp_path, parts.gather(), "launch")
    for place, name, odd, words in (
        (vars(parts.scheduler), "scaling", Scaling.AUTO, "scheduler: "),
        (vars(parts.scheduler), "curve", lambda: 1, "scheduler: "),
        (parts.optimiser.param_groups[0], "since", date(2026, 1, 1), "optimiser: .* saved; datetime.date is none"),
        (parts.own.kept, "path", tmp_path, "state: "),
    ):
        place[name] = odd
        with pytest.raises(ElasticError, match=words):
            check_that_it_can_be_read(parts.gather())
        with pytest.raises(UnsavedError, match=words):
            save(tmp_path, parts.gather(), "launch")
        del place[name]
        check_that_it_can_be_read(parts.gather())
    kept = load(tmp_path, "launch", resume=False)
    assert kept is not None
    assert kept["own"] == {"best": 0.5}
    parts.model.register_buffer("rows", torch.arange(4.0).expand(3, 4))
    with pytest.raises(ElasticError, match="rows: it was expanded"):
        refuse_overlaps(parts.tensors())


def test_the_state_of_another_training_is_refused() -> None:
    import torch
    from torch import nn

    def head(outputs: int) -> Any:
        return training(lambda: nn.Sequential(nn.Linear(5, outputs)), lambda model: model.parameters())

    state = head(1).gather()
    with pytest.raises(ElasticError, match=r"another model: 0\.weight has the shape \(1, 5\) there, and \(3, 5\) here"):
        head(3).put_back(state)
    with pytest.raises(ElasticError, match=r"another model: it has no 2\.weight"):
        training(layers, lambda model: model.parameters()).put_back({**state, "model": head(5).gather()["model"]})
    other = head(1)
    other.optimiser = torch.optim.Adam(other.model.parameters())
    with pytest.raises(ElasticError, match="another optimiser: SGD, not Adam"):
        other.put_back(state)
    turned = training(layers, lambda model: [*model[2].parameters(), *model[0].parameters()])
    with pytest.raises(ElasticError, match="in another order"):
        turned.put_back(training(layers, lambda model: [*model[0].parameters(), *model[2].parameters()]).gather())
    before = {name: part for name, part in state.items() if name not in ("kind", "groups", "frozen")}
    head(1).put_back(before)  # a checkpoint of before they were written


def test_the_noise_of_complex_parameters_is_that_of_their_two_parts() -> None:
    import torch
    from torch import nn

    class Two(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.Parameter(torch.zeros(5, 2))

        def forward(self, given: Any) -> Any:
            return (given @ self.parts).square().sum(1)

    class One(nn.Module):  # type: ignore[misc]
        def __init__(self, parts: Any) -> None:
            super().__init__()
            self.whole = nn.Parameter(torch.view_as_complex(parts.detach().clone()))

        def forward(self, given: Any) -> Any:
            return (given.to(self.whole.dtype) @ self.whole).abs().square()

    def noise(group: Any, whole: bool) -> tuple[float, float]:
        parts = training(Two, lambda model: model.parameters())
        if whole:
            parts.model = One(parts.model.parts)
            parts.optimiser = torch.optim.SGD(parts.model.parameters(), lr=0.1)
        made = stepper(parts, measure_noise=True)
        for given in made.passes(group):
            made.backward(group, parts.model(given).mean(), None)
        return parts.at.noise.sqr, parts.at.noise.var

    plain = together(2, lambda group: noise(group, whole=False))
    assert together(2, lambda group: noise(group, whole=True)) == [pytest.approx(one) for one in plain]


def test_a_loss_of_many_numbers_is_refused() -> None:
    parts = training(layers, lambda model: model.parameters())
    made = stepper(parts)
    (group,) = together(1, lambda group: group)
    with pytest.raises(ElasticError, match=r"one number; this has the shape \(8, 1\)"):
        made.backward(group, parts.model(next(made.passes(group))), None)


def test_a_checkpoint_that_is_rubbish_stops_only_who_asks_for_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from gpuloom.train.elastic.checkpoint import ASIDE, FILE, load

    for rubbish in (b"", b"junk" * 30, b"PK\3\4" + bytes(99)):
        (tmp_path / FILE).write_bytes(rubbish)
        for wish in ({"resume": True}, {"resume": False, "begun": True}):  # or after all workers have died
            with pytest.raises(ElasticError, match="cannot be read; remove it"):
                load(tmp_path, "launch", **wish)
        assert load(tmp_path, "launch", resume=False) is None
        assert (tmp_path / ASIDE).read_bytes() == rubbish
        assert load(tmp_path, "launch", resume=True) is None
    assert capfd.readouterr().err.count("will be replaced") == 3


def test_where_checkpoints_go_is_seen_to_at_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuloom.train.elastic.checkpoint import FILE, UnsavedError, prepare, save
    from gpuloom.train.elastic.launch import checkpoint_place

    monkeypatch.delenv("GPULOOM_CHECKPOINT_DIR", raising=False)
    folder = checkpoint_place(tmp_path / "made" / "here")
    monkeypatch.setenv("GPULOOM_CHECKPOINT_DIR", str(tmp_path))
    assert checkpoint_place("elsewhere") == tmp_path
    prepare(folder)
    dead, alive, other = (folder / f"{FILE}.{end}" for end in ("999999999", os.getpid(), "mine"))
    for path in (dead, folder / f"{FILE}.{os.getppid()}", other):
        path.touch()
    prepare(folder)
    assert sorted(path.suffix for path in folder.iterdir()) == sorted([f".{os.getppid()}", ".mine"])
    (tmp_path / "file").touch()
    with pytest.raises(ElasticError, match="cannot be written to"):
        prepare(tmp_path / "file")
    (folder / FILE / "in the way").mkdir(parents=True)
    with pytest.raises(UnsavedError):
        save(folder, {}, "launch")
    assert not alive.exists()


def test_another_initial_batch_at_resume_counts() -> None:
    from gpuloom.train.elastic.state import At
    from gpuloom.train.elastic.steps.noise import Noise, gain

    before = At(step=9, batch=64, initial=16, progress=30.0, factor=4.0, noise=Noise(1.0, 2.0, 1.0))
    after = before.counted_in(32)
    assert (after.step, after.batch, after.initial, after.progress, after.factor) == (9, 32, 32, 15.0, 1.0)
    steps_of_16 = gain(before.noise, 128 / 16) / gain(before.noise, 32 / 16)
    assert gain(after.noise, 128 / 32) == pytest.approx(steps_of_16)  # the same noise, in other units
    assert before.counted_in(16) == before
    assert At(batch=64).counted_in(16).batch == 64  # a checkpoint that does not say
