"""The two servers of every replica, and what Triton finds in their folders."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.serve.deployment import Level, read_plan
from gpuloom.serve.fleet.shadows import shadow_grants
from gpuloom.serve.fleet.wish import Wish
from gpuloom.serve.options import MODEL_START_S, Options, options_of
from gpuloom.serve.prepare import SLOWDOWN, prepare
from gpuloom.serve.state import State
from gpuloom.serve.times import batch_times
from tests.serve.plans import row, write_plan


def wish_of(folder: Path, rows: list[dict[str, object]], options: Options) -> tuple[Wish, State]:
    deployment = read_plan(write_plan(folder, *rows))
    state = State(folder / "s")
    return prepare(deployment, batch_times(deployment, None), state, options), state


ROWS = st.lists(
    st.builds(
        lambda name, number, share, batch: row(
            name,
            gpu=number,
            replica=number,
            share_pct=share,
            batch=batch,
            batch_ms=[1.5 * (n + 1) for n in range(batch)],
        ),
        st.sampled_from(["a", "b", "b c", "a-0"]),
        st.integers(0, 3),
        st.sampled_from([10.0, 20.0, 25.0]),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda fields: (fields["name"], fields["replica"]),
)


@settings(deadline=None, max_examples=25)
@given(rows=ROWS, dilate=st.sampled_from([1.0, 10.0]), grpc_port=st.none() | st.just(0))
def test_every_replica_has_two_servers_that_take_the_plans_times(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], dilate: float, grpc_port: int | None
) -> None:
    folder = tmp_path_factory.mktemp("p")
    wish, state = wish_of(folder, rows, Options(dilate=dilate, grpc_port=grpc_port))
    replicas = read_plan(folder / "plan.json").plan.replicas
    assert list(wish.specs) == [(replica.service, replica.number) for replica in replicas]
    assert wish.grants == [replica.grant for replica in replicas] + list(shadow_grants(replicas).values())
    specs = [spec for pair in wish.specs.values() for spec in pair]
    assert len({spec.name for spec in specs}) == len({spec.repository for spec in specs}) == 2 * len(rows)
    for replica, pair in zip(replicas, wish.specs.values(), strict=True):
        assert [spec.level for spec in pair] == [Level.PLANNED, Level.SHADOW]
        assert wish.slower[replica.service, replica.number] == pytest.approx(
            pair[1].grant.share_pct / pair[0].grant.share_pct
        )
        for spec in pair:
            assert spec.repository.is_relative_to(state.servers_dir)
            assert spec.grpc is (grpc_port is not None)
            text = (spec.repository / spec.model / "config.pbtxt").read_text()
            assert f"max_batch_size: {replica.grant.batch}\n" in text
            assert f"max_queue_delay_microseconds: {round(500 * dilate)} " in text
            times = json.loads(json.loads(re.findall(r'"batch_ms" value { string_value: (".*") }', text)[0]))
            faster = spec.grant.share_pct / replica.grant.share_pct
            assert times == pytest.approx([1.5 * (n + 1) * dilate / faster for n in range(len(times))], abs=1e-4)
            assert len(times) == replica.grant.batch


def test_what_a_rehearsal_left_is_gone(tmp_path: Path) -> None:
    _, state = wish_of(tmp_path, [row()], Options())
    left = [state.servers_dir / "W6-0" / SLOWDOWN, state.servers_dir / "W6-0" / "planned" / "triton.log"]
    for path in left:
        path.write_text("2")
    wish_of(tmp_path, [row()], Options())
    assert not any(path.exists() for path in left)


def test_a_users_model_is_found_by_service_and_else_by_workload(tmp_path: Path) -> None:
    for name in ("W6", "resnet50"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(f'backend: "{name}"')
    options = options_of(1.0, True, tmp_path / "models", "127.0.0.1", 0, 0, 20.0)
    assert options.timing.start_s == MODEL_START_S
    deployment = read_plan(write_plan(tmp_path, row(), row("W9")))
    wish = prepare(deployment, None, State(tmp_path / "s"), options)
    texts = [
        (pair[0].repository / pair[0].model / "config.pbtxt").read_text().splitlines()[0]
        for pair in wish.specs.values()
    ]
    assert texts == ['backend: "W6"', 'backend: "resnet50"']
    assert wish.slower["W6", 0] == pytest.approx(40 / 30)  # by the shares: how long its batches take is not known
    other = read_plan(write_plan(tmp_path, row(workload="alexnet")))
    with pytest.raises(InputError, match=r"has no model W6 or alexnet: expected a folder with a config\.pbtxt"):
        prepare(other, None, State(tmp_path / "s"), Options(models=tmp_path / "none"))


@pytest.mark.parametrize(
    ("port", "grpc_port", "models", "dilate", "sentence"),
    [
        (8000, 8000, None, 1.0, "--port and --grpc-port are both 8000"),
        (0, 0, Path("m"), 2.0, "--dilate is for stand-in models"),
    ],
)
def test_options_that_do_not_go_together(
    port: int, grpc_port: int, models: Path | None, dilate: float, sentence: str
) -> None:
    pytest.importorskip("grpc")
    with pytest.raises(InputError, match=sentence):
        options_of(dilate, True, models, "127.0.0.1", port, grpc_port, 20.0)
    assert options_of(1.0, True, models, "127.0.0.1", 0, 0, 20.0).grpc_port == 0  # two free ones are two
