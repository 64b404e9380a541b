"""The whole loop on a real device: trainings on this machine's CPUs, queued, probed, cut and moved by `gpuloom run`.

    python benchmarks/cpu_loop.py --part miso --runs 3
    python benchmarks/cpu_loop.py --part shares --rounds 20
    python benchmarks/cpu_loop.py --part memory
    python benchmarks/cpu_loop.py --part periods --rounds 5
    python benchmarks/cpu_loop.py --part services --runs 3

miso    20 jobs of the four kinds of examples/small_training.py, the same for every policy, submitted over time. Every
        policy runs once before any runs again, and each run begins with another. Beside completion times: what probes
        predicted of each workload on each profile against what its jobs then reported there, relative to its rate alone
        on the whole device, which is measured before. A run that fails is listed, and its policy has no mean then.
shares  is a share what it is called, alone and with busy neighbours? See cpu_shares.py
memory  a job that takes more than its instance has is killed; its neighbours go on
periods how much of what a quota promises is had with shorter and longer periods? See cpu_periods.py
services three models measured, planned, served and asked; beside them the plan that ignores interference. See
        cpu_services.py

Times are real seconds. The runs count `--pace` seconds in each, because policies' constants are for jobs of minutes.
Needs what `gpuloom run --device cpu` needs, and a machine that does nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from cpu_periods import measure_periods
from cpu_services import measure_services
from cpu_shares import GPULOOM, measure_shares
from gpuloom.engine.events import Event, GpuCut, GpuProbed, JobCrashed, JobReported, JobStarted, JobStopped
from gpuloom.engine.log import Header, read
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.grant import Grants
from gpuloom.gpus.host.cpu import parse_devices, this_machine
from gpuloom.sim.compare.statistics import mean_and_error

TRAINING = Path(__file__).resolve().parents[1] / "examples" / "small_training.py"
STEP_S = {"mlp": 0.085, "single": 0.105, "embedding": 0.105, "loader": 0.115}
"""About what a step takes alone on two cores: only how long jobs are depends on it."""
MEM_MIB = {"mlp": 256, "single": 128, "embedding": 512, "loader": 128}
POLICIES = ("whole-fifo", "static:3,2,2", "mps-only:2", "mps-only:3", "miso")
BASELINES = ("whole-fifo", "miso")
MEDIAN_S, SPREAD, LEAST_S, MOST_S, GAP_S = 6.0, 0.7, 3.0, 30.0, 5.0
"""Of the lengths (log-normal, alone on the whole device), and the mean time between two jobs."""
ALONE_S = 8.0
SERVED_ON = "cpu=70%"
"""The rest is for the gateway and those who ask."""
TIMING_S = {"grace_s": 10.0, "up_s": 5.0, "level_s": 2.0, "report_s": 2.0}
"""Of `--timing`, in real seconds. At the lowest level the slowest kind takes 0.6 s for a step."""
HOG = """
import sys
kept = [b"x" * (1 << 20) for _ in range(int(sys.argv[1]))]
"""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A job of the mix."""

    name: str
    kind: str
    steps: int
    submit_s: float = 0.0

    def written(self, pace: float, seed: int) -> dict[str, object]:
        """As a work file has it."""
        return {
            "name": self.name,
            "workload": f"small {self.kind}",
            "memory": MEM_MIB[self.kind],
            "length": round(self.steps * STEP_S[self.kind] * pace, 1),
            "submit": round(self.submit_s * pace, 1),
            "command": [
                sys.executable, str(TRAINING), self.kind, "--steps", str(self.steps), "--seed", str(seed),
            ],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    device: str
    pace: float


@dataclass(frozen=True, slots=True)
class Ran:
    """What `gpuloom run` said, and what its log says."""

    code: int
    seconds: float
    told: dict[str, Any] | None
    complaint: str
    entries: tuple[Event | Decision, ...]
    log: tuple[str, ...]

    @property
    def failed(self) -> str | None:
        """Why, in a sentence; None if all jobs completed."""
        if self.told is None:
            return f"exit code {self.code}: {self.complaint}"
        ended = [f"{job['job']}: {job['state']} ({job['cause']})" for job in self.told["jobs"] if not _done(job)]
        if ended or self.code:
            return f"exit code {self.code}: {'; '.join(ended) or self.complaint}"
        return None


def _done(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "completed")


def drawn_jobs(number: int, scale: float, seed: int) -> list[Drawn]:
    """As many of each kind as can be, in a random order, over a random time."""
    dice = np.random.default_rng(seed)
    kinds = [*STEP_S]
    mix = dice.permutation([kinds[at % len(kinds)] for at in range(number)])
    lengths_s = np.clip(dice.lognormal(np.log(MEDIAN_S), SPREAD, number), LEAST_S, MOST_S) * scale
    gaps_s = np.concatenate([[0.0], dice.exponential(GAP_S, number - 1)]) * scale
    return [
        Drawn(f"{at:02}-{kind}", str(kind), max(round(length_s / STEP_S[str(kind)]), 4), round(float(submit_s), 2))
        for at, (kind, length_s, submit_s) in enumerate(zip(mix, lengths_s, np.cumsum(gaps_s), strict=True))
    ]


def run(
    jobs: Sequence[dict[str, object]], policy: str, setting: Setting, timing_s: Mapping[str, float] = TIMING_S
) -> Ran:
    """In a state folder of its own, as a user would. `timing_s`: of the real clock."""
    with tempfile.TemporaryDirectory(prefix="cpu-loop-") as folder:
        work, state = Path(folder) / "jobs.yaml", Path(folder) / "state"
        work.write_text(json.dumps({"jobs": jobs}), encoding="utf-8")
        words = ["run", work, "--state", state, "--device", setting.device, "--policy", policy]
        words += ["--pace", setting.pace, "--memory", "none", "--output", "json"]  # each run knows as little
        for name, seconds in timing_s.items():
            words += ["--timing", f"{name}={seconds * setting.pace:g}"]
        began_s = time.monotonic()
        done = subprocess.run([*GPULOOM, *map(str, words)], capture_output=True, text=True, check=False)
        passed_s = time.monotonic() - began_s
        complaint = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        log = _lines(state / "log.jsonl")
        return Ran(done.returncode, passed_s, _json(done.stdout), complaint, tuple(_entries(log)), log)


def _json(text: str) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return told


def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines(keepends=True)) if path.exists() else ()


