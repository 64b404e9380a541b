"""`gpuloom provision --mig` as a user types it."""

import json
from pathlib import Path

import pytest

from gpuloom.cli.main import main

ROWS = ["model,mig_gpcs,batch,processes,throughput_per_s,latency_s"] + [
    f"net,{slices},{batch},{count},{1000 * batch / ms:.3f},{ms / 1000:.6f}"
    for slices in (1, 2, 3, 4, 7)
    for batch in (1, 4, 8)
    for count in (1, 2)
    for ms in [2 + 3 * batch * count / slices]
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    profiles, services = tmp_path / "points.csv", tmp_path / "services.yaml"
    profiles.write_text("\n".join(ROWS) + "\n")
    services.write_text("services:\n  - {name: a, workload: net, rate: 500, p99: 40ms}\n")
    return str(services), str(profiles)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([*arguments])
    return stop.value.code if isinstance(stop.value.code, int) else 0


@pytest.mark.parametrize("arrivals", ["poisson", "regular"])
def test_a_plan_on_instances(files: tuple[str, str], arrivals: str, capsys: pytest.CaptureFixture[str]) -> None:
    services, profiles = files
    words = ("provision", services, "--gpu-type", "A100-80GB", "--mig", profiles, "--arrivals", arrivals)
    assert run(*words, "--output", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["gpus"] == plan["lower_bound_gpus"] == 1
    assert sum(row["rate_rps"] for row in plan["services"]) == pytest.approx(500)
    assert all(row["device"] != "whole" and row["predicted_p99_ms"] <= 40 for row in plan["services"])
    assert all(row["workload"] == "net" and len(row["batch_ms"]) == row["batch"] for row in plan["services"])
    assert run(*words) == 0
    assert "1 x A100-80GB" in capsys.readouterr().out


def test_memory_and_batches_that_a_service_states(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stated.yaml"
    words = ("provision", str(path), "--gpu-type", "A100-80GB", "--mig", files[1], "--output", "json")
    path.write_text("services:\n  - {name: a, workload: net, rate: 50, p99: 80ms, memory: 25G, max_batch: 1}\n")
    assert run(*words) == 0
    for row in json.loads(capsys.readouterr().out)["services"]:
        assert row["batch"] == 1
        room_gib = {"3g.40gb": 39, "4g.40gb": 39, "7g.80gb": 78}[row["device"].split("@")[0]]
        assert 25 * 100 / row["share_pct"] <= room_gib
    path.write_text("services:\n  - {name: a, workload: net, rate: 50, p99: 80ms, memory: 90G}\n")
    assert run(*words) == 1
    assert "with 92160 MiB a process" in capsys.readouterr().err


def test_wrong_input(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    services, profiles = files
    trace = tmp_path / "trace.csv"
    trace.write_text("service,arrival_s\n" + "".join(f"*,{second}\n" for second in range(200)))
    for words, why in (
        (["--gpu-type", "V100"], "that GPU has no MIG"),
        (["--gpu-type", "A100-80GB", "--arrivals", f"trace:{trace}"], "expected poisson or regular"),
        (["--gpu-type", "A100-80GB", "--strategy", "igniter"], "is not for MIG instances"),
        (["--gpu-type", "A100-80GB,A30"], "expected A100-80GB="),
        (["--gpu-type", "A100-80GB", "--mig", profiles], "is given twice"),
        (["--gpu-type", "A100-80GB", "--report", profiles], "is a file that is read here"),
    ):
        assert run("provision", services, "--mig", profiles, *words) == 2
        assert why in capsys.readouterr().err
    (tmp_path / "other.yaml").write_text("services:\n  - {name: a, workload: nobody, rate: 5, p99: 40ms}\n")
    assert run("provision", str(tmp_path / "other.yaml"), "--gpu-type", "A100-80GB", "--mig", profiles) == 2
    assert "no profile of the model 'nobody': expected one of net, on A100-80GB" in capsys.readouterr().err


def test_a_promise_that_cannot_be_kept(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hard.yaml").write_text("services:\n  - {name: a, workload: net, rate: 5, p99: 1ms}\n")
    assert run("provision", str(tmp_path / "hard.yaml"), "--gpu-type", "A100-80GB", "--mig", files[1]) == 1
    assert "not placed: a: no instance of an A100-80GB keeps its p99 of 1 ms" in capsys.readouterr().err


def test_the_check_and_the_page(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    services, profiles = files
    page = tmp_path / "plan.html"
    words = ("provision", services, "--gpu-type", "A100-80GB", "--mig", profiles)
    assert run(*words, "--verify", "--report", str(page), "--output", "json") == 0
    printed = capsys.readouterr()
    plan = json.loads(printed.out)
    assert [verdict["held"] for verdict in plan["verification"]] == [True]
    assert "measured points that the plan is made from" in printed.err
    text = page.read_text()
    for row in plan["services"]:
        assert f">{row['device']}</div>" in text
    assert text.count('class="frame"') == len({row["device"] for row in plan["services"]})
    assert run(*words, "--compare", "--verify", "--output", "json") == 0
    rows = {row["strategy"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == ["gpuloom", "one-process", "whole-gpus"]
    assert all(row["gpus"] >= rows["gpuloom"]["gpus"] and row["simulated_within"] == 1 for row in rows.values())


def test_more_requests_leave_instances_where_they_are(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services, profiles = files
    words = ("provision", services, "--gpu-type", "A100-80GB", "--mig", profiles, "--output", "json")
    assert run(*words) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    before = json.loads(plan.read_text())
    assert run(*words, "--replan", str(plan)) == 0
    assert json.loads(capsys.readouterr().out)["moves"] == []
    text = Path(services).read_text()
    Path(services).write_text(text.replace("rate: 500", "rate: 3000"))
    assert run(*words, "--replan", str(plan), "--verify") == 0
    again = json.loads(capsys.readouterr().out)
    stayed = {(row["gpu"], row["device"], row["replica"]) for row in again["services"]}
    assert {(row["gpu"], row["device"], row["replica"]) for row in before["services"]} <= stayed
    assert all(move["from_gpu"] is None and "@" in move["to_device"] for move in again["moves"])
    assert again["gpus"] >= again["lower_bound_gpus"]
    assert run(*words[:-2], "--replan", str(plan)) == 0
    assert "new -> GPU 0 " in capsys.readouterr().err


def test_shares_and_instances_in_one_plan(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each service has a model that is known on one type only."""
    services, profiles = files
    path = Path(services)
    path.write_text(path.read_text() + "  - {name: b, workload: alexnet, rate: 100, p99: 30ms}\n")
    words = ("provision", services, "--gpu-type", "V100,A100-80GB", "--mig", profiles)
    assert run(*words, "--verify", "--report", str(tmp_path / "p.html"), "--output", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["gpu_type"] for row in plan["services"]} == {"a": "A100-80GB", "b": "V100"}
    assert plan["cost_per_hour"] == plan["lower_bound_cost"] == pytest.approx(3.06 + 5.12)
    assert all(len(row["batch_ms"]) == row["batch"] for row in plan["services"])
    assert "GPU 1 A100-80GB" in (tmp_path / "p.html").read_text()
    assert run(*words) == 0
    assert "1 x V100 + 1 x A100-80GB, $8.18 per hour" in capsys.readouterr().out
    assert run(*words, "--strategy", "igniter") == 2
    assert "is not for MIG instances" in capsys.readouterr().err
