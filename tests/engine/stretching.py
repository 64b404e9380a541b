"""A policy that resizes, moves and pauses elastic jobs at random; its plans are sound. Also for a command line."""

from random import Random

from gpuloom.contract.plan import Plan
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import View
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants


class Stretching(Policy):
    """`stretching.py:Stretching:150,60` is left in peace after 150 questions, of which it is asked one every 60 s."""

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        questions, _, every_s = arg.partition(",")
        self.dice, self.patience, self.when = Random(seed), int(questions), When(every_s=float(every_s))

    def decide(self, view: View) -> Plan:
        dice = self.dice
        self.patience -= 1
        if self.patience < 0:
            return Plan()
        moved = [job for job in view.jobs.values() if not job.grants or dice.random() < 0.3]
        kept = {grant.gpu for job in view.jobs.values() if job not in moved for grant in job.grants}
        free = [gpu for gpu, seen in view.gpus.items() if not seen.lost and gpu not in kept]
        grants: dict[str, Grants] = {}
        for job in moved:
            own = [grant.gpu for grant in job.grants if grant.gpu in free and dice.random() < 0.8]
            others = [gpu for gpu in free if gpu not in own]
            wanted = min(max(job.job.min_gpus, dice.choice((1, 1, 2, 3, 4))), job.job.max_gpus)
            chosen = [*own, *dice.sample(others, len(others))][:wanted]
            chosen = chosen if len(chosen) >= job.job.min_gpus and dice.random() < 0.95 else []
            grants[job.id] = tuple(Grant(gpu, batch=dice.choice((None, 8, 16))) for gpu in chosen)
            free = [gpu for gpu in free if gpu not in chosen]
        return Plan(grants=grants)

    def remember(self) -> object:
        version, state, gauss = self.dice.getstate()
        return [version, list(state), gauss, self.patience]

    def restore(self, memory: object) -> None:
        assert isinstance(memory, list)
        version, state, gauss, self.patience = memory
        self.dice.setstate((version, tuple(state), gauss))
