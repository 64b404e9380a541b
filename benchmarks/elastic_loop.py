"""Elastic training for real: six PyTorch jobs on four parts of this machine's CPUs, resized by `gpuloom run`.

    python benchmarks/elastic_loop.py --runs 3
    python benchmarks/elastic_loop.py --runs 1 --scale 0.3 --policies "ones fixed:2"

The same jobs for every policy: two of each of three kinds (elastic_training.py), of different lengths, submitted one
after the other. `fixed:N` is a fixed split: every job has N devices from its start to its end, in order of arrival.
Every policy runs once before any runs again, and each run begins with another. Printed for each run: what every job
had from when to when, its starts and resizes, how long each resize held it up by its own account, and completion times.
A run that fails is listed, and its policy has no mean then.

Times are real seconds. The runs count `--pace` seconds in each, because policies' constants are for jobs of minutes.
Needs PyTorch and what `gpuloom run --device cpu` needs, and a machine that does nothing else.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from cpu_loop import Ran, Setting, rounded, run
from elastic_training import BATCH
from gpuloom.engine.events import Event, JobRescaled, RescaleFailed
from gpuloom.engine.machine import Decision
from gpuloom.live.report.replay import Doing, Replay, replay
from gpuloom.sim.compare.statistics import mean_and_error

TRAINING = Path(__file__).resolve().parent / "elastic_training.py"
STEP_S = {"cnn": 0.2, "transformer": 0.25, "mlp": 0.25}
"""About what a step takes alone on one of four devices of two cores: only how long jobs are depends on it."""
MOST_DEVICES = 4
POLICIES = ("ones", "pollux", "fixed:1", "fixed:2", "fixed:4")
TIMING_S = {
    "grace_s": 20.0, "up_s": 60.0, "resize_s": 30.0, "elastic_s": 1.0,
    "start_cost_s": 10.0, "resume_cost_s": 10.0, "resize_cost_s": 0.3,
}  # fmt: skip
"""Of `--timing`, in real seconds. The costs are about what is seen here."""
PAUSE = re.compile(r"after a pause of (\S+) s")


@dataclass(frozen=True, slots=True)
class Training:
    """A job of the six: its length is in seconds of one device."""

    name: str
    kind: str
    alone_s: float
    submit_s: float

    def written(self, policy: str, setting: Setting) -> dict[str, object]:
        """As a work file has it."""
        fixed = fixed_devices(policy)
        steps = max(round(self.alone_s / STEP_S[self.kind]), 4)
        return {
            "name": self.name,
            "workload": self.kind,
            "memory": "500M",
            "min_gpus": fixed or 1,
            "max_gpus": fixed or MOST_DEVICES,
            "batch": BATCH[self.kind],
            "resize": "in-place",
            "submit": round(self.submit_s * setting.pace, 1),
            "command": [sys.executable, str(TRAINING), self.kind, "--steps", str(steps)],
        }


def six_jobs(scale: float) -> list[Training]:
    """Long ones first, so that a split that was right at the beginning is not right for long."""
    drawn = (
        ("transformer", 120.0, 0.0), ("mlp", 70.0, 5.0), ("cnn", 25.0, 15.0),
        ("transformer", 40.0, 25.0), ("cnn", 60.0, 35.0), ("mlp", 20.0, 45.0),
    )  # fmt: skip
    return [
        Training(f"{at}-{kind}", kind, alone_s * scale, submit_s * scale)
        for at, (kind, alone_s, submit_s) in enumerate(drawn)
    ]


def fixed_devices(policy: str) -> int:
    """How many devices each job has under `fixed:N`; 0 for a policy that decides."""
    head, _, number = policy.partition(":")
    return int(number) if head == "fixed" else 0


# ---- what the log tells -----------------------------------------------------------------------------------------


def what_each_had(seen: Replay, pace: float) -> dict[str, list[dict[str, object]]]:
    """Stretches of each job, in real seconds: how many devices, and whether it worked there."""
    return {
        job_id: [
            {
                "from_s": round(part.begin_s / pace, 2),
                "to_s": round(part.end_s / pace, 2),
                "devices": [grant.gpu for grant in part.grants],
                "doing": part.doing.value,
            }
            for part in parts
        ]
        for job_id, parts in seen.segments.items()
    }


def device_seconds(seen: Replay, pace: float) -> float:
    """Held by somebody, working or not."""
    return sum(part.lasted_s * len(part.grants) for parts in seen.segments.values() for part in parts) / pace


def pauses_s(entries: Iterable[Event | Decision]) -> list[float]:
    """Of each resize, by the job's own account."""
    causes = [entry.cause for entry in entries if isinstance(entry, JobRescaled)]
    return [float(found[1]) for cause in causes if (found := PAUSE.search(cause))]


def resizes_s(seen: Replay, pace: float) -> list[float]:
    """From when a job was told to have other devices to when it had them; it works on meanwhile."""
    parts = [part for parts in seen.segments.values() for part in parts if part.doing is Doing.RESIZING]
    return [part.lasted_s / pace for part in parts]


