"""Models as they are named on the command line, and what is put where Triton reads it."""

from pathlib import Path

import pytest

from gpuloom.errors import InputError
from gpuloom.measure.plan import Plan, Workload, differs
from gpuloom.measure.service.model import repository_for, workloads_of
from gpuloom.serve.triton.environment import Triton
from tests.measure.service.models import fake_model, onnx_file

TRITON = Triton(Path("/triton/bin/tritonserver"))


def named(folder: Path, *models: str, bodies: tuple[str, ...] = (), server: str = "t") -> tuple[Workload, ...]:
    return workloads_of(models, (1, 4, 64), bodies, folder / "state", server)


def batches(folder: Path, config: str) -> tuple[int, ...]:
    place = Path(fake_model(folder, "m"))
    (place / "config.pbtxt").write_text(config)
    (model,) = named(folder, str(place))
    assert model.served is not None
    return model.served.batches


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ("max_batch_size: 16", (1, 4, 16)),
        ('backend: "python" max_batch_size: 2 input [{ name: "x" }]', (1, 2)),
        ("# max_batch_size: 1\nmax_batch_size : 0x8 # of them\n", (1, 4, 8)),
        ('name: "max_batch_size: 3"', (1, 4, 64)),
    ],
)
def test_no_batch_is_larger_than_the_model_takes(tmp_path: Path, config: str, known: tuple[int, ...]) -> None:
    assert batches(tmp_path, config) == known


@pytest.mark.parametrize("config", ['backend: "x" max_batch_size: 0', "max_batch_size: -1", "max_batch_size: [", "a }"])
def test_no_batches_at_all(tmp_path: Path, config: str) -> None:
    with pytest.raises(InputError):
        batches(tmp_path, config)


def test_a_link_is_called_as_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "bert").symlink_to(fake_model(tmp_path, "bert-2024-05"))
    assert [one.name for one in named(tmp_path, str(tmp_path / "bert"))] == ["bert"]


def test_what_lies_where_models_are_put_is_refused_and_stays(tmp_path: Path) -> None:
    inside = Path(fake_model(tmp_path / "state" / "models", "m"))
    with pytest.raises(InputError, match="where models are put: name where it is from"):
        named(tmp_path, str(inside))
    assert (inside / "config.pbtxt").exists()


def test_who_goes_on_goes_on_with_the_same_files_body_and_triton(tmp_path: Path) -> None:
    model, body = Path(fake_model(tmp_path, "m")), tmp_path / "body.json"
    body.write_text("{}")

    def plan(server: str = "t") -> Plan:
        return Plan(named(tmp_path, str(model), bodies=(str(body),), server=server))

    before = plan()
    assert differs(before, plan()) is None
    assert "served by t" in str(differs(before, plan("u")))
    body.write_text("{ }")
    assert "whose files or body were other ones" in str(differs(before, plan()))
    body.write_text("{}")
    assert differs(before, plan()) is None
    (model / "1" / "weights").write_text("x")
    assert "whose files or body were other ones" in str(differs(before, plan()))


def test_files_become_folders_that_any_triton_serves(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("")
    onnx_file(tmp_path / "net.onnx")
    (tmp_path / "net.onnx.data").write_text("weights")
    for model in named(tmp_path, str(tmp_path / "plain.py"), str(tmp_path / "net.onnx")):
        repository_for(model, tmp_path / "state" / "models", tmp_path / "state" / "repositories", TRITON)
    made = tmp_path / "state" / "models"
    assert (made / "plain" / "1" / "model.py").is_file()
    assert {path.name for path in (made / "net" / "1").iterdir()} == {"model.py", "model.onnx", "net.onnx.data"}
    assert 'backend: "python"' in (made / "net" / "config.pbtxt").read_text()
    linked = tmp_path / "state" / "repositories" / "net" / "net"
    assert "max_batch_size: 64" in (linked / "config.pbtxt").read_text()
    assert (linked / "1" / "model.onnx").is_file()
