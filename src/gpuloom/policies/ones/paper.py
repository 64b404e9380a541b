"""ONES as published (SC'21): whole schedules evolve, the best of them is deployed, and limits let jobs grow.

A round refreshes the limits (R_j), draws every judged job's progress from its Beta distribution and goes on with the
population of the round before (`search`). The score is "smallest remaining utilisation first": the sum of n * remaining
samples / throughput(n) over the jobs of a schedule. Throughput is what the job's agent has fitted, packed on as few
nodes as can be. Of the worth of a larger batch ONES knows nothing: each GPU of a job has the same local batch, always.

A new job has one GPU for two epochs. A job that then has spent two epochs on all that its limit allows has the limit
doubled, up to four times its request. The largest job, if it holds half the cluster and has run longer than the median,
is scaled down to 2 n / (1 + run time / 2 medians), made even; what nobody else fills is still its own. A schedule is
deployed as a whole, and only when every running job that it touches has ended an epoch since it was last touched; until
then, jobs that wait start on idle GPUs. Whom a deployed schedule takes out has its limit halved.

Where the description is silent, or speaks of what is not here:
- A round is a minute and has up to 60 generations, since the original breeds once a second. A round has one draw.
- A limit is halved when its job is taken out, not again in every round that the job then waits.
- The local batch is the one of the request, batch / GPUs: known from the start, so no restart is spent on changing it.
- Samples done are progress in steps of the initial batch x that batch: a job reports no count of its own.
- Whoever leaves is taken as completed: a policy is not told why. Before anybody has, a job is taken as half done.
- Which GPUs is asked of what is deployed only, since the score does not see it: who keeps its number of GPUs keeps
  them, the others are packed on as few nodes as possible, the largest first.
"""

from typing import Any

import numpy as np

from gpuloom.contract.plan import NO_CHANGE, Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import JobView, Phase, View
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, IdleGpus
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.perf.goodput.model import GoodputModel
from gpuloom.policies.dice import dice_of, remembered, restore_dice
from gpuloom.policies.ones.paper_beta import Lesson, Path, Predictor, fit
from gpuloom.policies.ones.paper_job import (
    JUDGED_EPOCHS,
    Known,
    local_batch,
    most_gpus,
    samples_per_s,
    scaled_down,
)
from gpuloom.policies.ones.paper_search import Problem, as_text, evolve, from_text
from gpuloom.policies.placing import describe, usable_gpus
from gpuloom.work.model import Kind

ROUND_S = 60.0
MOST_ENDED = 100
"""Of so many jobs that ended it remembers how long they ran and what they taught."""


