"""MISO's experiment (SoCC'22): 100 job templates in random order, nearly regular gaps. The authors' streams exactly.

`path` is a folder with `job_models.json` (template -> "resnet_train128"), `num_iters.json` (template -> batches to run)
and `mig_batch_latency.csv` (seconds per batch on each slice). The seed gives the permutation, seed + 1 the gaps.
"""

import random
from itertools import accumulate
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.work.measured.figures import WorkloadFigures, figures_from_csv
from gpuloom.work.model import Job, Kind, TraceJob
from gpuloom.work.source import MAX_COUNT, did_you_mean, read_json, shown
from gpuloom.work.traces.trace import Options, Trace, in_order

GAP_S = 60.0
"""Mean gap of the authors' experiment on 8 GPUs."""


def read(path: Path, options: Options) -> Trace:
    templates = read_templates(path)
    n = len(templates) if options.jobs is None else options.jobs
    order = random.Random(options.seed).sample(range(n), n)
    arrivals = arrivals_s(n, options.seed, GAP_S if options.gap_s is None else options.gap_s)
    jobs = [
        _job(number, submit_s, *templates[number % len(templates)])
        for number, submit_s in zip(order, arrivals, strict=True)
    ]
    return in_order(path, jobs)


def arrivals_s(n: int, seed: int, gap_s: float) -> list[float]:
    """Times of arrival: before job i a Poisson-distributed number of seconds, of half the mean for the first third."""
    import numpy as np

    # RandomState, not Generator: its streams are frozen, and this one is the authors' own.
    stream = np.random.RandomState(seed + 1)
    gaps = (float(stream.poisson(gap_s / 2 if i <= int(n / 3) else gap_s)) for i in range(n))
    return list(accumulate(gaps))


def read_templates(path: Path) -> list[tuple[WorkloadFigures, int]]:
    """The job templates of the folder in order of their number: the workload's figures and the batches to run."""
    workloads = figures_from_csv(path / "mig_batch_latency.csv").workloads
    models = _by_number(path / "job_models.json", 'an object such as {"0": "resnet_train128"}')
    iterations = _by_number(path / "num_iters.json", 'an object such as {"0": 2980}')
    if models.keys() != iterations.keys():
        number = min(models.keys() ^ iterations.keys())
        raise InputError(f"{path}: job {number} is in only one of job_models.json and num_iters.json: expected in both")
    templates = []
    for number in range(len(models)):
        if number not in models:
            raise InputError(
                f"{path / 'job_models.json'} has no job {number}: expected the numbers 0 to {len(models) - 1}"
            )
        batches = iterations[number]
        if isinstance(batches, bool) or not isinstance(batches, int) or not 1 <= batches <= 100 * MAX_COUNT:
            raise InputError(
                f"{path / 'num_iters.json'}: job {number} is {shown(batches)}, but must be a whole number from 1"
            )
        templates.append((_workload(path, number, models[number], workloads), batches))
    return templates


def _by_number(path: Path, expected: str) -> dict[int, Any]:
    data = read_json(path, expected)
    if not isinstance(data, dict) or not data:
        raise InputError(f"{path} is not a JSON object with at least one entry: expected {expected}")
    numbered: dict[int, Any] = {}
    for key, value in data.items():
        if not (key.isascii() and key.isdigit() and len(key) < 8) or int(key) in numbered:
            raise InputError(f"{path}: key {shown(key)} is not a job number of its own: expected {expected}")
        numbered[int(key)] = value
    return numbered


def _workload(path: Path, number: int, label: object, workloads: Any) -> WorkloadFigures:
    model, _, batch = label.partition("_train") if isinstance(label, str) else ("", "", "")
    figures = workloads.get(f"{model} {batch}")
    if not isinstance(figures, WorkloadFigures):
        labels = [f"{known.model}_train{known.batch}" for known in workloads.values()]
        raise InputError(
            f"{path / 'job_models.json'}: job {number} is {shown(label)}, but must be a workload of"
            f" mig_batch_latency.csv such as {labels[0]!r}{did_you_mean(str(label), labels)}"
        )
    return figures


def _job(number: int, submit_s: float, figures: WorkloadFigures, batches: int) -> TraceJob:
    job = Job(
        id=f"job-{number}",
        submit_s=submit_s,
        kind=Kind.SLICEABLE,
        workload=figures.name,
        mem_mib=figures.mem_mib,
    )
    return TraceJob(job, batches * figures.batch_s)
