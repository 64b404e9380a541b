"""`ones` with a search on top of its exact counts: policies for ones_search.py, which tells whether they are worth it.

`Evolved` breeds whole schedules (jobs x nodes), from the placed optimum of the dynamic programme, from what is held and
from the last round's population, and scores what the programme cannot see: how many nodes a job spans, and who has to
be moved for it. `RolledOut` draws other schedules near the optimum and plays each of them on, as a fluid, through the
next departures; the one with the least sum of completion times is taken. Both are bounded by counts, not by the clock.
"""

from collections.abc import Container, Mapping

import numpy as np

from gpuloom.contract.view import JobView
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.perf.arrays import Bools, Floats, Ints
from gpuloom.perf.goodput.goodput import best_goodput
from gpuloom.policies.dice import dice_of
from gpuloom.policies.ones.beliefs import Belief
from gpuloom.policies.ones.counts import best_counts
from gpuloom.policies.ones.policy import Ones, Options, Round
from gpuloom.policies.pollux.search import Bytes, Problem, Search, padded

GENERATIONS = 20
ANCESTORS = 20
"""Members of the last population that the next one begins with."""
UNKNOWN_SPREAD = 0.9
"""Of the speed on one node: what a job of which nothing is known is taken to have on several."""
FORBIDDEN, CLAIM = 1e3, 1e6

DRAWS = 12
SPREAD = 0.3
"""Of the logarithms of weights that schedules near the optimum are drawn with."""
DEPARTURES = 12
UNKNOWN_S = 600.0
"""Work left of a job of which nothing is known, in seconds of one GPU."""


class Evolved(Ones):
    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:
        super().__init__(cluster, seed, arg)
        self._dice = dice_of(seed)
        self._population: dict[str, Bytes] = {}

    def _place(self, now: Round, wanted: Mapping[str, int], given_away: Container[int]) -> dict[str, Grants]:
        exact = super()._place(now, wanted, given_away)
        column = {node: number for number, node in enumerate(now.view.cluster.nodes)}
        width = padded(len(column))
        held = np.stack([_row(now, job.grants, column, width) for job in now.jobs])
        placed = np.stack([_row(now, exact.get(job.id, job.grants), column, width) for job in now.jobs])
        capacity = np.zeros(width, dtype=np.uint8)
        for gpu, seen in now.view.gpus.items():
            capacity[column[now.view.cluster.node_of[gpu]]] += not seen.lost
        costs = self._costs(now)
        limits = np.array([_most(now, job, one) for job, one in zip(now.jobs, now.beliefs, strict=True)])
        search = Search(Problem(held, capacity, limits, costs, -costs[:, 0]), self._ancestors(now, placed), self._dice)
        search.run(GENERATIONS, GENERATIONS)
        rows = search.population[:, :ANCESTORS]
        self._population = {job.id: rows[number].copy() for number, job in enumerate(now.jobs)}
        if _total(costs, held, search.best) >= _total(costs, held, placed):
            return exact
        return _granted(now, held, search.best, column)

    def _ancestors(self, now: Round, placed: Bytes) -> Bytes:
        members = next(iter(self._population.values())).shape[0] if self._population else 0
        nothing = np.zeros((members, placed.shape[1]), dtype=np.uint8)
        last = np.stack([self._population.get(job.id, nothing) for job in now.jobs])
        return np.concatenate([placed[:, None], last], axis=1)

    def _costs(self, now: Round) -> Floats:
        """[job, is it moved, does it span nodes, number of GPUs]: minus what that is worth."""
        most = max(_most(now, job, one) for job, one in zip(now.jobs, now.beliefs, strict=True))
        costs = np.zeros((len(now.jobs), 2, 2, most + 1))
        for row, (job, belief) in enumerate(zip(now.jobs, now.beliefs, strict=True)):
            speed = self._speeds(now, job, belief)
            worth = float(now.weights[row]) * speed**self._tuning.value_exponent
            last = speed.shape[1]
            costs[row, 0, :, :last] = costs[row, 1, :, :last] = -worth
            if job.grants:
                for spans in (0, 1):
                    lost = self._lost(job, belief, np.maximum(speed[spans], 1e-9), now.view.costs)
                    costs[row, 1, spans, :last] *= 1.0 - lost
                own = float(worth[:, len(job.grants)].max())
                costs[row, :, :, 0] = own * self._lost_by_pause(job, belief, 1.0, now.view.costs)
            if job.id in now.floors:
                costs[row, :, :, min(now.floors[job.id], last - 1) : last] -= CLAIM
            costs[row, :, :, 1 : job.job.min_gpus] = FORBIDDEN
        return costs

    def _speeds(self, now: Round, job: JobView, belief: Belief) -> Floats:
        """On 0, 1, 2… GPUs, within a node and across nodes."""
        last = _most(now, job, belief)
        counts = np.array(now.counts[: len(belief.speed)])
        packed = np.interp(np.arange(last + 1), np.r_[0, counts], np.r_[0.0, belief.speed])
        inside, across = packed.copy(), packed * UNKNOWN_SPREAD
        inside[now.node_size + 1 :] = 0.0
        model = self._beliefs.model(job)
        if model is not None and last > 1:
            across[2:] = best_goodput(model, True, 2, last) / best_goodput(model, False, 1, 1)[0]
            whole = np.arange(last + 1) % now.node_size == 0
            across[whole] = packed[whole]
        across[:2] = 0.0
        return np.stack([inside, np.minimum(across, packed)])


