"""How many GPUs each job should have: the counts with the largest sum of values, exactly, by dynamic programming.

Knows numbers only: not jobs, not nodes. What it finds is also a bound on anything that has to place the same jobs.
"""

from typing import NamedTuple

import numpy as np

from gpuloom.perf.arrays import Floats, Ints


class Counts(NamedTuple):
    chosen: Ints
    """The column of each row that was chosen."""
    value: float


def best_counts(counts: Ints, values: Floats, gpus: int) -> Counts:
    """One column for each row of `values`, so that their `counts` (rows x columns) sum to at most `gpus`.

    A value of -inf is not to be had. Column 0 is always to be had, and takes no GPU.
    """
    reach = np.arange(gpus, 2 * gpus + 1)
    best = np.full(2 * gpus + 1, -np.inf)
    best[gpus:] = 0.0  # with this many GPUs or fewer; what lies before is a negative number of them
    taken = np.empty((len(values), gpus + 1), dtype=np.intp)
    everywhere = np.arange(gpus + 1)
    for row, (needs, worth) in enumerate(zip(counts, values, strict=True)):
        fits = (needs <= gpus) & (worth > -np.inf)
        columns = np.flatnonzero(fits)
        options = best[reach - needs[columns, None]] + worth[columns, None]
        pick = options.argmax(axis=0)
        taken[row] = columns[pick]
        best[gpus:] = options[pick, everywhere]
    chosen = np.zeros(len(values), dtype=np.intp)
    left = gpus
    for row in range(len(values) - 1, -1, -1):
        chosen[row] = taken[row, left]
        left -= int(counts[row, chosen[row]])
    return Counts(chosen, float(best[-1]))
