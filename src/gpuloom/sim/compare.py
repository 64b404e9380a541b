"""Several policies on the same traces over several seeds, in parallel: means, standard errors, paired ratios."""

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.sim.report import RunData, run_data
from gpuloom.sim.run import figures, simulate
from gpuloom.sim.scenario import Inputs, load

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """One run, small enough to send to a worker, which reads the inputs itself."""

    inputs: Inputs
    policy: str
    seed: int
    keep_timeline: bool = False

    @property
    def key(self) -> str:
        """Names the run in a results file: the same inputs, policy and seed give the same figures."""
        return repr((self.inputs, self.policy, self.seed))


def run_task(task: Task) -> tuple[Figures, RunData | None]:
    result = simulate(load(task.inputs, task.seed), task.policy, task.seed, timeline=task.keep_timeline)
    return figures(result), run_data(result, task.inputs.gpus) if task.keep_timeline else None


def run_all(
    tasks: Sequence[Task], workers: int, done: Path | None = None, on_progress: Callable[[int], None] | None = None
) -> list[tuple[Figures, RunData | None]]:
    """Results in the order of the tasks. With `done`, finished runs are kept there and not run again next time."""
    results: dict[Task, tuple[Figures, RunData | None]] = {}
    known = read_done(done) if done else {}
    for task in tasks:
        if task.key in known and not task.keep_timeline:
            results[task] = (known[task.key], None)
    for task, result in _finished([task for task in tasks if task not in results], workers):
        results[task] = result
        if done is not None and task.key not in known:
            with done.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": task.key, "figures": result[0]}) + "\n")
        if on_progress is not None:
            on_progress(len(results))
    return [results[task] for task in tasks]


def _finished(tasks: list[Task], workers: int) -> Iterator[tuple[Task, tuple[Figures, RunData | None]]]:
    if min(workers, len(tasks)) <= 1:
        for task in tasks:
            yield task, run_task(task)
        return
    pool = ProcessPoolExecutor(min(workers, len(tasks)), initializer=_leave_interrupts_to_the_parent)
    try:
        pending: dict[Future[tuple[Figures, RunData | None]], Task] = {
            pool.submit(run_task, task): task for task in tasks
        }
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future.result()
    except BrokenProcessPool:
        raise InputError("a worker process was killed (out of memory?): try fewer --workers") from None
    finally:
        # On Ctrl-C, and on a run that failed, what has not begun is dropped and what runs is ended.
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in active_children():
            worker.terminate()


def _leave_interrupts_to_the_parent() -> None:
    """A terminal sends Ctrl-C to every process of the command; one of them is enough to stop it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def read_done(path: Path) -> dict[str, Figures]:
    """Runs that an earlier call finished. A last line that was cut off is removed: that run is simply done again."""
    if not path.exists():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    known = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = json.loads(line)
            known[entry["key"]] = entry["figures"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}:{number}: not a line of a gpuloom results file") from None
    return known


def summarise(rows: Sequence[Figures], baseline: str) -> list[Figures]:
    """One row per policy: means over seeds, standard errors, and the ratio to the baseline paired by seed."""
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    by_seed = {(row["policy"], row["seed"]): row for row in rows}
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    table = []
    for policy in policies:
        runs = [by_seed[policy, seed] for seed in seeds]
        ratios = [
            run["avg_jct_s"] / by_seed[baseline, seed]["avg_jct_s"] for run, seed in zip(runs, seeds, strict=True)
        ]
        jct_s, jct_error_s = mean_and_error([run["avg_jct_s"] for run in runs])
        ratio, ratio_error = mean_and_error(ratios)
        row: Figures = {"policy": policy, "runs": len(runs), "avg_jct_s": jct_s, "stderr_s": jct_error_s}
        row |= {f"ratio_to_{baseline}": ratio, "ratio_stderr": ratio_error}
        for name in (
            "p50_jct_s",
            "p99_jct_s",
            "avg_wait_s",
            "makespan_s",
            "stp_per_gpu",
            "utilisation",
            "p99_slowdown",
        ):
            row[name] = mean_and_error([run[name] for run in runs])[0]
        row["repartitions"] = mean_and_error([run["repartitions"] for run in runs])[0]
        table.append(row)
    return table


def for_people(table: Sequence[Figures], baseline: str) -> list[Figures]:
    """The columns one wants to see first; JSON and CSV have them all."""
    rows = []
    for row in table:
        error_s, error = row["stderr_s"], row["ratio_stderr"]
        rows.append(
            {
                "policy": row["policy"],
                "mean JCT": f"{row['avg_jct_s']:,.0f} s" + ("" if error_s is None else f" ± {error_s:,.0f}"),
                f"to {baseline}": f"{row[f'ratio_to_{baseline}']:.3f}" + ("" if error is None else f" ± {error:.3f}"),
                "p99 JCT": f"{row['p99_jct_s']:,.0f} s",
                "wait": f"{row['avg_wait_s']:,.0f} s",
                "makespan": f"{row['makespan_s']:,.0f} s",
                "STP/GPU": f"{row['stp_per_gpu']:.3f}",
                "p99 slowdown": f"{row['p99_slowdown']:.1f}",
                "cuts": f"{row['repartitions']:,.0f}",
            }
        )
    return rows


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error; one value has no error that could be known."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def tasks_for(inputs: Inputs, policies: Sequence[str], seeds: Sequence[int], *, timelines: bool) -> list[Task]:
    """Every policy with every seed; with `timelines`, the first seed of each keeps what a report draws."""
    tasks = [Task(inputs, policy, seed) for policy in policies for seed in seeds]
    return [replace(task, keep_timeline=timelines and task.seed == seeds[0]) for task in tasks]
