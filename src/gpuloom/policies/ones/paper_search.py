"""The evolution of ONES as published (SC'21, section 3.2): schedules that are crossed, thinned, filled and selected.

A schedule is one gene for each GPU: the job on it. Genes are always in one order (`reorder`: a job's lie side by side,
jobs in the order in which they are deployed), so between generations a schedule is kept as the number of GPUs of each
job, and a population is one array, members x jobs. Knows limits, costs and chance; nothing of time, models or nodes.
Bit for bit repeatable for a given generator.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from zlib import compress, decompress
from zlib import error as ZlibError  # noqa: N812 - it is a class

import numpy as np

from gpuloom.perf.arrays import Bools, Floats, Ints

SWAPPED = 0.5
"""How often a gene of two parents changes sides."""
REMOVED = 0.3
"""How often a job is taken out of a mutant, whole."""
GENERATIONS = 60
"""Of a round. Published is one a second, without end: as many as fit into a round of a minute."""
PATIENCE = 15
"""Generations without a better schedule after which a round's search ends."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be decided. Jobs come in the order of their genes."""

    gpus: int
    least: Ints
    """The fewest GPUs that each job takes."""
    limits: Ints
    """R_j: the most that each job may have while others want GPUs."""
    most: Ints
    """The most that each job may have at all, if GPUs would be idle otherwise."""
    arrivals: Ints
    """New jobs, in order of arrival: they get their fewest GPUs before anybody else grows."""
    shortest: Ints
    """The others, the one with the least expected remaining time first: they may grow, and be taken out."""
    costs: Floats
    """Of each job by its number of GPUs (jobs x gpus + 1). The sum over the jobs is minimised."""


def evolve(problem: Problem, ancestors: Ints, rng: np.random.Generator) -> Ints:
    """A population (members x jobs), the best member first, that descends from the ancestors."""
    members = len(ancestors)
    population = fill(problem, trim(problem, ancestors))
    best, since = np.inf, 0
    for _ in range(GENERATIONS):
        everyone = [population, trim(problem, cross(problem, population, rng)), mutate(problem, population, rng)]
        candidates = fill(problem, np.concatenate(everyone))
        scores = score(problem, candidates)
        order = scores.argsort(kind="stable")[:members]  # of equals, the older: nobody is moved for nothing
        population = candidates[order]
        best, since = (found, 0) if (found := scores[order[0]]) < best else (best, since + 1)
        if since == PATIENCE:
            break
    return population


def score(problem: Problem, schedules: Ints) -> Floats:
    return np.asarray(problem.costs[np.arange(schedules.shape[1]), schedules].sum(axis=1))


def trim(problem: Problem, schedules: Ints) -> Ints:
    """What is left of schedules within the limits, and on the GPUs that there still are."""
    kept = np.minimum(schedules, problem.limits)
    return np.asarray(np.clip(problem.gpus - (kept.cumsum(axis=1) - kept), 0, kept))


def cross(problem: Problem, parents: Ints, rng: np.random.Generator) -> Ints:
    """Two children of each of half as many random pairs: gene by gene, one has what the other has not."""
    members, jobs = parents.shape
    pairs = members // 2
    first = rng.integers(members, size=pairs)
    second = (first + rng.integers(1, max(members, 2), size=pairs)) % members
    genes = reorder(problem, parents)
    swapped = rng.random((pairs, problem.gpus)) < SWAPPED
    one, other = genes[first], genes[second]
    children = np.concatenate([np.where(swapped, other, one), np.where(swapped, one, other)])
    at = children + np.arange(len(children))[:, None] * (jobs + 1)
    counts = np.bincount(at.reshape(-1), minlength=len(children) * (jobs + 1))
    return np.asarray(counts.reshape(-1, jobs + 1)[:, :jobs])


def reorder(problem: Problem, schedules: Ints) -> Ints:
    """The genes (members x GPUs): each job's side by side, idle GPUs (a job too many) at the end."""
    members, jobs = schedules.shape
    idle = problem.gpus - schedules.sum(axis=1, keepdims=True)
    lengths = np.concatenate([schedules, idle], axis=1).reshape(-1)
    return np.repeat(np.tile(np.arange(jobs + 1), members), lengths).reshape(members, problem.gpus)


def mutate(problem: Problem, schedules: Ints, rng: np.random.Generator) -> Ints:
    """Jobs are taken out at random, but none that is new."""
    removed: Bools = np.zeros(schedules.shape, dtype=bool)
    removed[:, problem.shortest] = rng.random((len(schedules), len(problem.shortest))) < REMOVED
    return np.where(removed, 0, schedules)


def fill(problem: Problem, schedules: Ints) -> Ints:
    """Idle GPUs go to new jobs that have none, then to the others in two rounds; fewer than it takes is none."""
    filled = np.where(schedules < problem.least, 0, schedules)
    new = filled[:, problem.arrivals]
    wanted = np.where(new == 0, problem.least[problem.arrivals], 0)
    idle = problem.gpus - filled.sum(axis=1, keepdims=True)
    filled[:, problem.arrivals] = new + np.where(wanted.cumsum(axis=1) <= idle, wanted, 0)
    for limits in (problem.limits, problem.most):
        old = filled[:, problem.shortest]
        wanted = np.maximum(limits[problem.shortest] - old, 0)
        idle = problem.gpus - filled.sum(axis=1, keepdims=True)
        filled[:, problem.shortest] = old + np.clip(idle - (wanted.cumsum(axis=1) - wanted), 0, wanted)
    return np.where(filled < problem.least, 0, filled)


def as_text(counts: Ints) -> str:
    """A job's numbers of GPUs in a population: mostly the same, so it is short."""
    return b64encode(compress(counts.astype("<u4").tobytes())).decode()


def from_text(text: str) -> Ints:
    try:
        return np.frombuffer(decompress(b64decode(text)), dtype="<u4").astype(np.intp)
    except ZlibError as error:
        raise ValueError(f"population: {error}") from None
