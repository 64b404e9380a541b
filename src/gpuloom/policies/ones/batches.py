"""Which batch: the one with the best goodput on what the job is given; another than it has only where that pays.

Told to jobs that can change it while they run and have no agent of their own that does so. The noise counts as it was
seen: that it grows with the batch tells how far a job scales, but as a reason for a large batch now it does not pay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from gpuloom.contract.view import JobView, Phase, View
from gpuloom.gpus.grant import Grants
from gpuloom.perf.goodput.goodput import best_batch, goodput_with
from gpuloom.perf.goodput.model import GoodputModel, LocalBatch
from gpuloom.policies.ones.beliefs import Beliefs

WORTH_IT = 0.02
"""More goodput than this another batch has to promise: a batch that wanders is hard to follow, and gains nothing."""


def with_batches(
    view: View, beliefs: Beliefs, jobs: Sequence[JobView], grants: Mapping[str, Grants]
) -> dict[str, Grants]:
    """These grants with batches, and those of the jobs that keep their GPUs and are to have another batch."""
    found = dict(grants)
    for job in jobs:
        theirs = grants.get(job.id, job.grants)
        # Before its own report its limits are not known: another job of its name may have others.
        known = job.job.in_place and theirs and job.report is not None and job.report.goodput is not None
        model = beliefs.model(job) if known else None
        if model is not None and not model.chooses_batch:
            model = replace(model, noise_exponent=0.0)
            each = _batch_each(view, model, theirs, job.grants)
            if job.id in grants or (job.phase is Phase.RUNNING and each != theirs[0].batch):
                found[job.id] = tuple([grant._replace(batch=each) for grant in theirs])
    return found


def _batch_each(view: View, model: GoodputModel, theirs: Grants, before: Grants) -> int:
    """Samples a step on each of these GPUs."""
    replicas = min(len(theirs), model.max_replicas)
    across = len({view.cluster.node_of[grant.gpu] for grant in theirs}) > 1
    best = best_batch(model, across, replicas)
    now = before[0].batch if before else None
    if now is not None and len(before) == len(theirs):
        passes = ceil(now / model.limits.max_local)
        kept = LocalBatch(ceil(now / passes), passes - 1)
        if goodput_with(model, across, replicas, best) < (1 + WORTH_IT) * goodput_with(model, across, replicas, kept):
            return now
    return best.samples * (best.accumulation + 1)
