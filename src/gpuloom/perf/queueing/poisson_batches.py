"""Which batches a batching server starts in the long run, for Poisson arrivals and the max batch as the preferred size.

The embedded chain. Call the moment up to which arrivals are known the *fresh point*: what follows is a new Poisson
process. A full batch takes B requests and looks no further, so its fresh point is the arrival of its last request, a
time v >= 0 before its start. Any other batch takes all there is: its fresh point is its start (v = 0). With b the size
and y = v + busy[b] the time from the fresh point until the instance is free, the next batch starts, from there, at

    max(y, min(T_B, T_1 + delay))           T_i: the i-th arrival

so the state is one number: an atom y = busy[b] for each size, and a density over v > 0 for full batches with others
behind them. The delay needs no approximation. From y, with N(t) the number of arrivals in t and m = min(y, delay):

    b < B:         P(N(y) = b) (1 - (m / y)^b) + exp(-rate (y - delay)+) P(N(delay) = b - 1)
    B, just full:  exp(-rate y) (rate m)^(B-1) / (B-1)! + (P(N(y) <= B-2) - P(N(delay) <= B-2))+
    B, v behind:   the Erlang-B density of y - v

The density is solved on Gauss-Legendre panels as long as busy[B]; it is smooth within one but for small B. Past the
last panel it falls by exp(-decay v), `decay` the positive root of decay busy[B] = B log(1 + decay / rate): exact far
out. What this leaves of an error is measured by `benchmarks/queueing.py`.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, lgamma, log, log1p, sqrt

import numpy as np

from gpuloom.perf.arrays import Floats

NEGLIGIBLE = 1e-9


@dataclass(frozen=True, slots=True)
class Starts:
    """The stationary law of y (`free_ms`) at the starts of batches, as weighted points in ascending order."""

    rate_per_ms: float
    delay_ms: float
    free_ms: Floats
    weight: Floats
    """Of each point; the first B are those of the atoms. Sums to 1 with `far_weight`."""
    counts: Floats
    """P(N(free_ms) = b) for b = 0..B-1: a row for each point."""
    sizes: Floats
    """Probability that a batch has 1..B requests."""
    just_full: float
    """Probability that an idle instance waits until its batch is full."""
    far_weight: float
    """Beyond the last point, where nothing but full batches starts."""
    far_free_ms: float
    """Mean of y there."""
    decay_per_ms: float
    settled_ms: float
    """From this y on the law falls exponentially."""

    @property
    def mean_batch(self) -> float:
        return float(self.sizes @ np.arange(1, len(self.sizes) + 1))


@dataclass(frozen=True, slots=True)
class Panel:
    """Gauss-Legendre on (0, 1), and on the rest (node, 1) of the panel above each node."""

    nodes: Floats
    weights: Floats
    rest: Floats
    """rest[i, q]: distance of the q-th point of (node i, 1) from node i."""
    spread: Floats
    """spread[i, q, k]: weight of that point, times the k-th interpolation polynomial there."""


@lru_cache
def panel_of(count: int) -> Panel:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    nodes, weights = (nodes + 1) / 2, weights / 2
    rest = (1 - nodes)[:, None] * nodes
    points = nodes[:, None] + rest
    others = [np.delete(nodes, k) for k in range(count)]
    factors = [np.prod((points[..., None] - o) / (nodes[k] - o), axis=-1) for k, o in enumerate(others)]
    basis = np.stack(factors, axis=-1)
    return Panel(nodes, weights, rest, basis * ((1 - nodes)[:, None] * weights)[..., None])


@lru_cache
def log_factorials(count: int) -> Floats:
    return np.array([lgamma(k + 1) for k in range(count)])


def poisson(means: Floats, count: int) -> Floats:
    """Probabilities of 0..count-1: a row for each mean, which is positive."""
    k = np.arange(count)
    return np.asarray(np.exp(np.log(means)[:, None] * k - means[:, None] - log_factorials(count)))


def erlang(times: Floats, order: int, rate: float) -> Floats:
    """The density of the `order`-th arrival at positive times."""
    scaled = rate * times
    return np.asarray(rate * np.exp((order - 1) * np.log(scaled) - scaled - lgamma(order)))


def reach(order: int) -> float:
    """Mean number of arrivals by which the `order`-th has come, to NEGLIGIBLE."""
    return order + 6 * sqrt(order) + 12


def relative_decay(load: float) -> float:
    """The positive root u of load u = log(1 + u): Newton from above, where the difference is convex."""
    u = 2.0 / load * (log(1.0 / load) + 1.0)
    for _ in range(60):
        step = (load * u - log1p(u)) / (load - 1.0 / (1.0 + u))
        u -= step
        if abs(step) <= 1e-13 * u:
            break
    return u


def panels_for(order: int) -> tuple[int, int]:
    """(points in a panel, panels): small batches have kinks and a slow approach to the exponential tail."""
    if order == 1:
        return 12, 6
    if order <= 3:
        return 16, 4
    return (10, 3) if order <= 8 else (10 + order // 8, 2)


@dataclass(frozen=True, slots=True)
class Mesh:
    """Where the density is solved, and how it goes on."""

    panel: Panel
    own: int
    """Panels with unknowns of their own."""
    fall: float
    """From a panel to the next, beyond those."""
    extra: int
    """Panels beyond, of which anything but full batches can follow."""
    decay_per_ms: float

    @classmethod
    def of(cls, order: int, service_ms: float, rate_per_ms: float, refine: int) -> "Mesh":
        points, own = panels_for(order)
        load = rate_per_ms * service_ms / order
        relative = relative_decay(load)
        drop = load * order * relative
        needed = ceil(min(reach(order) / (rate_per_ms * service_ms), -log(NEGLIGIBLE) / drop))
        fall = exp(-min(drop, 700.0))
        return cls(panel_of(points * refine), own, fall, max(1, needed), rate_per_ms * relative)

    @property
    def behind(self) -> Floats:
        """v in units of busy[B], a row for each panel."""
        return np.asarray(np.arange(self.own + self.extra)[:, None] + self.panel.nodes)

    @property
    def folds(self) -> Floats:
        """Of the panels beyond, relative to the last."""
        return np.asarray(self.fall ** np.arange(1, self.extra + 1))


def solve_starts(busy_ms: Floats, rate_per_ms: float, delay_ms: float, refine: int = 1) -> Starts:
    """For a rate above 0 and below B / busy[B]; `refine` multiplies the points, to see the error that they leave."""
    order, service = len(busy_ms), float(busy_ms[-1])
    mesh = Mesh.of(order, service, rate_per_ms, refine)
    own, fall, last = mesh.own, mesh.fall, mesh.panel.weights
    free = np.concatenate([busy_ms, (service * (1 + mesh.behind)).ravel()])
    counts = poisson(rate_per_ms * free, order)
    full = 1.0 - counts[:order].sum(axis=1)
    system = _system(mesh, busy_ms, _to_atoms(free, counts, rate_per_ms, delay_ms), full, rate_per_ms)
    right = np.zeros(len(system))
    right[0] = 1.0
    solution = np.linalg.solve(system, right)

    density = solution[order:].reshape(own, -1) * last
    weight = np.concatenate([solution[:order], density.ravel(), np.outer(mesh.folds, density[-1]).ravel()])
    sizes = np.maximum(solution[:order], 0.0)
    sizes[-1] = 1.0 - sizes[:-1].sum()
    mass = float(density[-1].sum())
    centre = float(density[-1] @ mesh.panel.nodes) / mass if mass > 0 else 0.0
    return Starts(
        rate_per_ms,
        delay_ms,
        free,
        weight,
        counts,
        sizes,
        just_full=float(solution[order - 1]),
        far_weight=mass * fall ** (mesh.extra + 1) / (1.0 - fall),
        far_free_ms=service * (1 + own + mesh.extra + centre + fall / (1.0 - fall)),
        decay_per_ms=mesh.decay_per_ms,
        settled_ms=own * service,
    )


def _system(mesh: Mesh, busy_ms: Floats, to_atoms: Floats, full: Floats, rate: float) -> Floats:
    """Balance of the atoms and of the density at the points; the first equation is replaced by the sum, which is 1."""
    order, own, points = len(busy_ms), mesh.own, len(mesh.panel.nodes)
    service, weights = float(busy_ms[-1]), mesh.panel.weights
    size = order + own * points
    system = np.zeros((size, size))
    system[:order, :order] = to_atoms[:order].T
    from_density = to_atoms[order:].reshape(own + mesh.extra, points, order) * weights[:, None]
    beyond = mesh.folds @ from_density[own:].reshape(mesh.extra, -1)
    from_density[own - 1] += beyond.reshape(points, order)
    system[:order, order:] = from_density[:own].reshape(-1, order).T
    system[order : order + points, :order] = _behind_atoms(busy_ms, mesh.panel, full, rate)
    system[order:, order:] = _behind_full(mesh.panel, own, mesh.folds, service, order, rate)
    system.flat[:: size + 1] -= 1.0
    system[0, :order] = 1.0
    system[0, order:] = np.tile(weights, own)
    system[0, -points:] /= 1.0 - mesh.fall
    return system


def _to_atoms(free: Floats, counts: Floats, rate: float, delay: float) -> Floats:
    """Probability of the next batch having 1..B-1 requests, or being just full: a row for each y."""
    order = counts.shape[1]
    step = np.empty_like(counts)
    waited = np.minimum(free, delay)
    idle = np.exp(-rate * (free - waited))
    in_delay = poisson(np.array([rate * delay]), order)[0] if delay > 0 else np.eye(1, order)[0]
    ratio = waited / free
    step[:, :-1] = counts[:, 1:]
    if delay > 0:
        step[:, :-1] *= 1.0 - ratio[:, None] ** np.arange(1, order)
    step[:, :-1] += idle[:, None] * in_delay[:-1]
    unfilled = counts[:, :-1].sum(axis=1) - in_delay[:-1].sum()
    step[:, -1] = counts[:, -1] * ratio ** (order - 1) + np.maximum(unfilled, 0.0)
    return step


def _behind_atoms(busy_ms: Floats, panel: Panel, full: Floats, rate: float) -> Floats:
    """Density of v, in units of busy[B], after an atom; `full` is the sum of each, which the points may miss."""
    order, service = len(busy_ms), float(busy_ms[-1])
    past = busy_ms - panel.nodes[:, None] * service
    density = np.where(past > 0, erlang(np.maximum(past, 1e-300), order, rate), 0.0) * service
    summed = panel.weights @ density
    return np.asarray(density * np.where(summed > 0.1 * full, full / np.maximum(summed, 1e-300), 1.0))


def _behind_full(panel: Panel, own: int, folds: Floats, service: float, order: int, rate: float) -> Floats:
    """Density of v, in units of busy[B], after v: a block for each pair of panels, the same along diagonals."""
    points = len(panel.nodes)
    below = (erlang(panel.rest * service, order, rate)[:, None] @ panel.spread)[:, 0] * service
    shifts = 1 + np.arange(own + len(folds))[:, None, None] + panel.nodes - panel.nodes[:, None]
    same = erlang(shifts * service, order, rate) * panel.weights * service
    flat = same.reshape(len(same), -1)
    blocks = np.zeros((own, points, own, points))
    for to in range(own):
        blocks[to, :, to:] = same[: own - to].transpose(1, 0, 2)
        blocks[to, :, own - 1] += (folds @ flat[own - to : own - to + len(folds)]).reshape(points, points)
        if to:
            blocks[to, :, to - 1] += below
    return blocks.reshape(own * points, own * points)