class OnesPaper(Policy):
    """ONES as published (SC'21): an evolution of whole schedules by smallest remaining utilisation."""

    adaptive = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002 - the policies' signature
        self.when = When(every_s=ROUND_S)
        self._rng = dice_of(seed)
        self._known: dict[str, Known] = {}
        self._ended: dict[int, tuple[float, list[Lesson]]] = {}
        """Of the latest jobs that ended, numbered: how long they ran, what they taught."""
        self._population: dict[str, Ints] = {}
        """Each job's numbers of GPUs in the members of the last round's population."""
        self._predictor: Predictor | None = None
        self._learned_from = -1
        """The latest of `_ended` that the predictor knows."""
        self._throughputs: dict[str, tuple[GoodputModel, Floats]] = {}

    def decide(self, view: View) -> Plan:
        self._see(view)
        gpus = usable_gpus(view)
        if not view.jobs or not gpus:
            return NO_CHANGE
        self._move_limits(view, gpus)
        # As they are deployed, from the first GPU on; who waits comes last, in order of arrival.
        jobs = sorted(view.jobs.values(), key=lambda job: min((grant.gpu for grant in job.grants), default=1 << 32))
        problem = self._problem(view, jobs, gpus)
        nobody = np.zeros(gpus, dtype=np.intp)
        ancestors = np.stack([np.resize(self._population.get(job.id, nobody), gpus) for job in jobs], axis=1)
        population = evolve(problem, ancestors, self._rng)
        self._population = {job.id: population[:, column].copy() for column, job in enumerate(jobs)}
        wanted = {job.id: int(count) for job, count in zip(jobs, population[0], strict=True)}
        costs = {job.id: row for job, row in zip(jobs, problem.costs, strict=True)}
        return self._plan(view, self._deployed(view, wanted), costs)

    def remember(self) -> object:
        return {
            "dice": remembered(self._rng),
            "known": {
                job_id: [
                    job.limit,
                    job.gpus,
                    job.since_epoch,
                    job.ran_s,
                    [[e, *p] for e, p in job.path.by_epoch.items()],
                ]
                for job_id, job in self._known.items()
            },
            "ended": {str(number): [ran_s, lessons] for number, (ran_s, lessons) in self._ended.items()},
            "population": {job_id: as_text(counts) for job_id, counts in self._population.items()},
        }

    def restore(self, memory: Any) -> None:
        restore_dice(self._rng, memory["dice"])
        self._known = {
            job_id: Known(limit, gpus, since, ran_s, Path({int(e): (samples, metric) for e, samples, metric in path}))
            for job_id, (limit, gpus, since, ran_s, path) in memory["known"].items()
        }
        ended = sorted((int(number), job) for number, job in memory["ended"].items())
        self._ended = {n: (float(ran_s), [(row, done) for row, done in lessons]) for n, (ran_s, lessons) in ended}
        self._population = {job_id: from_text(text) for job_id, text in memory["population"].items()}

    def _see(self, view: View) -> None:
        """Take over what jobs report, and learn from those that are gone."""
        for job in view.jobs.values():
            if job.job.kind is not Kind.ELASTIC:
                raise InputError(f"policy ones-paper needs elastic jobs: job {job.id} is {job.job.kind.value}")
            known = self._known.setdefault(job.id, Known(job.job.min_gpus))
            known.ran_s = job.ran_s + (view.now_s - job.since_s if job.phase is Phase.RUNNING else 0.0)
            if job.report is not None:
                model = job.report.goodput
                samples = job.report.progress * (model.limits.init_batch if model else 1)
                known.path.reach(job.report.epoch, samples, job.report.metric or 0.0)
            known.give(len(job.grants))
        for job_id in sorted(self._known.keys() - view.jobs.keys()):  # in an order that memory keeps
            gone = self._known.pop(job_id)
            self._throughputs.pop(job_id, None)
            self._ended[max(self._ended, default=-1) + 1] = (gone.ran_s, gone.path.lessons())
            if len(self._ended) > MOST_ENDED:
                del self._ended[min(self._ended)]

    def _move_limits(self, view: View, gpus: int) -> None:
        """Double the limit of who has used it for long enough."""
        most = {job.id: most_gpus(job, gpus) for job in view.jobs.values()}
        for job_id, known in self._known.items():
            if known.gpus >= known.limit and known.epochs_since >= JUDGED_EPOCHS:
                known.limit *= 2
            known.limit = max(min(known.limit, most[job_id]), view.jobs[job_id].job.min_gpus)

    def _scaled_down(self, view: View, gpus: int) -> dict[str, int]:
        """The limit of the largest job for this round, if it holds half the cluster and has run for long."""
        settled = [
            job_id for job_id, known in self._known.items() if known.gpus and known.epochs_since >= JUDGED_EPOCHS
        ]
        largest = max(settled, key=lambda job_id: (self._known[job_id].gpus, job_id), default=None)
        if largest is None or self._known[largest].gpus < gpus // 2:
            return {}
        began = [known.ran_s for job_id, known in self._known.items() if view.jobs[job_id].starts]
        median_s = float(np.median([ran_s for ran_s, _ in self._ended.values()] + began))
        known = self._known[largest]
        fewer = scaled_down(known.gpus, known.ran_s, median_s)
        return {largest: max(min(known.limit, fewer), view.jobs[largest].job.min_gpus)}

    def _problem(self, view: View, jobs: list[JobView], gpus: int) -> Problem:
        known = [self._known[job.id] for job in jobs]
        arrived = {job_id: place for place, job_id in enumerate(view.jobs)}
        new = sorted((row for row, job in enumerate(known) if not job.judged), key=lambda row: arrived[jobs[row].id])
        old = [row for row, job in enumerate(known) if job.judged]
        lower = self._scaled_down(view, gpus)
        costs = np.zeros((len(jobs), gpus + 1))
        for row, left in zip(old, self._remaining([known[row].path for row in old]), strict=True):
            costs[row, 1:] = left * np.arange(1, gpus + 1) / self._throughput(view.cluster, jobs[row], gpus)[1:]
        return Problem(
            gpus,
            least=np.array([job.job.min_gpus for job in jobs]),
            limits=np.array([lower.get(job.id, self._known[job.id].limit) for job in jobs]),
            most=np.array([job.limit for job in known]),
            arrivals=np.array(new, dtype=np.intp),
            shortest=np.array(sorted(old, key=lambda row: float(costs[row, 1])), dtype=np.intp),
            costs=costs,
        )

    def _remaining(self, paths: list[Path]) -> Floats:
        """Samples that each job still needs, if its progress is what was drawn."""
        epochs = np.array([path.epochs for path in paths], dtype=float)
        latest = max(self._ended, default=-1)
        if latest != self._learned_from:
            self._predictor = fit([lesson for _, lessons in self._ended.values() for lesson in lessons])
            self._learned_from = latest
        left = epochs
        if self._predictor is not None and paths:
            left = self._predictor.epochs_left(np.array([path.regressors(path.epochs) for path in paths]))
        progress = np.maximum(self._rng.beta(epochs, left), 1e-12)
        return np.array([path.samples for path in paths]) * (1 / progress - 1)

    def _throughput(self, cluster: Cluster, job: JobView, gpus: int) -> Floats:
        """Samples a second on 0 to `gpus` GPUs; without a model, as if it scaled perfectly."""
        model, counts = job.report.goodput if job.report else None, np.arange(gpus + 1.0)
        if model is None:
            return counts
        kept = self._throughputs.get(job.id)
        if kept is None or kept[0] is not model or len(kept[1]) != len(counts):
            node_size = max(map(len, cluster.nodes.values()))
            kept = self._throughputs[job.id] = (model, counts * samples_per_s(model, local_batch(job), node_size, gpus))
        return kept[1]

    def _deployed(self, view: View, wanted: dict[str, int]) -> dict[str, int]:
        """The schedule as it can be deployed now: as a whole, or for waiting jobs on idle GPUs only."""
        touched = [
            self._known[job.id] for job in view.jobs.values() if job.grants and wanted[job.id] != len(job.grants)
        ]
        if all(known.epochs_since for known in touched):
            for job in view.jobs.values():
                if job.grants and not wanted[job.id]:
                    known = self._known[job.id]
                    known.limit = max(known.limit // 2, job.job.min_gpus)
            return wanted
        held, idle = {job.id: len(job.grants) for job in view.jobs.values()}, view.idle.total
        for job_id in view.waiting:
            if wanted[job_id] <= idle:
                held[job_id] = wanted[job_id]
                idle -= wanted[job_id]
        return held

    def _plan(self, view: View, deployed: dict[str, int], costs: dict[str, Floats]) -> Plan:
        """Grants for the jobs whose number of GPUs changes; the others keep theirs."""
        changed = [job for job in view.jobs.values() if deployed[job.id] != len(job.grants)]
        idle, node_of = view.idle.copy(), view.cluster.node_of
        for job in changed:
            for grant in job.grants:
                idle.add(node_of[grant.gpu], grant.gpu)
        grants: dict[str, Grants] = {}
        reasons = []
        for job in sorted(changed, key=lambda job: -deployed[job.id]):
            before, after, known = len(job.grants), deployed[job.id], self._known[job.id]
            grants[job.id] = tuple(Grant(gpu, batch=local_batch(job)) for gpu in _pack(idle, view.cluster, after))
            known.give(after)
            why = f"limit {known.limit}; GPU seconds that it would still take, by a draw"
            if not known.judged:
                why = f"new: limit {known.limit} until {JUDGED_EPOCHS} epochs are done; taken as no GPU seconds"
            as_is = (("as it is", float(costs[job.id][before])),) if before else ()
            value = float(costs[job.id][after]) if after else None
            reasons.append(Reason(job.id, describe(before, after), why, value, as_is))
        return Plan(grants=grants, reasons=tuple(reasons))


def _pack(idle: IdleGpus, cluster: Cluster, count: int) -> list[int]:
    """Take so many GPUs: the fullest node first, but the last part from the node that it fits best."""
    taken: list[int] = []
    while len(taken) < count:
        rest = count - len(taken)
        node = max(cluster.nodes, key=lambda node: _fit(len(idle.on(node)), rest))
        for gpu in idle.on(node)[:rest]:
            idle.remove(node, gpu)
            taken.append(gpu)
    return taken


def _fit(idle: int, wanted: int) -> tuple[bool, int]:
    return (True, -idle) if idle >= wanted else (False, idle)