def _entries(log: Sequence[str]) -> Iterator[Event | Decision]:
    """As far as it can be read."""
    try:
        for entry in read(log, "log.jsonl"):
            if not isinstance(entry, Header):
                yield entry
    except InputError as reason:
        print(f"the log of a run cannot be read to its end: {reason}", file=sys.stderr, flush=True)


# ---- what the log tells -----------------------------------------------------------------------------------------


def reported(entries: Sequence[Event | Decision], kinds: dict[str, str]) -> dict[tuple[str, str], list[float]]:
    """Rates by kind of work and profile ("whole" for a device for itself)."""
    grants: dict[str, Grants] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    for entry in entries:
        if isinstance(entry, Decision) and entry.rejected is None:
            grants |= entry.plan.grants
        elif isinstance(entry, JobReported) and entry.report.batches_per_s is not None:
            held = grants.get(entry.job_id, ())
            if len(held) == 1:
                instance = held[0].instance
                place = "whole" if instance is None else instance.profile
                rates.setdefault((kinds[entry.job_id], place), []).append(entry.report.batches_per_s)
    return rates


def predictions(
    entries: Sequence[Event | Decision], kinds: dict[str, str], alone: dict[str, float]
) -> list[dict[str, object]]:
    """Each speed that a probe predicted and that was seen later or before, relative to the whole device."""
    seen = reported(entries, kinds)
    rows: list[dict[str, object]] = []
    for entry in entries:
        for job_id, estimates in entry.estimates.items() if isinstance(entry, GpuProbed) else ():
            for profile, estimate in estimates.items():
                rates = seen.get((kinds[job_id], profile))
                if rates and kinds[job_id] in alone:
                    speed = median(rates) / alone[kinds[job_id]]
                    rows.append(
                        {
                            "probed_s": entry.at_s,
                            "job": job_id,
                            "profile": profile,
                            "predicted": round(estimate.speed, 4),
                            "low": round(estimate.low, 4),
                            "high": round(estimate.high, 4),
                            "seen": round(speed, 4),
                            "reports": len(rates),
                        }
                    )
    return rows


def counted(entries: Sequence[Event | Decision]) -> dict[str, int]:
    kinds = {"probes": GpuProbed, "cuts": GpuCut, "starts": JobStarted, "crashes": JobCrashed}
    return {name: sum(isinstance(entry, kind) for entry in entries) for name, kind in kinds.items()}


def restarts_s(entries: Sequence[Event | Decision], pace: float) -> list[float]:
    """From when each job had stopped to when it worked again: what a move costs beside saving, and any wait."""
    stopped_s: dict[str, float] = {}
    found = []
    for entry in entries:
        if isinstance(entry, JobStopped):
            stopped_s[entry.job_id] = entry.at_s
        elif isinstance(entry, JobStarted) and entry.job_id in stopped_s:
            found.append((entry.at_s - stopped_s.pop(entry.job_id)) / pace)
    return found


# ---- policies ---------------------------------------------------------------------------------------------------