def _most(now: Round, job: JobView, belief: Belief) -> int:
    return max(now.counts[len(belief.speed) - 1], len(job.grants), job.job.min_gpus)


def _row(now: Round, grants: Grants, column: Mapping[int, int], width: int) -> Bytes:
    row = np.zeros(width, dtype=np.uint8)
    for grant in grants:
        row[column[now.view.cluster.node_of[grant.gpu]]] += 1
    return row


def _total(costs: Floats, held: Bytes, schedule: Bytes) -> float:
    moved = (schedule != held).any(axis=1).astype(int)
    spans = (np.count_nonzero(schedule, axis=1) > 1).astype(int)
    return float(costs[np.arange(len(costs)), moved, spans, schedule.sum(axis=1, dtype=int)].sum())


def _granted(now: Round, held: Bytes, best: Bytes, column: Mapping[int, int]) -> dict[str, Grants]:
    """GPUs for the rows that differ, their own first."""
    node_of = now.view.cluster.node_of
    free = {column[node]: list(now.view.idle.on(node)) for node in now.view.cluster.nodes}
    changed = np.flatnonzero((held != best).any(axis=1)).tolist()
    taken: dict[int, list[int]] = {}
    for row in changed:
        own: dict[int, list[int]] = {}
        for grant in now.jobs[row].grants:
            own.setdefault(column[node_of[grant.gpu]], []).append(grant.gpu)
        taken[row] = [gpu for node, gpus in own.items() for gpu in gpus[: best[row, node]]]
        for node, gpus in own.items():
            free[node] += gpus[best[row, node] :]
    grants: dict[str, Grants] = {}
    for row in changed:
        for node in np.flatnonzero(best[row]).tolist():
            has = sum(column[node_of[gpu]] == node for gpu in taken[row])
            taken[row] += [free[node].pop(0) for _ in range(int(best[row, node]) - has)]
        job = now.jobs[row]
        found = taken[row] if len(taken[row]) >= job.job.min_gpus else []
        if found or job.grants:
            grants[job.id] = tuple(map(Grant, found))
    return grants


class RolledOut(Ones):
    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:
        super().__init__(cluster, seed, arg)
        self._dice = dice_of(seed)

    def _choose(self, now: Round, table: Options) -> Ints:
        chosen = [super()._choose(now, table)]
        for _ in range(DRAWS):
            drawn = np.exp(SPREAD * self._dice.standard_normal(len(now.jobs)))
            values = table.values * np.where(np.abs(table.values) < CLAIM / 2, drawn[:, None], 1.0)
            chosen.append(best_counts(table.counts, values, now.gpus).chosen)
        rows = np.arange(len(now.jobs))
        schedules = {tuple(table.counts[rows, one[: len(rows)]].tolist()): one for one in reversed(chosen)}
        ends_s = {counts: self._played_on(now, np.array(counts)) for counts in schedules}
        return schedules[min(ends_s, key=lambda counts: ends_s[counts])]

    def _played_on(self, now: Round, counts: Ints) -> float:
        """The sum of completion times if this is begun with, and who goes leaves its GPUs to where they bring most."""
        grid = np.r_[0, now.counts]
        speed = np.zeros((len(now.jobs), len(grid)))
        for row, belief in enumerate(now.beliefs):
            speed[row, 1 : len(belief.speed) + 1] = belief.speed
            speed[row, len(belief.speed) + 1 :] = belief.speed[-1]
        costs, moved = now.view.costs, np.array([len(job.grants) for job in now.jobs]) != counts
        left = np.array([one.work_s if one.known else UNKNOWN_S for one in now.beliefs])
        again = np.array([costs.of_change(job.job.in_place) if job.grants else costs.start_s for job in now.jobs])
        step = np.searchsorted(grid, counts, side="right") - 1
        rows, at_s, total = np.arange(len(counts)), 0.0, 0.0
        wait_s, live = np.where(moved & (counts > 0), again, 0.0), np.ones(len(counts), dtype=bool)
        free = now.gpus - int(counts.sum())
        for _ in range(min(DEPARTURES, len(counts))):
            rate = speed[rows, step]
            need_s = np.where(live & (rate > 0), wait_s + left / np.maximum(rate, 1e-9), np.inf)
            first = int(need_s.argmin())
            if not np.isfinite(need_s[first]):
                break
            passed_s = float(need_s[first])
            left = np.maximum(left - rate * np.maximum(passed_s - wait_s, 0.0), 0.0)
            wait_s = np.maximum(wait_s - passed_s, 0.0)
            at_s += passed_s
            total += at_s
            live[first] = False
            free += int(grid[step[first]])
            step[first] = 0
            free = _given_on(now, grid, speed, live, step, free, self._tuning.value_exponent)
        rate = np.maximum(speed[rows, step], speed[:, 1])
        return total + float((at_s + left / np.maximum(rate, 1e-9))[live].sum())


def _given_on(now: Round, grid: Ints, speed: Floats, live: Bools, step: Ints, free: int, exponent: float) -> int:
    """GPUs that somebody has left, one step after the other to whom it brings most for each GPU."""
    rows = np.arange(len(step))
    while free > 0:
        up = np.minimum(step + 1, len(grid) - 1)
        more = grid[up] - grid[step]
        gain = now.weights * (speed[rows, up] ** exponent - speed[rows, step] ** exponent) / np.maximum(more, 1)
        gain = np.where(live & (more > 0) & (more <= free), gain, 0.0)
        best = int(gain.argmax())
        if gain[best] <= 0:
            break
        free -= int(more[best])
        step[best] += 1
    return free
