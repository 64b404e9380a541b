"""Several policies over the same seeds: means, standard errors, and ratios seed by seed."""

import math
from collections.abc import Sequence
from typing import Any

Figures = dict[str, Any]
"""A run's figures by name, as `sim.run.figures` gives them."""

MEANS = "p50_jct_s p99_jct_s avg_wait_s makespan_s stp_per_gpu utilisation p99_slowdown repartitions completed given_up"
LARGEST = "max_slowdown max_wait_s"


def summarise(rows: Sequence[Figures], baseline: str) -> list[Figures]:
    """One row per policy: means over seeds with standard errors; ratio and difference to the baseline, seed by seed.

    Maxima are over all jobs of all seeds.
    """
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    by_seed = {(row["policy"], row["seed"]): row for row in rows}
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    table = []
    for policy in policies:
        runs = [by_seed[policy, seed] for seed in seeds]
        pairs = [(run["avg_jct_s"], by_seed[baseline, run["seed"]]["avg_jct_s"]) for run in runs]
        known = all(ours is not None and theirs for ours, theirs in pairs)
        jct_s, jct_error_s = mean_and_error([run["avg_jct_s"] for run in runs])
        ratio, ratio_error = mean_and_error([ours / theirs if known else None for ours, theirs in pairs])
        difference_s, difference_error_s = mean_and_error([ours - theirs if known else None for ours, theirs in pairs])
        row: Figures = {"policy": policy, "runs": len(runs), "avg_jct_s": jct_s, "stderr_s": jct_error_s}
        row |= {f"ratio_to_{baseline}": ratio, "ratio_stderr": ratio_error}
        row |= {"difference_s": difference_s, "difference_stderr_s": difference_error_s}
        row |= {name: mean_and_error([run[name] for run in runs])[0] for name in MEANS.split()}
        row |= {name: max([run[name] or 0.0 for run in runs]) for name in LARGEST.split()}
        table.append(row)
    return table


def for_people(table: Sequence[Figures], baseline: str) -> list[Figures]:
    """The columns one wants to see first; JSON and CSV have them all."""
    rows = []
    for row in table:
        shown = {
            "policy": row["policy"],
            "mean JCT": _with_error(row["avg_jct_s"], row["stderr_s"], ",.0f", " s"),
            f"to {baseline}": _with_error(row[f"ratio_to_{baseline}"], row["ratio_stderr"], ".3f"),
            "difference": _with_error(row["difference_s"], row["difference_stderr_s"], "+,.0f", " s"),
            "p99 JCT": _with_error(row["p99_jct_s"], None, ",.0f", " s"),
            "wait": _with_error(row["avg_wait_s"], None, ",.0f", " s"),
            "makespan": _with_error(row["makespan_s"], None, ",.0f", " s"),
            "STP/GPU": _with_error(row["stp_per_gpu"], None, ".3f"),
            "p99 slowdown": _with_error(row["p99_slowdown"], None, ".1f"),
            "cuts": _with_error(row["repartitions"], None, ",.0f"),
        }
        if any(other["given_up"] for other in table):
            shown["jobs given up"] = f"{row['given_up']:g}"
        rows.append(shown)
    return rows


def _with_error(value: float | None, error: float | None, style: str, unit: str = "") -> str | None:
    if value is None:
        return None
    return f"{value:{style}}{unit}" + ("" if error is None else f" ± {error:{style.lstrip('+')}}")


def mean_and_error(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and its standard error. One value has no error that could be known; an unknown one makes both unknown."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None, None
    mean = sum(known) / len(known)
    if len(known) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in known) / (len(known) - 1)
    return mean, math.sqrt(variance / len(known))
