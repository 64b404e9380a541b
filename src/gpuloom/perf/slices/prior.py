"""How fast a workload is taken to be on a slice before anything is known of it."""

from gpuloom.perf.speed import Estimate

PRIOR = {7: (1.0, 1.0), 4: (0.57, 0.97), 3: (0.51, 0.95), 2: (0.30, 0.85), 1: (0.16, 0.65)}
"""Range of the relative speed by compute slices (of seven): 9 in 10 measured workloads."""


def prior(share: float) -> Estimate:
    """On so much of a GPU's compute."""
    slices = max(1, round(share * 7))
    low, high = PRIOR[min(PRIOR, key=lambda known: abs(known - slices))]
    return Estimate((low + high) / 2, low, high)
