"""From models to servers that keep their promises, with no figure of anybody else: measured, planned, served, asked.

Three models that compute (examples/models: mixer, encoder, wide) are measured by `gpuloom measure service` on a CPU
device, planned by `gpuloom provision` from that profile alone, served by `gpuloom serve up` with genuine Triton, and
asked by `gpuloom load` at random times. Beside it stands the plan that ignores interference (strategy alone), from the
same profile for the same services. Promises and rates follow from what was measured, before anything is served: a p99
of SLO_FACTOR times a batch of one alone on half of the device; rates in proportion to what each model does at its best
on a quarter of it, as high as gpuloom's planner can place on one device (in steps of a tenth). Gateway and load
generator run beside the device, so it has to leave them something: a part of the CPUs, not all of them.

Each round serves both plans, in turns, and asks all services at once. Where a p99 is above its promise, `serve` gives
the service a larger share; that is part of what is served, and counted.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from cpu_shares import GPULOOM
from gpuloom.gpus.host.noise import Noise
from gpuloom.serve.state import read_events
from gpuloom.sim.compare.statistics import mean_and_error
from gpuloom.work.measured.latency_profiles import LatencyProfile, read_latency_profile

MODELS = Path(__file__).resolve().parents[1] / "examples" / "models"
NAMES = ("mixer", "encoder", "wide")
STRATEGIES = ("gpuloom", "alone")
SLO_FACTOR = 25.0
PARTS = tuple(part / 10 for part in range(10, 0, -1))
"""Of what the models do at their best on a quarter of the device."""


@dataclass(frozen=True, slots=True)
class Setting:
    device: str
    rounds: int
    load_s: float
    seed: int


def measure_services(device: str, rounds: int, load_s: float, seed: int, kept: Path | None) -> dict[str, object]:
    """`kept`: a state folder of `measure service` that is used, and gone on with, instead of a new one."""
    with tempfile.TemporaryDirectory(prefix="cpu-services-") as folder:
        state = kept or Path(folder) / "measured"
        measured = _measure(device, state)
        profile = read_latency_profile(state / "profile.json")
        work = Path(folder) / "services.yaml"
        load, plans = _planned(profile, state / "profile.json", work)
        shown = {name: _shown(json.loads(path.read_text())) for name, path in plans.items()}
        setting = Setting(device, rounds, load_s, seed)
        found = [
            _serve(strategy, number, plans[strategy], state / "models", Path(folder), setting)
            for number in range(rounds)
            for strategy in (STRATEGIES if number % 2 == 0 else STRATEGIES[::-1])
        ]
    return {
        "device": profile.device,
        "measured": measured,
        "held_out": _held_out(profile),
        "slo_factor": SLO_FACTOR,
        "load_of_the_best_on_a_quarter": load,
        "plans": shown,
        "strategies": [_summary(strategy, found) for strategy in STRATEGIES],
        "rounds": found,
    }


def _run(*words: object, codes: Sequence[int] = (0,)) -> Any:
    done = subprocess.run([*GPULOOM, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"gpuloom {words[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout) if done.stdout.strip() else None


def _measure(device: str, state: Path) -> dict[str, object]:
    models = [word for name in NAMES for word in ("-m", MODELS / name)]
    body = ("--body", MODELS / "request.json")
    bounds = ("--seconds", "2s", "--repeat", 2, "--most", 2)
    told = _run("measure", "service", "--device", device, *models, *body, *bounds, "--state", state, "-o", "json")
    widths = [50 * (one["high_ms"] - one["low_ms"]) / one["latency_ms"] for one in told["points"] if "low_ms" in one]
    return {
        "points": len(told["points"]),
        "failed": told["failed"],
        "minutes": round(told["spent_s"] / 60, 1),
        "median_half_interval_pct": round(median(widths), 1) if widths else None,
        "noise": told["noise"],
    }


def _held_out(profile: LatencyProfile) -> dict[str, object]:
    """Of the interference model that plans, on pairs with a model that it was not fitted on; beside no interference."""
    from gpuloom.perf.sharing.latency_only import fit_latency_only, services_of
    from gpuloom.perf.sharing.pairs import Pairs, containing, models_of, without

    services = services_of(profile.alone_ms, profile.p95_ms)
    errors, blind = list[float](), list[float]()
    for model in models_of(profile.pairs):
        fitted = fit_latency_only(services, without(profile.pairs, model))
        pairs = Pairs.of(containing(profile.pairs, model), tuple(services))
        seen = pairs.measured_ms
        errors += [float(x) for x in fitted.latencies(pairs.crowd).total_ms[:, 0] / seen - 1]
        alone = fit_latency_only(services, ()).latencies(pairs.crowd).total_ms[:, 0]
        blind += [float(x) for x in alone / seen - 1]
    return {
        "rows": len(errors),
        "mean_error": round(mean(map(abs, errors)), 4) if errors else None,
        "mean_error_without_interference": round(mean(map(abs, blind)), 4) if blind else None,
        "bias_without_interference": round(mean(blind), 4) if blind else None,
    }


def _planned(profile: LatencyProfile, file: Path, work: Path) -> tuple[float, dict[str, Path]]:
    """How high the load is, and a plan for each strategy."""
    for part in PARTS:
        rows = [_service(name, profile.alone_ms[name], part) for name in NAMES]
        work.write_text(json.dumps({"services": rows}), encoding="utf-8")
        told = _run("provision", work, "--profile", file, "-o", "json", codes=(0, 1))
        if told is not None and told["gpus"] == 1 and not told["unplaced"]:
            break
    else:
        raise SystemExit("the services do not fit on one device at any load")
    plans = {}
    for strategy in STRATEGIES:
        words = ("provision", work, "--profile", file, "--strategy", strategy, "-o", "json")
        plans[strategy] = work.with_name(f"{strategy}.json")
        plans[strategy].write_text(json.dumps(_run(*words, codes=(0, 1))), encoding="utf-8")
    return part, plans


def _service(name: str, grid: Mapping[tuple[int, float], float], part: float) -> dict[str, object]:
    best_rps = max(1000 * batch / ms for (batch, share), ms in grid.items() if share == 25)
    return {
        "name": name,
        "workload": name,
        "rate": round(part * best_rps, 2),
        "p99": f"{SLO_FACTOR * grid[1, 50.0]:.0f}ms",
    }


def _shown(plan: Mapping[str, Any]) -> list[dict[str, object]]:
    names = ("name", "share_pct", "batch", "rate_rps", "predicted_p99_ms", "slo_ms")
    return [{name: row[name] for name in names} for row in plan["services"]]


def _serve(strategy: str, number: int, plan: Path, models: Path, folder: Path, setting: Setting) -> dict[str, Any]:
    state = folder / f"serve-{strategy}"
    words = ("serve", "up", plan, "--models", models, "--device", setting.device, "--state", state, "--detach")
    subprocess.run([*GPULOOM, *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        load = ("load", state, "--body", MODELS / "request.json", "--duration", setting.load_s)
        told = _run(*load, "--seed", setting.seed + 100 * number, "-o", "json", codes=(0, 1))
        switched = sum(event["event"] == "switched" for event in read_events(state)) - len(told["services"])
    finally:
        subprocess.run([*GPULOOM, "serve", "down", "--state", str(state)], check=True, stderr=subprocess.DEVNULL)
    predicted = {row["name"]: row["predicted_p99_ms"] for row in json.loads(plan.read_text())["services"]}
    rows = [
        {
            "service": row["service"],
            "planned_p99_ms": round(predicted[row["service"]], 1),
            "seen_p99_ms": round(row["p99_ms"], 1),
            "slo_ms": row["slo_ms"],
            "requests": row["requests"],
            "above_slo": row["above_slo"],
            "lost": row["lost"] + row["failed"],
            "kept": row["kept"],
        }
        for row in told["services"]
    ]
    noise = None if told["noise"] is None else Noise(**told["noise"]).spread_pct
    seen = ", ".join(f"{row['service']} {row['seen_p99_ms']} of {row['slo_ms']:g} ms" for row in rows)
    print(f"services: round {number + 1}, {strategy}: {seen}", file=sys.stderr, flush=True)
    return {
        "strategy": strategy,
        "round": number + 1,
        "noise_pct": noise,
        "moved_to_a_larger_share": max(switched, 0),
        "services": rows,
    }


def _summary(strategy: str, found: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    own = [one for one in found if one["strategy"] == strategy]
    rows = [row for one in own for row in one["services"]]
    ratio, error = mean_and_error([row["seen_p99_ms"] / row["planned_p99_ms"] for row in rows])
    return {
        "strategy": strategy,
        "promises": len(rows),
        "kept": sum(row["kept"] for row in rows),
        "seen_to_planned_p99": None if ratio is None else round(ratio, 3),
        "seen_to_planned_p99_stderr": None if error is None else round(error, 3),
        "requests": sum(row["requests"] for row in rows),
        "above_slo": sum(row["above_slo"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "moved_to_a_larger_share": sum(one["moved_to_a_larger_share"] for one in own),
        "noise_pct": [one["noise_pct"] for one in own],
    }
