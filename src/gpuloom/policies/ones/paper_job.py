"""What published ONES knows of one job: what it has seen, its limits, its local batch and the throughput it expects."""

from dataclasses import dataclass, field

import numpy as np

from gpuloom.contract.view import JobView
from gpuloom.perf.arrays import Floats
from gpuloom.perf.goodput.goodput import network_s
from gpuloom.perf.goodput.model import GoodputModel
from gpuloom.policies.ones.paper_beta import Path

JUDGED_EPOCHS = 2
"""Until a job is predicted, may grow and may be taken out; also between two doublings of its limit."""
OVER_REQUEST = 4
SLOWED = 0.5
"""By how much a job is scaled down for each median that it has run."""


@dataclass(slots=True)
class Known:
    """What is remembered of a live job."""

    limit: int
    """R_j: the most GPUs that it may have."""
    gpus: int = 0
    """What it was given last."""
    since_epoch: int = 0
    """The epochs it had done when that changed."""
    ran_s: float = 0.0
    path: Path = field(default_factory=Path)

    @property
    def epochs_since(self) -> int:
        """None, after it has lost work, until it is back there."""
        return max(self.path.epochs - self.since_epoch, 0)

    @property
    def judged(self) -> bool:
        return self.path.epochs >= JUDGED_EPOCHS

    def give(self, gpus: int) -> None:
        if gpus != self.gpus:
            self.gpus, self.since_epoch = gpus, self.path.epochs


def scaled_down(gpus: int, ran_s: float, median_s: float) -> int:
    """To how many GPUs a job that holds so many is scaled down for the time that it has run; an even number."""
    if ran_s <= median_s:
        return gpus
    fewer = max(int(2 * gpus / (SLOWED * ran_s / max(median_s, 1.0) + 1)), 1)
    return min(fewer + fewer % 2, gpus)


def local_batch(job: JobView) -> int | None:
    """Samples of a step on each GPU: as in the request; None leaves the batch to the job."""
    return None if job.job.batch is None else -(-job.job.batch // job.job.gpus)


def most_gpus(job: JobView, gpus: int) -> int:
    """Beyond so many GPUs the limit is never raised: request, cluster, and the largest batch."""
    most, model = min(gpus, job.job.max_gpus, OVER_REQUEST * job.job.gpus), job.report.goodput if job.report else None
    if model is not None:
        most = min(most, model.max_replicas, model.limits.max_batch // (local_batch(job) or model.limits.init_batch))
    return max(most, 1)


def samples_per_s(model: GoodputModel, local: int | None, node_size: int, gpus: int) -> Floats:
    """Of each of 0 to `gpus` GPUs, packed on as few nodes as can be; what exceeds the memory takes several passes."""
    passes = -(-(local or model.limits.init_batch) // model.limits.max_local)
    samples = -(-(local or model.limits.init_batch) // passes)
    times = model.times
    compute = times.a_c + times.b_c * samples
    network = np.array([network_s(times, count > node_size, count) for count in range(gpus + 1)])
    step = (compute**times.gamma + network**times.gamma) ** (1 / times.gamma)
    return np.asarray(samples * passes / (step + compute * (passes - 1)))