# ---- policies ---------------------------------------------------------------------------------------------------


def one_run(jobs: Sequence[Training], policy: str, number: int, setting: Setting) -> dict[str, Any]:
    told = "whole-fifo" if fixed_devices(policy) else policy
    ran = run([job.written(policy, setting) for job in jobs], told, setting, TIMING_S)
    found = {"policy": policy, "run": number, "failed": ran.failed, "seconds": round(ran.seconds, 1)}
    found |= {"noise": ran.told and ran.told.get("noise"), "host_load": round(os.getloadavg()[0], 2)}
    if not ran.log:
        return found | {"completion_s": None, "makespan_s": None, "jobs": []}
    return found | figures(jobs, ran, replay(ran.log, "log.jsonl"), setting.pace)


def figures(jobs: Sequence[Training], ran: Ran, seen: Replay, pace: float) -> dict[str, Any]:
    had, rows = what_each_had(seen, pace), list[dict[str, Any]]()
    for job in jobs:
        course = seen.courses.get(job.name)
        ended_s = None if course is None or course.ended_s is None else round(course.ended_s / pace, 2)
        row: dict[str, Any] = asdict(job) | {"state": course and course.state, "had": had.get(job.name, [])}
        row |= {"completion_s": None if ended_s is None else round(ended_s - job.submit_s, 2), "ended_s": ended_s}
        rows.append(row | {"starts": course and course.starts, "resizes": course and course.rescales})
    fine, pauses, resizes = ran.failed is None, pauses_s(ran.entries), resizes_s(seen, pace)
    return {
        "completion_s": round(mean(row["completion_s"] for row in rows), 3) if fine else None,
        "makespan_s": round(max(row["ended_s"] for row in rows), 3) if fine else None,
        "starts": sum(row["starts"] or 0 for row in rows),
        "resizes": len(pauses),
        "failed_resizes": sum(isinstance(entry, RescaleFailed) for entry in ran.entries),
        "median_pause_s": rounded(median(pauses)) if pauses else None,
        "longest_pause_s": rounded(max(pauses)) if pauses else None,
        "median_resize_s": rounded(median(resizes)) if resizes else None,
        "held_device_s": round(device_seconds(seen, pace), 1),
        "jobs": rows,
    }


def summary(policy: str, runs: Sequence[dict[str, Any]], policies: Sequence[str]) -> dict[str, object]:
    """Ratios are of runs of the same number: the machine was about the same then."""
    by_run = {(one["policy"], one["run"]): one["completion_s"] for one in runs}
    ours = [one for one in runs if one["policy"] == policy]
    row: dict[str, object] = {"policy": policy, "runs": len(ours), "failed": sum(bool(one["failed"]) for one in ours)}
    for name in ("completion_s", "makespan_s"):
        value, error = mean_and_error([one[name] for one in ours])
        row |= {name: rounded(value), f"{name.removesuffix('_s')}_stderr_s": rounded(error)}
    for other in policies:
        pairs = [(one["completion_s"], by_run.get((other, one["run"]))) for one in ours]
        ratio, error = mean_and_error([mine / its if mine and its else None for mine, its in pairs])
        row |= {f"ratio_to_{other}": rounded(ratio), f"ratio_to_{other}_stderr": rounded(error)}
    for name in ("starts", "resizes", "failed_resizes"):
        row[name] = rounded(mean(one.get(name, 0) for one in ours))
    pauses = [one["median_pause_s"] for one in ours if one.get("median_pause_s") is not None]
    noise = [one["noise"]["spread_pct"] for one in ours if one["noise"]]
    row["median_pause_s"] = rounded(median(pauses)) if pauses else None
    return row | {"noise_spread_pct": rounded(median(noise)) if noise else None}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default=f"{MOST_DEVICES}xcpu", help=f"{MOST_DEVICES} devices, as for gpuloom run")
    options.add_argument("--pace", type=float, default=10.0)
    options.add_argument("--scale", type=float, default=1.0, help="of all lengths and gaps between jobs")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--policies", default=" ".join(POLICIES), help="separated by blanks")
    arguments = options.parse_args()
    setting, jobs = Setting(arguments.device, arguments.pace), six_jobs(arguments.scale)
    policies, runs = list(dict.fromkeys(arguments.policies.split())), list[dict[str, Any]]()
    for number in range(arguments.runs):
        turn = number % len(policies)
        for policy in [*policies[turn:], *policies[:turn]]:
            found = one_run(jobs, policy, number + 1, setting)
            went = found["failed"] or f"mean completion {found['completion_s']} s"
            print(f"run {number + 1}, {policy}: {went}", file=sys.stderr, flush=True)
            runs.append(found)
    shown = {"device": setting.device, "pace": setting.pace, "scale": arguments.scale, "timing_s": TIMING_S}
    rows = [summary(policy, runs, policies) for policy in policies]
    print(json.dumps(shown | {"policies": rows, "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
