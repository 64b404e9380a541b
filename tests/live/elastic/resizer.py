"""A policy that gives its one job one number of devices after the other: `resizer.py:Resizer:1-2-3`, then stays."""

from gpuloom.contract import Plan, Policy, View
from gpuloom.contract.policy import When
from gpuloom.contract.view import Phase
from gpuloom.gpus.grant import Grant


class Resizer(Policy):
    when = When(every_s=10.0)

    def __init__(self, cluster, seed=0, arg="1-2"):  # type: ignore[no-untyped-def]  # noqa: ARG002
        self.sizes = [*map(int, arg.split("-"))]
        self.next = 0

    def decide(self, view: View) -> Plan:
        for job in view.jobs.values():
            settled = job.phase is Phase.RUNNING and job.held == job.grants
            if (not job.grants and self.next == 0) or (settled and self.next < len(self.sizes)):
                size, self.next = self.sizes[self.next], self.next + 1
                return Plan(grants={job.id: tuple(Grant(gpu, batch=16) for gpu in range(size))})
            if not job.grants:
                size = self.sizes[self.next - 1]
                return Plan(grants={job.id: tuple(Grant(gpu, batch=16) for gpu in range(size))})
        return Plan()

    def remember(self) -> object:
        return self.next

    def restore(self, memory: object) -> None:
        self.next = int(memory)  # type: ignore[call-overload]