def alone_rates(setting: Setting, scale: float, seed: int) -> tuple[dict[str, float], dict[str, object]]:
    """Of each kind on the whole device, one after the other; and how that run went."""
    jobs = [Drawn(kind, kind, max(round(ALONE_S * scale / step_s), 4)) for kind, step_s in STEP_S.items()]
    ran = run([job.written(setting.pace, seed) for job in jobs], "whole-fifo", setting)
    seen = reported(ran.entries, {job.name: job.kind for job in jobs})
    rates = {kind: median(seen[kind, "whole"]) for kind in STEP_S if (kind, "whole") in seen}
    shown = {kind: round(rate * setting.pace, 3) for kind, rate in rates.items()}
    return rates, {"failed": ran.failed, "noise": _noise(ran), "steps_per_s": shown}


def _noise(ran: Ran) -> Any:
    return None if ran.told is None else ran.told.get("noise")


def one_run(
    jobs: Sequence[Drawn], policy: str, number: int, alone: dict[str, float], setting: Setting, seed: int
) -> dict[str, Any]:
    ran = run([job.written(setting.pace, seed + at) for at, job in enumerate(jobs)], policy, setting)
    told = {} if ran.told is None else {row["job"]: row for row in ran.told["jobs"]}
    rows = []
    for job in jobs:
        row = told.get(job.name, {})
        ended_s = None if row.get("ended_s") is None else row["ended_s"] / setting.pace
        took_s = None if ended_s is None else round(ended_s - job.submit_s, 2)
        rows.append(asdict(job) | {"state": row.get("state"), "completion_s": took_s})
    fine, restarts = ran.failed is None, restarts_s(ran.entries, setting.pace)
    ends_s = [job.submit_s + row["completion_s"] for job, row in zip(jobs, rows, strict=True)] if fine else []
    return {
        "policy": policy,
        "run": number,
        "failed": ran.failed,
        "completion_s": round(mean(row["completion_s"] for row in rows), 3) if fine else None,
        "makespan_s": round(max(ends_s) - min(job.submit_s for job in jobs), 3) if fine else None,
        "seconds": round(ran.seconds, 1),
        "noise": _noise(ran),
        "host_load": round(os.getloadavg()[0], 2),
        **counted(ran.entries),
        "median_restart_s": rounded(median(restarts)) if restarts else None,
        "predictions": predictions(ran.entries, {job.name: job.kind for job in jobs}, alone),
        "jobs": rows,
    }


def compare(arguments: argparse.Namespace) -> dict[str, object]:
    setting = Setting(arguments.device, arguments.pace)
    jobs = drawn_jobs(arguments.jobs, arguments.scale, arguments.seed)
    print("miso: each kind alone", file=sys.stderr, flush=True)
    alone, alone_shown = alone_rates(setting, arguments.scale, arguments.seed)
    policies = list(arguments.policies.split())
    runs = []
    for number in range(arguments.runs):
        turn = number % len(policies)
        for policy in [*policies[turn:], *policies[:turn]]:
            found = one_run(jobs, policy, number + 1, alone, setting, arguments.seed)
            went = found["failed"] or f"mean completion {found['completion_s']} s"
            print(f"miso: run {number + 1}, {policy}: {went}", file=sys.stderr, flush=True)
            runs.append(found)
    return {
        "device": parse_devices([arguments.device], this_machine())[0].name,
        "pace": arguments.pace,
        "jobs": len(jobs),
        "work_s": round(sum(job.steps * STEP_S[job.kind] for job in jobs), 1),
        "submitted_over_s": jobs[-1].submit_s,
        "alone": alone_shown,
        "policies": [summary(policy, runs) for policy in policies],
        "predictions": prediction_summary(runs),
        "runs": runs,
    }


def summary(policy: str, runs: Sequence[dict[str, Any]]) -> dict[str, object]:
    """A mean is unknown if a run failed: who drops the failures flatters."""
    by_run = {(found["policy"], found["run"]): found for found in runs}
    ours = [found for found in runs if found["policy"] == policy]
    row: dict[str, object] = {"policy": policy, "runs": len(ours), "failed": sum(bool(one["failed"]) for one in ours)}
    for name in ("completion_s", "makespan_s"):
        value, error = mean_and_error([found[name] for found in ours])
        row |= {name: rounded(value), f"{name.removesuffix('_s')}_stderr_s": rounded(error)}
    for baseline in BASELINES:
        theirs = [by_run.get((baseline, found["run"]), {}).get("completion_s") for found in ours]
        pairs = zip([found["completion_s"] for found in ours], theirs, strict=True)
        ratio, error = mean_and_error([one / other if one and other else None for one, other in pairs])
        row |= {f"ratio_to_{baseline}": rounded(ratio), f"ratio_to_{baseline}_stderr": rounded(error)}
    noise = [found["noise"]["spread_pct"] for found in ours if found["noise"]]
    return row | {"noise_spread_pct": rounded(median(noise)) if noise else None}


