"""The nouns of goodput: what bounds a job's batch, how a batch is split over GPUs, what a job's agent has learned."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Between which sizes a job's batch may be chosen."""

    init_batch: int
    """The global batch that its hyper-parameters were tuned for; also the unit of progress."""
    max_batch: int
    min_local: int
    """Least samples a step on one GPU."""
    max_local: int
    """Most samples a step on one GPU: its memory."""


class LocalBatch(NamedTuple):
    """How a global batch is split: `replicas * samples * (accumulation + 1)`."""

    samples: int
    """Samples of one forward and backward pass on one GPU."""
    accumulation: int
    """Passes before the one that ends with the exchange of gradients."""

    def total(self, replicas: int) -> int:
        return replicas * self.samples * (self.accumulation + 1)


class StepTimes(NamedTuple):
    """Step seconds = (compute^gamma + network^gamma)^(1/gamma) (Pollux, OSDI'21, section 3.2).

    compute = a_c + b_c * local batch; network = a_n + b_n * (replicas - 2) across nodes, a_r + b_r * (replicas - 2)
    within one.
    """

    a_c: float
    b_c: float
    a_n: float
    b_n: float
    a_r: float
    b_r: float
    gamma: float


class Observation(NamedTuple):
    """One configuration that a job has run, and how long its steps took."""

    nodes: int
    replicas: int
    samples: int
    """Samples of one pass on one GPU."""
    compute_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class GoodputModel:
    """What an elastic job's own agent has learned so far and reports (Pollux, OSDI'21, section 4.1)."""

    times: StepTimes
    grad_sqr: float
    grad_var: float
    limits: BatchLimits
    most_replicas: int
    """The largest number of replicas it has been seen on."""
    max_replicas: int
    """It cannot use more, however well it scales."""
    grad_batch: int | None = None
    """The global batch at which the gradient was seen; None: nobody knows."""
    noise_exponent: float = 0.0
    """How the gradient's noise is taken to grow with the batch: its ratio to the square goes as the batch to this."""
    seen: tuple[Observation, ...] = ()
    """What its step times were learned from."""
    chooses_batch: bool = False
    """It has an agent inside that chooses its batch, as in Pollux's system; whoever tells it one is in the way."""
