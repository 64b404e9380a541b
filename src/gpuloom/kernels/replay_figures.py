"""What a replay was worth: each task's latency and rate, beside those that it has alone."""

from collections.abc import Sequence

import numpy as np

from gpuloom.kernels.core import Policy
from gpuloom.kernels.replay import Outcome, Task, rate_alone, replay


def figures(tasks: Sequence[Task], policies: Sequence[Policy]) -> list[dict[str, object]]:
    """A row for each task under each policy; the first task is the one that is served."""
    alone = replay(tasks[:1], Policy.SHARE)[0]
    exclusive_ms = float(np.mean(alone.latencies_ns)) / 1e6
    rows = []
    for policy in policies:
        for place, (task, outcome) in enumerate(zip(tasks, replay(tasks, policy), strict=True)):
            compared = _served(outcome, exclusive_ms) if place == 0 else _beside(outcome, task)
            rows.append(_row(policy, task, outcome, compared))
    return rows


def _served(outcome: Outcome, exclusive_ms: float) -> dict[str, float | None]:
    return {"of_exclusive": round(float(_latencies_ms(outcome).mean()) / exclusive_ms, 3), "rate_of_alone": None}


def _beside(outcome: Outcome, task: Task) -> dict[str, float | None]:
    rate, by_itself = outcome.ran_ns / outcome.finished_ns, rate_alone(task)
    return {"of_exclusive": None, "rate_of_alone": round(rate / by_itself, 3) if by_itself else None}


def _row(policy: Policy, task: Task, outcome: Outcome, compared: dict[str, float | None]) -> dict[str, object]:
    latencies_ms = _latencies_ms(outcome)
    return {
        "policy": policy.name.lower(),
        "task": task.name,
        "priority": task.priority,
        "requests": len(latencies_ms),
        "mean_ms": round(float(latencies_ms.mean()), 3) if len(latencies_ms) else None,
        "p99_ms": round(float(np.quantile(latencies_ms, 0.99)), 3) if len(latencies_ms) else None,
        **compared,
        "device_pct": round(100 * outcome.ran_ns / outcome.finished_ns, 1),
        "delayed": outcome.overruns,
    }


def _latencies_ms(outcome: Outcome) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    return np.asarray(outcome.latencies_ns, float) / 1e6
