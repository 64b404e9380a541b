"""Finish-time fairness (Themis, NSDI'20): a job's completion time over what a fair share of the GPUs would have given.

A fair share is one of as many parts as there were live jobs, in the mean over the job's life, itself included. Above 1
a job was worse off than with its share. Knows completion times only; how fast a share is, somebody else says.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from gpuloom.sim.metrics import Outcomes


def mean_live(submit_s: Sequence[float], jct_s: Sequence[float]) -> list[float]:
    """For each job the mean number of jobs that had arrived and not completed, from its arrival to its completion."""
    end_s = [at_s + took_s for at_s, took_s in zip(submit_s, jct_s, strict=True)]
    changes: dict[float, int] = {}
    for moments, change in ((submit_s, 1), (end_s, -1)):
        for at_s in moments:
            changes[at_s] = changes.get(at_s, 0) + change
    moments_s = sorted(changes)
    live = [*accumulate(changes[at_s] for at_s in moments_s)]
    # Seconds that all jobs together have lived until each moment.
    lived_s = accumulate((live[i] * (b - a) for i, (a, b) in enumerate(pairwise(moments_s))), initial=0.0)
    until = dict(zip(moments_s, lived_s, strict=bool(moments_s)))
    return [
        max((until[end] - until[begin]) / (end - begin), 1.0) if end > begin else 1.0
        for begin, end in zip(submit_s, end_s, strict=True)
    ]


def finish_time_fairness(outcomes: Outcomes, shared_s: Callable[[str, float], float]) -> Mapping[str, float]:
    """By id of every completed job. `shared_s`: what a job would take on one of so many parts of the GPUs."""
    parts = mean_live(outcomes.submit_s, outcomes.jct_s)
    return {
        job_id: jct_s / shared_s(job_id, live)
        for job_id, jct_s, live in zip(outcomes.ids, outcomes.jct_s, parts, strict=True)
    }
