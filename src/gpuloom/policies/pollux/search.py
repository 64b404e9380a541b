"""Pollux's genetic search over who gets how many GPUs of which node (OSDI'21, section 4.2), on small arrays of bytes.

A schedule is a matrix, jobs x nodes, of numbers of GPUs. A population of them is one array, jobs x members x nodes, so
that whatever walks over the jobs works on all members at once, and eight nodes are one machine word. Knows costs,
capacities and chance; nothing of goodput, time or jobs. Bit for bit repeatable for a given generator.

As published: NSGA-II with two objectives (cost, and speed-up per GPU of the nodes in use), 100 members, up to 100
generations a round, single-point crossover over the jobs, children put back on what is held, thinned out and grown at
random, then repaired. The schedule of least cost is taken, but the second objective is what keeps the population
diverse: by cost alone, mean JCT on Pollux's workload 2 is 3460 s (standard error 20, ten seeds) instead of 3352 s (6).
Not as published: a round ends after 25 generations without a better schedule. On workload 3 that halves the time, and
mean JCT is no worse: 2187 s (7, seeds 1 to 3) against 2199 s (5) with all 100 generations.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuloom.perf.arrays import Bools, Floats

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

MEMBERS = 100
GENERATIONS = 100
PATIENCE = 25
"""Generations without a better schedule after which a round's search ends."""
RARELY = 26
"""In 256: how often a job of a child is put back on what it holds now, is thinned out, and then loses a given node."""
_CHUNK = 10
"""Generations whose dice are thrown at once."""
_PAIRS = MEMBERS // 2
_WORD = 8
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_FULL = np.uint64(0xFF)
_ONE_OF = np.minimum(256 // np.maximum(np.arange(256), 1), 255).astype(np.uint8)
"""1 / n in 256."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be decided. Jobs come in order of precedence: where two want the same GPU, the first gets it."""

    now: Bytes
    """GPUs that each job holds on each node (jobs x nodes, `padded`)."""
    capacity: Bytes
    """GPUs of each node, at most 85: the sums of a mother, a father and what is held fit into a byte."""
    max_replicas: Ints
    costs: Floats
    """Cost of each job: [job, is it moved, does it span nodes, number of GPUs]. The sum over the jobs is minimised."""
    speedups: Floats
    """Of each job: [job, does it span nodes, number of GPUs]. Speed-up per GPU is the second objective."""


class Dice(NamedTuple):
    """The chances of one generation."""

    tournaments: Ints
    """Members (4 x pairs): the better of the first and the third are mothers, of the second and the fourth fathers."""
    above: Bools
    """Which jobs (jobs x pairs) the first child has from its mother and the second from its father."""
    reset: Bools
    """Which jobs (jobs x members) are put back on what they hold now."""
    keep: Words
    """Bytes of ones but for the nodes (jobs x members x words) that are taken from a job."""
    odds: Bytes
    """jobs x members x nodes, uniform in 0..255."""
    anyone: Bools
    """jobs x members x nodes: one random job for each node."""
    size: Bytes
    """jobs x members x nodes: how far a job that grows goes towards the node's capacity, uniform in 0..255."""
    start: Ints
    """Node (one for each job and member) from which the GPUs of a job that has too many are counted."""


def padded(nodes: int) -> int:
    """Nodes are padded to whole words with nodes that have no GPUs."""
    return -(-nodes // _WORD) * _WORD


class Search:
    """One round's search: a population that starts from the ancestors (jobs x members x nodes) and what is held now."""

    def __init__(self, problem: Problem, ancestors: Bytes, rng: np.random.Generator) -> None:
        jobs, width = problem.now.shape
        self._problem = problem
        self._rng = rng
        # A job has at most a node's capacity there, so no sum of a row exceeds the cluster.
        self._sum = _sum_words if problem.capacity.sum(dtype=int) <= 255 else _sum_bytes
        self._room = problem.capacity + np.uint8(1)
        self._limits = problem.max_replicas[:, None]
        self._now = problem.now.view(np.uint64)[:, None]
        self._row = (np.arange(jobs) * (MEMBERS + 1))[:, None]
        sizes = problem.costs.shape[3]
        self._cost_row = (np.arange(jobs) * (4 * sizes))[:, None]
        self._costs = problem.costs.reshape(-1)
        self._losses = -np.broadcast_to(problem.speedups[:, None], problem.costs.shape).reshape(-1)
        self._dice = self._throw()
        # The last member is what is held now: children take rows from it, and nobody replaces it.
        first = np.concatenate([problem.now[:, None], ancestors], axis=1)[:, :MEMBERS]
        copies = np.arange(MEMBERS + 1) % first.shape[1]
        copies[MEMBERS] = 0
        self._pool = np.ascontiguousarray(first[:, copies])
        self._repair(self._pool, self._rng.integers(width, size=jobs * (MEMBERS + 1)))
        self._values: Floats = self._evaluate(self._pool)[:, :MEMBERS].copy()
        self._standing = np.empty(MEMBERS, dtype=np.int64)
        self._standing[best_first(self._values)] = np.arange(MEMBERS)

    @property
    def population(self) -> Bytes:
        return self._pool[:, :MEMBERS]

    @property
    def costs(self) -> Floats:
        """Of each member."""
        return np.asarray(self._values[0])

    @property
    def best(self) -> Bytes:
        return self._pool[:, int(self.costs.argmin())]

    def run(self, generations: int = GENERATIONS, patience: int = PATIENCE) -> None:
        """Breed for so many generations, or until the best has not become better for `patience` of them."""
        best, since = self.costs.min(), 0
        for _ in range(generations):
            children = self._breed(next(self._dice))
            self._survive(children, self._evaluate(children))
            best, since = (found, 0) if (found := self.costs.min()) < best else (best, since + 1)
            if since == patience:
                return

    def _throw(self) -> Iterator[Dice]:
        """Dice for generation after generation, thrown for several at a time."""
        rng, (jobs, width) = self._rng, self._problem.now.shape
        everyone = np.arange(jobs)[:, None]
        shape = (_CHUNK, jobs, MEMBERS, width)
        while True:
            tournaments = rng.integers(MEMBERS, size=(_CHUNK, 4, _PAIRS))
            above = everyone < rng.integers(jobs, size=(_CHUNK, 1, _PAIRS))
            rarely = random_bytes(rng, (2, _CHUNK, jobs, MEMBERS)) < RARELY
            odds, chance = random_bytes(rng, (2, *shape))
            taken = (chance < RARELY) & rarely[1][..., None]
            keep = (taken.view(np.uint8) - np.uint8(1)).view(np.uint64)
            anyone = rng.integers(jobs, size=(_CHUNK, 1, MEMBERS, width), dtype=np.uint16) == everyone[:, None]
            start = rng.integers(width, size=(_CHUNK, jobs * MEMBERS))
            yield from map(Dice, tournaments, above, rarely[0], keep, odds, anyone, chance, start)

    def _breed(self, dice: Dice) -> Bytes:
        """Children of the better ones, changed at random and made feasible."""
        (jobs, width), place = self._problem.now.shape, self._standing.take(dice.tournaments)
        mother, father = np.where(place[:2] <= place[2:], dice.tournaments[:2], dice.tournaments[2:])
        source = np.empty((jobs, MEMBERS), dtype=np.int64)
        source[:, :_PAIRS] = np.where(dice.above, mother, father)
        np.subtract(mother + father, source[:, :_PAIRS], out=source[:, _PAIRS:])
        np.putmask(source, dice.reset, MEMBERS)
        source += self._row
        words = self._pool.view(np.uint64).reshape(-1, width // _WORD).take(source, axis=0)
        words &= dice.keep
        children = words.view(np.uint8)
        self._grow(children, dice)
        self._repair(children, dice.start)
        return children

    def _grow(self, children: Bytes, dice: Dice) -> None:
        """On every node with idle GPUs, give more to about one job that is there and to one of all."""
        there = children != 0
        idle = np.add.reduce(children, axis=0, dtype=np.uint8) < self._problem.capacity
        chosen = dice.odds < _ONE_OF.take(np.add.reduce(there, axis=0, dtype=np.uint8))
        chosen &= there
        chosen |= dice.anyone
        chosen &= idle
        more = np.multiply(self._room - children, dice.size, dtype=np.uint16)
        more >>= 8
        more *= chosen
        np.add(children, more, out=children, casting="unsafe")

    def _repair(self, schedules: Bytes, start: Ints) -> None:
        """Numbers of replicas, no two spanning jobs on a node, capacities: in the order of the jobs, in place."""
        self._cap_replicas(schedules, start)
        words = schedules.view(np.uint64)
        used = _used(words)
        # Bytes of ones on the nodes that a job may use even if another spanning job is there.
        anywhere = ~(used * ((self._sum(used) > 1) * _FULL)[:, :, None])
        unclaimed = np.full(words.shape[1:], ~np.uint64(0))
        free = np.broadcast_to(self._problem.capacity, schedules.shape[1:]).copy()
        for mine, as_words, allowed in zip(schedules, words, anywhere, strict=True):
            as_words &= allowed | unclaimed
            unclaimed &= allowed
            np.minimum(mine, free, out=mine)
            free -= mine

    def _cap_replicas(self, schedules: Bytes, start: Ints) -> None:
        """Cut a job that has too many GPUs, from a random node on."""
        width = schedules.shape[2]
        over = (self._sum(schedules.view(np.uint64)) > self._limits).reshape(-1).nonzero()[0]
        if not len(over):
            return
        at = (np.arange(width) + start[over, None]) % width + over[:, None] * width
        flat = schedules.reshape(-1)
        limits = self._limits.take(over // schedules.shape[1])[:, None]
        upto = np.minimum(flat.take(at).cumsum(axis=1), limits)
        upto[:, 1:] -= upto[:, :-1].copy()
        flat[at] = upto

    def _evaluate(self, schedules: Bytes) -> Floats:
        """The cost of each schedule, and what it wastes: minus the speed-up per GPU of the nodes in use."""
        words, sizes = schedules.view(np.uint64), self._problem.costs.shape[3]
        different = words != self._now
        index = self._sum(words) + self._cost_row
        index += np.logical_or.reduce(different, axis=2) * (2 * sizes)
        index += (self._sum(_used(words)) > 1) * sizes
        values = np.empty((2, schedules.shape[1]))
        np.add.reduce(self._costs.take(index), axis=0, out=values[0])
        np.add.reduce(self._losses.take(index), axis=0, out=values[1])
        in_use = np.logical_or.reduce(schedules, axis=0) @ self._problem.capacity
        values[1] /= np.maximum(in_use, 1)
        return values

    def _survive(self, children: Bytes, values: Floats) -> None:
        """The best of parents and children live on."""
        everyone = np.concatenate([self._values, values], axis=1)
        best = best_first(everyone)[:MEMBERS]
        new = best >= MEMBERS
        stays = np.zeros(2 * MEMBERS, dtype=bool)
        stays[best] = True
        places, newcomers = (~stays[:MEMBERS]).nonzero()[0], best[new] - MEMBERS
        self._pool[:, places] = children[:, newcomers]
        self._values[:, places] = values[:, newcomers]
        best[new] = places
        self._standing[best] = np.arange(MEMBERS)


def best_first(values: Floats) -> Ints:
    """NSGA-II's order (Deb 2002) of members by cost and waste (two rows): by front, the loneliest of a front first.

    The first front are those that nobody beats in both; the second those that only the first beats; and so on.
    """
    costs, waste = values
    order = np.lexsort((waste, costs))
    # In order of cost, one belongs to the first front whose latest member wastes more; that waste grows with the front.
    latest: list[float] = []
    fronts = []
    for wasted in waste[order].tolist():
        front = bisect_right(latest, wasted)
        if front == len(latest):
            latest.append(wasted)
        else:
            latest[front] = wasted
        fronts.append(front)
    front_of = np.array(fronts)
    by_front = front_of.argsort(kind="stable")
    order, front_of = order[by_front], front_of[by_front]
    # Along a front cost rises and waste falls, so that neighbours in one are neighbours in the other.
    along = values[:, order]
    apart = np.abs(along[:, 2:] - along[:, :-2])
    apart /= np.maximum(np.ptp(values, axis=1, keepdims=True), 1e-12)
    room = np.full(len(order), np.inf)
    np.copyto(room[1:-1], apart[0] + apart[1], where=front_of[2:] == front_of[:-2])
    return np.asarray(order[np.lexsort((-room, front_of))])


def _used(words: Words) -> Words:
    """A one in the byte of each node on which there is something (at most 128)."""
    used = words + _LOW
    used &= _HIGH
    used >>= np.uint64(7)
    return used


def _sum_words(words: Words) -> Ints:
    """Sums over the nodes, eight at a time, of up to 255 GPUs in all."""
    total = words[:, :, 0].copy()
    for column in range(1, words.shape[2]):
        total += words[:, :, column]
    total *= _ONES
    total >>= np.uint64(56)
    return total.view(np.int64)


def _sum_bytes(words: Words) -> Ints:
    """Sums over the nodes, of any size."""
    return np.asarray(words.view(np.uint8).sum(axis=2, dtype=np.int64))


def random_bytes(rng: np.random.Generator, shape: tuple[int, ...]) -> Bytes:
    words = rng.integers(0, 2**64, size=-(-prod(shape) // _WORD), dtype=np.uint64)
    return words.view(np.uint8)[: prod(shape)].reshape(shape)
