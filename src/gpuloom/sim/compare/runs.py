"""Every policy with every seed, in parallel, each run done once: what is finished can be kept in a file."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from multiprocessing import active_children
from pathlib import Path
from typing import TypeVar

from gpuloom import __version__
from gpuloom.errors import InputError
from gpuloom.sim.compare.statistics import Figures
from gpuloom.sim.inputs import Inputs, load
from gpuloom.sim.report import RunData, run_data
from gpuloom.sim.run import figures, simulate

T = TypeVar("T")
R = TypeVar("R")


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
        named = (inputs.trace, inputs.profiles, inputs.probe, inputs.memory, self.policy.partition(":")[0])
        paths = [Path(name) for name in named if name is not None]
        contents = [_digest(path) for path in paths if path.exists()]
        unnamed = replace(inputs, trace=None, profiles=None, memory=None)
        return repr((__version__, unnamed, self.policy, self.seed, contents))


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
    for task, result in in_parallel(run_task, [task for task in tasks if task not in results], workers):
        results[task] = result
        if done is not None and task.key not in known:
            with done.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": task.key, "figures": result[0]}) + "\n")
        if on_progress is not None:
            on_progress(len(results))
    return [results[task] for task in tasks]


def in_parallel(run: Callable[[T], R], tasks: Sequence[T], workers: int) -> Iterator[tuple[T, R]]:
    """Each task with what `run` makes of it, as they finish; a single worker is this process."""
    if min(workers, len(tasks)) <= 1:
        for task in tasks:
            yield task, run(task)
        return
    pool = ProcessPoolExecutor(min(workers, len(tasks)), initializer=_leave_interrupts_to_the_parent)
    try:
        pending: dict[Future[R], T] = {pool.submit(run, task): task for task in tasks}
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


def tasks_for(inputs: Inputs, policies: Sequence[str], seeds: Sequence[int], *, timelines: bool) -> list[Task]:
    """Every policy with every seed; with `timelines`, the first seed of each keeps what a report draws."""
    tasks = [Task(inputs, policy, seed) for policy in policies for seed in seeds]
    return [replace(task, keep_timeline=timelines and task.seed == seeds[0]) for task in tasks]
