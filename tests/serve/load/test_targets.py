"""From the options of `gpuloom load` to who is asked, with what and when."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.serve.gateway.kserve import INFER, model_of
from gpuloom.serve.load.open_loop import STANDIN_BODY, Target
from gpuloom.serve.load.targets import DURATION_S, Options, load_of
from gpuloom.serve.state import Endpoint, Record, State
from gpuloom.work.measured.arrival_traces import read_gaps

SERVICES = (Endpoint("a b", "/v2/models/a_b/infer", 10.0, 50.0), Endpoint("c", "/v2/models/c/infer", 20.0, 5.0))


def served(folder: Path, options: Options, *, dilate: float = 1.0, grpc_port: int | None = 8001) -> list[Target]:
    """The targets of a deployment with stand-ins that is up, as its folder has it."""
    with State(folder) as state:
        state.publish(Record(os.getpid(), "127.0.0.1", 8000, dilate, True, SERVICES, grpc_port))
        return load_of(str(folder), options).targets


def test_a_deployment_is_asked_as_planned(tmp_path: Path) -> None:
    first, second = served(tmp_path, Options())
    assert (first.name, first.path, first.slo_ms, first.body) == ("a b", SERVICES[0].path, 10.0, STANDIN_BODY)
    assert (second.host, second.port, second.grpc) == ("127.0.0.1", 8000, False)
    for target, service in zip((first, second), SERVICES, strict=True):
        assert target.due_s[-1] < DURATION_S
        assert len(target.due_s) == pytest.approx(service.rate_rps * DURATION_S, rel=0.5)


def test_over_grpc_the_model_is_named_as_it_is_served(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    first, _ = served(tmp_path, Options(grpc=True, slo_ms=7.0))
    assert (first.port, first.path, first.grpc, first.slo_ms) == (8001, INFER, True, 7.0)
    assert model_of(first.body.content) == "a_b"


def test_services_are_asked_once_and_in_the_order_that_was_typed(tmp_path: Path) -> None:
    targets = served(tmp_path, Options(services=("c", "a b", "c"), requests=3))
    assert [target.name for target in targets] == ["c", "a b"]


@pytest.mark.parametrize(
    ("texts", "gaps_s"),
    [
        ((), {"a b": 0.02, "c": 0.2}),
        (("4",), {"a b": 0.25, "c": 0.25}),
        (("a b=4",), {"a b": 0.25, "c": 0.2}),
        (("a b=4", "8"), {"a b": 0.25, "c": 0.125}),
        (("8", "a b=4"), {"a b": 0.25, "c": 0.125}),
        (("8", "4"), {"a b": 0.125, "c": 0.125}),
    ],
)
def test_a_rate_with_a_name_goes_before_one_for_all(
    tmp_path: Path, texts: tuple[str, ...], gaps_s: dict[str, float]
) -> None:
    targets = served(tmp_path, Options(rates=texts, arrivals="regular", requests=2))
    assert {target.name: target.due_s[1] for target in targets} == gaps_s


@settings(deadline=None, max_examples=25)
@given(dilate=st.floats(1.0, 100.0), requests=st.integers(1, 200), seed=st.integers(0, 9))
def test_dilated_time_stretches_the_schedule_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, dilate: float, requests: int, seed: int
) -> None:
    folder, options = tmp_path_factory.mktemp("d"), Options(requests=requests, seed=seed)
    plain, slow = (served(folder, options, dilate=factor) for factor in (1.0, dilate))
    for before, after in zip(plain, slow, strict=True):
        assert len(after.due_s) == requests
        np.testing.assert_allclose(after.due_s, before.due_s * dilate)


def test_every_service_has_its_own_dice(tmp_path: Path) -> None:
    first, second = served(tmp_path, Options(rates=("5",), requests=50))
    assert first.due_s.tolist() != second.due_s.tolist()
    again, _ = served(tmp_path, Options(rates=("5",), requests=50, seed=1))
    assert again.due_s.tolist() == second.due_s.tolist()  # the seed plus the place in the list


def test_a_trace_serves_planner_and_load(tmp_path: Path) -> None:
    """The same file: its pattern for one, its times for the other."""
    path = tmp_path / "trace.csv"
    arrivals_s = np.cumsum(np.random.default_rng(0).exponential(0.1, 200)).round(6)
    path.write_text("service,arrival_s\n" + "".join(f"*,{arrival_s}\nc,{arrival_s * 2}\n" for arrival_s in arrivals_s))
    first, second = served(tmp_path / "s", Options(arrivals=f"trace:{path}", requests=200))
    gaps = read_gaps(path)
    for target, pattern in ((first, gaps[""]), (second, gaps["c"])):
        assert target.due_s[0] == 0.0
        np.testing.assert_allclose(np.diff(target.due_s) / np.diff(target.due_s).mean(), pattern, rtol=1e-6)
    np.testing.assert_allclose(second.due_s, 2.0 * first.due_s)
    faster, _ = served(tmp_path / "s", Options(rates=("a b=40",), arrivals=f"trace:{path}", requests=200))
    assert len(faster.due_s) / faster.due_s[-1] == pytest.approx(40.0, rel=0.01)
    path.write_text("service,arrival_s\na b,1\n")
    with pytest.raises(InputError, match=r"trace\.csv has no arrivals of 'c'"):
        served(tmp_path / "s", Options(arrivals=f"trace:{path}"))


@pytest.mark.parametrize(
    ("address", "host", "port", "path", "name"),
    [
        ("http://h/v2/models/m/infer", "h", 80, "/v2/models/m/infer", "m"),
        ("http://[::1]:8000/v2/models/m/infer", "::1", 8000, "/v2/models/m/infer", "m"),
        ("http://127.0.0.1:1/p", "127.0.0.1", 1, "/p", "/p"),
        ("grpc://h:8001/m", "h", 8001, INFER, "m"),
    ],
)
def test_an_address_alone(address: str, host: str, port: int, path: str, name: str) -> None:
    if address.startswith("grpc"):
        pytest.importorskip("grpc")
    (target,) = load_of(address, Options(rates=("5",), requests=1)).targets
    assert (target.host, target.port, target.path, target.name) == (host, port, path, name)
    assert (target.slo_ms, target.dilate) == (None, 1.0)


def tried(address: str, options: Options) -> Target | str:
    """The one target, or the sentence that refuses it."""
    try:
        (target,) = load_of(address, options).targets
    except InputError as refused:
        return str(refused)
    return target


@settings(deadline=None, max_examples=100)
@given(st.text(st.sampled_from("htpgrc:/[]0123456789ab.-= \n"), max_size=25).map(lambda text: f"http://{text}"))
def test_any_address_is_understood_or_refused(address: str) -> None:
    target = tried(address, Options(rates=("5",), requests=1))
    if isinstance(target, str):
        assert "is not understood; expected http://HOST:PORT" in target
    else:
        assert 0 < target.port < 65536
        assert target.path in address
        assert target.host


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=12) | st.floats().map(str))
def test_any_rate_is_a_number_above_zero_or_refused(text: str) -> None:
    target = tried("http://h/m", Options(rates=(text,), arrivals="regular", requests=2))
    if isinstance(target, str):
        assert target.startswith(f"--rate {text}")
    else:
        assert target.due_s[1] > 0.0
