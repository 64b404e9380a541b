"""An example of one's own policy: urgent jobs first, and small jobs slip past a large one that does not fit.

gpuloom simulate --policy examples/my_policy.py:Urgent --trace examples/jobs.yaml --gpus 4xA100-40GB
"""

from gpuloom.contract import Plan, Policy, Reason, View
from gpuloom.gpus.grant import Grant

PATIENCE_S = 3600.0
"""Nobody overtakes a job that has waited this long, so that a large one is not passed over for ever."""


class Urgent(Policy):
    """Whole GPUs by priority, with backfilling. Knows nothing but what jobs state about themselves."""

    # What may be said besides: when = When(every_s=60), told = frozenset({"length_s"}), uses_mps = True.

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
