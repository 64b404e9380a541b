"""Several policies on the same traces over several seeds, in parallel: means, standard errors, paired ratios."""

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from gpuloom import __version__
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
        """Names the run in a results file: the same contents, policy, seed and version give the same figures."""
        inputs = self.inputs
        named = (inputs.trace, inputs.profiles, inputs.probe, self.policy.partition(":")[0])
        paths = [Path(name) for name in named if name is not None]
        contents = [_digest(path) for path in paths if path.exists()]
        return repr((__version__, replace(inputs, trace=None, profiles=None), self.policy, self.seed, contents))


@lru_cache
def _digest(path: Path) -> str:
    """Of a file, or of all files below a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    digest = sha256()
    for file in files:
        if file.is_file():
            digest.update(f"{file.relative_to(path) if path.is_dir() else ''}:".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def run_task(task: Task) -> tuple[Figures, RunData | None]:
    result = simulate(load(task.inputs, task.seed), task.policy, task.seed, timeline=task.keep_timeline)
    return figures(result), run_data(result, task.inputs.gpus) if task.keep_timeline else None


def run_all(
    tasks: Sequence[Task], workers: int, done: Path | None = None, on_progress: Callable[[int], None] | None = None
) -> list[tuple[Figures, RunData | None]]:
    """Results in the order of the tasks. With `done`, finished runs are kept there and not run again next time."""
    results: dict[Task, tuple[Figures, RunData | None]] = {}
    known = read_done(done) if done else {}
    _digest.cache_clear()
    for task in tasks if known else ():
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


def tasks_for(inputs: Inputs, policies: Sequence[str], seeds: Sequence[int], *, timelines: bool) -> list[Task]:
    """Every policy with every seed; with `timelines`, the first seed of each keeps what a report draws."""
    tasks = [Task(inputs, policy, seed) for policy in policies for seed in seeds]
    return [replace(task, keep_timeline=timelines and task.seed == seeds[0]) for task in tasks]
