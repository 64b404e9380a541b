"""An example of one's own policy: urgent jobs first, and small jobs slip past a large one that does not fit.

gpuloom simulate --policy examples/my_policy.py:Urgent --trace examples/jobs.yaml --gpus 4xA100-40GB
"""

from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant
from gpuloom.policies.contract import ON_EVENTS, Plan, Reason, View

PATIENCE_S = 3600.0
"""Nobody overtakes a job that has waited this long, so that a large one is not passed over for ever."""


class Urgent:
    """Whole GPUs by priority, with backfilling. Knows nothing but what jobs state about themselves."""

    told: frozenset[str] = frozenset()  # fields of Hints; an honest policy asks for none

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.when = ON_EVENTS  # or When(every_s=60)

    def decide(self, view: View) -> Plan:
        idle = view.idle.copy()  # ours to take from
        grants, reasons = {}, []
        queue = sorted(view.waiting.values(), key=lambda job: (-job.job.priority, job.job.submit_s))
        for job in queue:
            gpus = idle.take(job.job.gpus)
            if gpus is not None:
                grants[job.id] = tuple(Grant(gpu) for gpu in gpus)
                why = f"priority {job.job.priority}, and {job.job.gpus} whole GPUs are idle"
                reasons.append(Reason(job.id, f"GPUs {gpus}", why))
            elif view.now_s - job.job.submit_s > PATIENCE_S:
                break
        return Plan(grants=grants, reasons=tuple(reasons))
