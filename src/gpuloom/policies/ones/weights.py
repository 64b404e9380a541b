"""How much each job's speed counts: by the rank of its remaining work, softly.

heSRPT (Berg, Vesilo and Harchol-Balter, 2020) shares servers between jobs that all speed up as n^p so that the sum of
completion times is least: who has less left gets more, but nobody everything. Its shares depend on ranks alone, so they
need no scale. Here they become weights of values that are maximised: the weights at which those shares come out best.
"""

import numpy as np

from gpuloom.perf.arrays import Floats

AT_ONCE = 256
"""Jobs that are compared with all others at a time: so that thousands of them take no gigabytes."""


def soft_ranks(left: Floats, softness: float) -> Floats:
    """1 for the most left, the number of jobs for the least; those about alike have about the same rank."""
    logs = np.log(left)
    ranks = np.empty(len(logs))
    for first in range(0, len(logs), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        apart = np.clip((logs[None, :] - logs[some, None]) / softness, -30.0, 30.0)
        ranks[some] = (1.0 / (1.0 + np.exp(-apart))).sum(axis=1) + 0.5
    return ranks


def rank_weights(ranks: Floats, exponent: float) -> Floats:
    """Of jobs with these ranks; the mean is 1."""
    power, last = 1.0 / (1.0 - exponent), len(ranks)
    shares = (ranks / last) ** power - ((ranks - 1.0).clip(0.0) / last) ** power
    weights = shares ** (1.0 - exponent)
    return np.asarray(weights / weights.mean())
