"""`gpuloom provision` as a user types it: the contract with scripts, and one sentence for every wrong input."""

import csv
import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from gpuloom.cli.main import main
from gpuloom.serve.deployment import read_plan

EXAMPLE = Path(__file__).parents[3] / "examples" / "services.yaml"
CONTRACT = {"strategy", "gpus", "cost_per_hour", "lower_bound_gpus", "services", "unplaced"}
ROW = {"name", "gpu", "device", "share_pct", "batch", "replicas", "predicted_p99_ms", "slo_ms"}


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["provision", *arguments])
    return stop.value.code if isinstance(stop.value.code, int) else 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("gpuloom: ")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.fixture
def two(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(
        "services:\n  - {name: a, workload: resnet50, rate: 200, p99: 30ms}\n"
        "  - {name: b, workload: ssd, rate: 20, p99: 60ms}\n"
    )
    return file


def test_json_has_the_promised_names(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(two), "--verify", "--requests", "20000", "--runs", "4", "--output", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan.keys() >= CONTRACT
    assert all(row.keys() >= ROW for row in plan["services"])
    assert {row["name"]: row["workload"] for row in plan["services"]} == {"a": "resnet50", "b": "ssd"}
    assert all(verdict["held"] for verdict in plan["verification"])


def test_compare_and_report(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "plan.html"
    assert run(str(two), "--compare", "--arrivals", "regular", "--report", str(report), "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in rows] == ["gpuloom", "igniter", "gpulets", "gslice", "ffd"]
    assert "Latency budgets" in report.read_text()


def test_replan_tells_who_moves(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(two), "--output", "json") == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    two.write_text(two.read_text().replace("rate: 200", "rate: 240"))
    assert run(str(two), "--replan", str(plan), "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["moves"] == []
    assert run(str(two), "--replan", str(plan)) == 0
    assert "0 moved, 2 in all" in capsys.readouterr().err


def test_a_trace(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("service,arrival_s\n" + "".join(f"*,{0.01 * turn + turn % 3 * 0.001}\n" for turn in range(600)))
    assert run(str(two), "--arrivals", f"trace:{trace}", "--verify") == 0
    assert "gpuloom: 1 x V100" in capsys.readouterr().out
    trace.write_text("service,arrival_s\nc,1\n")
    assert "expected 100 or more" in refused(capsys, str(two), "--arrivals", f"trace:{trace}")


def test_no_gpu_can_meet_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tight.yaml"
    file.write_text("services: [{name: a, workload: vgg19, rate: 10, p99: 1ms}]\n")
    assert run(str(file)) == 1
    assert "not placed: a: 1 ms cannot be met" in capsys.readouterr().err


def test_one_sentence_for_wrong_input(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("services: [{name: a, workload: bert, rate: 10, p99: 10ms}]\n")
    assert "no profile of the model 'bert'" in refused(capsys, str(file))
    file.write_text("services: [{name: a, workload: ssd, rate: 0, p99: 10ms}]\n")
    assert "rate is 0" in refused(capsys, str(file))
    file.write_text("services: [{name: a, workload: ssd, rate: 1.0e+12, p99: 10ms}]\n")
    assert "rate" in refused(capsys, str(file))
    half = tmp_path / "half.jsonl"
    half.write_text('{"hardware": {"maxGPUfrequency": 1530}}\n{"resnet50": {"kernel": 80}}\n')
    assert "is the file cut short?" in refused(capsys, str(two), "--profile", str(half))
    assert "expected poisson, regular or trace:FILE" in refused(capsys, str(two), "--arrivals", "bursty")
    assert "did you mean 'igniter'" in refused(capsys, str(two), "--strategy", "ignitor")
    assert "no figures of services ship" in refused(capsys, str(two), "--gpu-type", "T4")
    assert "--solo-tables needs --measured" in refused(capsys, str(two), "--solo-tables")
    assert "is not JSON" in refused(capsys, str(two), "--replan", str(two))
    assert "is a file that is read here" in refused(capsys, str(two), "--report", str(two))
    assert "is a file that is read here" in refused(
        capsys, str(two), "--profile", f"V100={half}", "--report", str(half)
    )
    assert "has an empty name" in refused(capsys, str(two), "--gpu-type", "V100,")
    assert "expected V100=" in refused(capsys, str(two), "--gpu-type", "V100,T4", "--profile", str(half))
    assert "dollars an hour above 0" in refused(capsys, str(two), "--price", "free")


def test_the_example_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(EXAMPLE), "--arrivals", "regular", "--strategy", "igniter") == 0
    assert capsys.readouterr().out.startswith("igniter: 6 x V100, $18.36 per hour")
    assert run(str(EXAMPLE), "--arrivals", "regular", "--strategy", "gslice") in (0, 1)
    assert capsys.readouterr().out.startswith("gslice: 6 x V100")  # 5 in the order of the names


def test_a_bursty_trace_is_planned_for_or_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Thirty at once now and then: no steady rate comes near it, and a plan that is late must not look like a plan."""
    moments = np.cumsum(np.random.default_rng(1).exponential(0.3, 300))
    rows = [f"*,{moment + 1e-4 * k:.6f}" for n, moment in enumerate(moments) for k in range(30 if n % 4 == 0 else 1)]
    trace, file = tmp_path / "burst.csv", tmp_path / "one.yaml"
    trace.write_text("\n".join(["service,arrival_s", *sorted(rows, key=lambda row: float(row[2:]))]))
    file.write_text("services:\n  - {name: a, workload: ssd, rate: 100, p99: 150ms}\n")
    code = run(str(file), "--arrivals", f"trace:{trace}", "--output", "json")
    printed = capsys.readouterr()
    late = [row for row in json.loads(printed.out)["services"] if row["predicted_p99_ms"] > row["slo_ms"]]
    assert code == int(bool(late))
    assert ("late: a: p99" in printed.err) == bool(late)


def test_peers_that_forget_the_memory_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "large.yaml"
    line = "  - {{name: {0}, workload: resnet50, rate: 20, p99: 90ms, memory: 12G}}\n"
    file.write_text("services:\n" + line.format("a") + line.format("b"))
    assert run(str(file), "--compare", "--output", "json") == 0
    over = {row["strategy"]: row["gpus_over_memory"] for row in json.loads(capsys.readouterr().out)}
    assert over["gpuloom"] == 0
    assert over["igniter"] == 1


@pytest.mark.parametrize("name", ["gpuloom", "igniter", "gpulets", "gslice", "ffd"])
def test_a_rate_beyond_all_gpus_is_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flood.yaml"
    file.write_text("services: [{name: a, workload: resnet50, rate: 1000000000, p99: 40ms}]\n")
    assert run(str(file), "--strategy", name) == 1
    assert "not placed: a: 1e+09 requests per second need more than 10,000 replicas" in capsys.readouterr().err


def test_two_types_of_shares_in_one_plan(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cheap type that is as fast, but has too little memory for one service."""
    file, plan = tmp_path / "three.yaml", tmp_path / "plan.json"
    file.write_text(
        "services:\n  - {name: a, workload: resnet50, rate: 800, p99: 40ms}\n"
        "  - {name: b, workload: ssd, rate: 80, p99: 60ms}\n"
        "  - {name: large, workload: resnet50, rate: 20, p99: 60ms, memory: 16000}\n"
    )
    profile = f"T4={data_dir / 'igniter' / 'profile_v100.jsonl'}"
    words = (str(file), "--gpu-type", "V100,T4", "--profile", profile)
    assert "no price of T4 is known" in refused(capsys, *words)
    assert run(*words, "--price", "T4=0.5", "--verify", "--output", "json") == 0
    printed = capsys.readouterr().out
    mixed = json.loads(printed)
    assert {row["gpu_type"] for row in mixed["services"] if row["name"] == "large"} == {"V100"}
    assert mixed["gpus_by_type"] == {"V100": 1, "T4": 1}
    assert mixed["cost_per_hour"] == pytest.approx(3.56)
    assert mixed["lower_bound_cost"] == pytest.approx(3.56)
    assert mixed.keys() >= CONTRACT
    plan.write_text(printed)
    file.write_text(
        file.read_text().replace("rate: 800", "rate: 810") + "  - {name: c, workload: ssd, rate: 5, p99: 80ms}\n"
    )
    assert run(*words, "--price", "T4=0.5", "--replan", str(plan), "--output", "json") == 0
    again = json.loads(capsys.readouterr().out)
    assert [(move["service"], move["from_gpu"]) for move in again["moves"]] == [("c", None)]
    assert run(*words[:1], "--replan", str(plan)) == 2
    assert "the old plan is for T4, not V100" in capsys.readouterr().err
    deployment = read_plan(plan)
    assert [deployment.plan.type_of(replica.grant.gpu) for replica in deployment.plan.of("large")] == ["V100"]
    assert set(deployment.batch_ms) == {(row["name"], row["replica"]) for row in mixed["services"]}


def measurements(path: Path, models: tuple[str, ...], slowdown: float = 1.02) -> Path:
    """Made-up tables and pairs, in iGniter's format: all models as fast as each other."""
    shares = ("10", "50", "100")
    table = {str(batch): {share: 2.0 + 20.0 * batch / float(share) for share in shares} for batch in (1, 8, 32)}
    lines: list[dict[str, object]] = []
    for model in models:
        use = {batch: dict.fromkeys(row, 20.0) for batch, row in table.items()}
        lines += [{model: {"latency": table}}, {model: {"l2cache": use}}]
    pair_ms = slowdown * table["8"]["50"]
    pairs = [[model, other, 8, 8, 50, pair_ms, pair_ms] for model in models for other in models]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"interference": {"latency": pairs}}]))
    return path


@pytest.mark.parametrize("models", [("resnet50", "ssd"), ("alexnet", "bert", "resnet50", "ssd", "vgg19")])
def test_measurements_of_some_models_or_of_others_too(
    models: tuple[str, ...], two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the models of the plan must be among them."""
    file = str(measurements(tmp_path / "measured.jsonl", models))
    assert run(str(two), "--measured", file, "--solo-tables", "--verify", "--output", "json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [verdict["name"] for verdict in json.loads(printed.out)["verification"]] == ["a", "b"]
    measurements(tmp_path / "measured.jsonl", models, slowdown=1.8)
    assert run(str(two), "--measured", file, "--solo-tables", "--verify", "--output", "json") == 1
    assert not all(verdict["held"] for verdict in json.loads(capsys.readouterr().out)["verification"])


def test_measurements_that_do_not_speak_of_the_plan(
    two: Path, tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "measured.jsonl"
    text = measurements(file, ("resnet50",)).read_text()
    assert "no solo table of ssd: expected one" in refused(capsys, str(two), "--measured", str(file), "--verify")
    measurements(file, ("resnet50", "ssd"))
    lines = [line for line in file.read_text().splitlines() if not line.startswith('{"ssd": {"l2cache"')]
    file.write_text("\n".join([*lines[:-1], text.splitlines()[-1]]))
    assert "no use of L2 of ssd" in refused(capsys, str(two), "--measured", str(file), "--verify")
    file.write_text(lines[-1] + "\n")
    assert "has pairs only: expected solo tables" in refused(capsys, str(two), "--measured", str(file))
    profile = f"T4={data_dir / 'igniter' / 'profile_v100.jsonl'}"
    words = ("--gpu-type", "T4", "--profile", profile, "--measured", str(measurements(file, ("resnet50", "ssd"))))
    assert run(str(two), *words, "--verify") == 0
    assert "T4 is not what --measured was measured on" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_what_is_assumed_is_said_apart_from_the_plan(
    output: str, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(two), "--verify", "--requests", "1000", "--runs", "2", "--output", output) in (0, 1)
    printed = capsys.readouterr()
    assert printed.err == "no --measured FILE: the check simulates the planner's own predictions\n"
    assert "the check simulates" not in printed.out


def test_csv_has_a_row_for_each_replica(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two.write_text(two.read_text().replace("rate: 200", "rate: 3000"))
    assert run(str(two), "--output", "csv") == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert sum(float(row["rate_rps"]) for row in rows if row["service"] == "a") == pytest.approx(3000, rel=1e-3)
    assert [int(row["replica"]) for row in rows if row["service"] == "a"] == list(range(len(rows) - 1))
    assert {row["slo_ms"] for row in rows} == {"30.0", "60.0"}


def test_one_strategy_at_a_time(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert run(str(two), "--output", "json") == 0
    plan.write_text(capsys.readouterr().out)
    words = ("--replan", str(plan))
    assert "expected one of them, not both" in refused(capsys, str(two), *words, "--compare")
    assert "the only one that stays near a plan" in refused(capsys, str(two), *words, "--strategy", "ffd")
    broken = json.loads(plan.read_text())
    broken["services"][1]["batch"] = 0
    plan.write_text(json.dumps(broken))
    assert "services[1].batch is 0, but must be a whole number from 1" in refused(capsys, str(two), *words)
    assert "is given twice for V100" in refused(capsys, str(two), "--price", "V100=2", "--price", "3")


def test_peers_know_one_type(tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T4 has a profile without vgg19, so the peers cannot have everybody there; ours puts each where it is known."""
    lines = (data_dir / "igniter" / "profile_v100.jsonl").read_text().splitlines()
    small = tmp_path / "small.jsonl"
    small.write_text("\n".join(line for line in lines if '"vgg19"' not in line.split(":")[0]))
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(line for line in lines if '"ssd"' not in line.split(":")[0]))
    file = tmp_path / "both.yaml"
    line = "  - {{name: {0}, workload: {1}, rate: 20, p99: 90ms}}\n"
    file.write_text("services:\n" + line.format("a", "vgg19") + line.format("b", "ssd"))
    words = ("--gpu-type", "V100,T4", "--price", "T4=1", "--profile", f"T4={small}", "--profile", f"V100={other}")
    assert run(str(file), *words, "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)["services"]
    assert {row["name"]: row["gpu_type"] for row in rows} == {"a": "V100", "b": "T4"}
    assert "knows all models on no single type: expected gpuloom" in refused(
        capsys, str(file), *words, "--strategy", "igniter"
    )
    assert run(str(file), *words, "--compare", "--output", "json") == 0
    assert [row["strategy"] for row in json.loads(capsys.readouterr().out)] == ["gpuloom"]


def latency_profile(folder: Path, device: str = "T4", p99_ms: float | None = None, **more: object) -> Path:
    """Of two models whose batches take a fixed time and one for each item; beside others a tenth longer."""
    sizes = {"fast": (2.0, 0.2), "slow": (4.0, 1.0)}
    models, pairs = {}, []
    for name, (fixed, each) in sizes.items():
        grid = {(b, s): fixed + each * b * 100 / s for b in (1, 2, 4, 8) for s in (20, 40, 60, 80, 100)}
        models[name] = [
            {"batch": b, "share_pct": s, "latency_ms": ms, "p95_ms": 1.05 * ms, "p99_ms": p99_ms or 1.1 * ms}
            for (b, s), ms in grid.items()
        ]
        for other in sizes:
            for batch, share in ((1, 20), (8, 40), (8, 60), (2, 80)):
                row = {"model": name, "batch": batch, "share_pct": share, "latency_ms": 1.1 * grid[batch, share]}
                pairs.append(row | {"neighbour": other, "neighbour_batch": 8, "neighbour_share_pct": 100 - share})
    content = {"format": "gpuloom latency profile", "version": 1, "device": {"name": device, "mem_mib": 16000}}
    file = folder / "profile.json"
    file.write_text(json.dumps({**content, "models": models, "pairs": pairs, **more}))
    return file


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.yaml"
    file.write_text(
        "services:\n  - {name: a, workload: fast, rate: 300, p99: 20ms}\n"
        "  - {name: b, workload: slow, rate: 60, p99: 40ms}\n"
    )
    return file


def test_a_latency_profile_names_its_device(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = latency_profile(tmp_path)
    assert run(str(own), "--profile", str(profile), "--verify", "--output", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["gpu_type"], plan["gpus"]) == ("T4", 1)
    assert all(row["predicted_p99_ms"] <= row["slo_ms"] for row in plan["services"])
    assert all(verdict["held"] for verdict in plan["verification"])
    assert max(row["batch"] for row in plan["services"]) <= 8  # larger ones were not measured


def test_the_blind_plan_breaks_what_ours_keeps(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = latency_profile(tmp_path)
    run(str(own), "--profile", str(profile), "--compare", "--margin", "0", "--output", "json")
    rows = {row["strategy"]: row for row in json.loads(capsys.readouterr().out)}
    assert [*rows] == ["gpuloom", "alone"]
    assert rows["gpuloom"]["predicted_late"] == 0
    assert run(str(own), "--profile", str(profile), "--strategy", "alone", "--output", "json") in (0, 1)
    assert json.loads(capsys.readouterr().out)["strategy"] == "alone"


def test_wrong_input_with_a_latency_profile(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = str(latency_profile(tmp_path))
    assert "was measured on T4, not on V100" in refused(capsys, str(own), "--profile", profile, "--gpu-type", "V100")
    assert "only latencies are known on T4" in refused(capsys, str(own), "--profile", profile, "--strategy", "igniter")
    assert "no figures of services ship" in refused(capsys, str(own), "--gpu-type", "cpu")
    other = own.parent / "other.yaml"
    other.write_text("services: [{name: a, workload: resnet50, rate: 1, p99: 1s}]")
    assert "expected one of fast, slow" in refused(capsys, str(other), "--profile", profile)


def test_without_pairs_that_is_said(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(own), "--profile", str(latency_profile(tmp_path, pairs=[]))) == 0
    assert "no pairs were measured" in capsys.readouterr().err


def test_what_may_be_a_mistake_in_a_profile_is_said(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a damaged one is not told to be in the other format."""
    profile = latency_profile(tmp_path, p99_ms=1.0)
    run(str(own), "--profile", str(profile))
    assert f"{profile}: p99_ms of fast at batch 1 on 20 % is below the mean (and 39 more)" in capsys.readouterr().err
    profile.write_text(profile.read_text()[:2000])
    assert "expected a latency profile as `gpuloom measure service`" in refused(
        capsys, str(own), "--profile", str(profile)
    )


def test_a_tail_beyond_the_promise_is_said(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Means and p95s know nothing of it, so neither does what is predicted."""
    run(str(own), "--profile", str(latency_profile(tmp_path, p99_ms=30.0)))
    said = capsys.readouterr().err
    assert (
        "service a: 1 in 100 requests of fast took 30 ms or longer, alone and at best: no plan keeps a p99 of 20 ms"
        in said
    )
    assert "service b" not in said


def test_shares_below_what_was_measured_are_said(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text("services:\n  - {name: a, workload: fast, rate: 1, p99: 500ms}\n")
    assert run(str(own), "--profile", str(latency_profile(tmp_path))) == 0
    assert "20 % was the least): slower in proportion, it is assumed" in capsys.readouterr().err


def test_models_that_nobody_asks_for_cost_nothing(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = latency_profile(tmp_path)
    assert run(str(own), "--profile", str(profile), "-o", "json") == 0
    before = capsys.readouterr().out
    told = json.loads(profile.read_text())
    told["models"] |= {f"other-{number}": told["models"]["slow"] for number in range(40)}
    profile.write_text(json.dumps(told))
    assert run(str(own), "--profile", str(profile), "-o", "json") == 0
    assert capsys.readouterr().out == before
