"""What services cost on MIG instances at least, each for itself: prices of instances that no cut of a GPU exceeds.

If instances have prices such that those of any cut sum to at most 1, then what services pay for theirs is at most the
number of GPUs. A service pays at least its rate over the best throughput for the price, and for one instance at least.
Two sets of prices: an instance costs its slices' part of the GPU; and the prices that make the sum over all services
largest (the dual of the linear program that counts instances).
"""

from collections.abc import Sequence

import numpy as np

from gpuloom.gpus.layouts import multisets, total_slices
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.arrays import Floats
from gpuloom.provision.mig.options import Options


def values_of(needs: Sequence[tuple[float, Options]], model: GpuModel) -> list[Floats]:
    """Rates and options of services; values are infinite where no instance serves one."""
    cuts = multisets(model)
    sizes = sorted({size for cut in cuts for size in cut})
    per_rps = np.array([[_per_rps(options, size) for size in sizes] for _, options in needs])
    rates = np.array([rate for rate, _ in needs])
    instances = rates[:, None] * per_rps  # that each service would need of each size, in parts
    by_slices = np.array(sizes) / total_slices(model)
    served = np.isfinite(instances).any(axis=1)
    prices = [by_slices]
    if served.any():
        prices.append(_best_prices(instances[served], sizes, cuts))
    return [_paid(instances, price) for price in prices]


def _per_rps(options: Options, size: int) -> float:
    return 1.0 / options[size].rps if size in options else np.inf


def _paid(instances: Floats, price: Floats) -> Floats:
    serves = np.isfinite(instances)
    parts = np.where(serves, np.where(serves, instances, 0.0) * price, np.inf)
    return np.asarray(np.maximum(parts.min(axis=1), np.where(serves, price, np.inf).min(axis=1)))


def _best_prices(instances: Floats, sizes: Sequence[int], cuts: Sequence[tuple[int, ...]]) -> Floats:
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix, csr_matrix, hstack, vstack

    count, width = instances.shape
    service, size = np.nonzero(np.isfinite(instances))
    row = np.arange(len(service))
    # What a service pays is at most each price times what it would need of that size; a cut's prices sum to at most 1.
    paid = coo_matrix(
        (
            np.concatenate([np.ones(len(row)), -instances[service, size]]),
            (np.concatenate([row, row]), np.concatenate([width + service, size])),
        ),
        shape=(len(row), width + count),
    )
    in_cut = np.array([[cut.count(size) for size in sizes] for cut in cuts], float)
    limits = vstack([paid, hstack([csr_matrix(in_cut), csr_matrix((len(cuts), count))])]).tocsr()
    most = np.concatenate([np.zeros(len(row)), np.ones(len(cuts))])
    solved = linprog(np.concatenate([np.zeros(width), -np.ones(count)]), A_ub=limits, b_ub=most)
    price = np.maximum(solved.x[:width], 0.0) if solved.x is not None else np.zeros(width)
    return np.asarray(price / max(1.0, float((in_cut @ price).max())))