def prediction_summary(runs: Sequence[dict[str, Any]]) -> dict[str, object]:
    """Over all speeds that were both predicted and seen, but for 7c, where every speed is 1 by definition."""
    rows = [row for found in runs for row in found["predictions"] if row["profile"] != "7c"]
    errors = [row["predicted"] - row["seen"] for row in rows]
    within = [row["low"] <= row["seen"] <= row["high"] for row in rows]
    return {
        "speeds": len(rows),
        "mean_absolute_error": rounded(mean(map(abs, errors))) if rows else None,
        "mean_error": rounded(mean(errors)) if rows else None,
        "within_interval": rounded(mean(within)) if rows else None,
    }


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# ---- memory -----------------------------------------------------------------------------------------------------


def out_of_memory(arguments: argparse.Namespace) -> dict[str, object]:
    """On 7 instances of 1c: one job takes an eighth more than its own has, three others train."""
    setting = Setting(arguments.device, arguments.pace)
    limit_mib = parse_devices([arguments.device], this_machine())[0].model.by_name["1c"].mem_mib
    hog: dict[str, object] = {"name": "hog", "memory": 64}
    hog["command"] = [sys.executable, "-c", HOG, str(limit_mib * 9 // 8)]
    others = [Drawn(f"other-{at}", "single", max(round(120 * arguments.scale), 4)) for at in range(3)]
    work = [hog, *(job.written(arguments.pace, arguments.seed) for job in others)]
    ran = run(work, "static:1,1,1,1,1,1,1", setting)
    told = {} if ran.told is None else {row["job"]: row for row in ran.told["jobs"]}
    crashed = [entry for entry in ran.entries if isinstance(entry, JobCrashed)]
    kills = [entry for entry in crashed if entry.job_id == "hog"]
    causes = sorted({entry.cause for entry in kills})
    rows = [_beside(job.name, told.get(job.name, {}), crashed) for job in others]
    return {
        "limit_mib": limit_mib,
        "exit_code": ran.code,
        "complaint": None if ran.told is not None else ran.complaint,
        "hog": {"state": told.get("hog", {}).get("state"), "kills": len(kills), "causes": causes},
        "neighbours": rows,
        "killed_for_memory": bool(causes) and all("out of memory" in cause for cause in causes),
        "neighbours_unharmed": all(row["state"] == "completed" and not row["crashes"] for row in rows),
        "neighbours_were_there": all(row["kills_outlived"] for row in rows),
    }


def _beside(name: str, told: dict[str, Any], crashed: Sequence[JobCrashed]) -> dict[str, object]:
    """How a neighbour fared; a kill tells nothing of one that had ended before."""
    ended_s = told.get("ended_s")
    outlived = [entry for entry in crashed if entry.job_id == "hog" and ended_s is not None and entry.at_s < ended_s]
    crashes = sum(entry.job_id == name for entry in crashed)
    return {"job": name, "state": told.get("state"), "crashes": crashes, "kills_outlived": len(outlived)}


def shares(arguments: argparse.Namespace) -> dict[str, object]:
    return measure_shares(arguments.device, arguments.rounds, arguments.seconds)


def periods(arguments: argparse.Namespace) -> dict[str, object]:
    return measure_periods(arguments.rounds, arguments.seconds, arguments.seed)


def services(arguments: argparse.Namespace) -> dict[str, object]:
    device = SERVED_ON if arguments.device == "cpu" else arguments.device
    return measure_services(device, arguments.runs, arguments.load_s, arguments.seed, arguments.measured)


PARTS = {"miso": compare, "shares": shares, "memory": out_of_memory, "periods": periods, "services": services}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=[*PARTS, "all"], default="all")
    options.add_argument("--device", default="cpu")
    options.add_argument("--pace", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=1, help="of the mix, its trainings, the order of periods")
    options.add_argument("--scale", type=float, default=1.0, help="of all lengths and gaps between jobs")
    options.add_argument("--jobs", type=int, default=20)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--policies", default=" ".join(POLICIES), help="separated by blanks")
    options.add_argument("--rounds", type=int, default=20, help="of shares and periods")
    options.add_argument("--seconds", type=float, default=1.0, help="of shares and periods: of each measurement")
    options.add_argument("--load-s", type=float, default=60.0, help="of services: how long they are asked")
    options.add_argument("--measured", type=Path, help="of services: a state folder of measure service to go on with")
    arguments = options.parse_args()
    chosen = [*PARTS] if arguments.part == "all" else [arguments.part]
    print(json.dumps({part: PARTS[part](arguments) for part in chosen}, indent=2))


if __name__ == "__main__":
    main()
