"""MISO as published (SoCC'22): a new mix runs together under MPS for a moment, the probe predicts, then one cut."""

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.layouts import total_slices, with_slices
from gpuloom.policies.assignment import Speeds
from gpuloom.policies.contract import JobView, Reason, View
from gpuloom.policies.miso_rules import Draft, MisoRules


class MisoPaper(MisoRules):
    """MISO as published: whenever a job joins others, all of them are probed under MPS, and the GPU is cut once."""

    def speeds(self, job: JobView) -> Speeds:
        return {name: estimate.speed for name, estimate in (job.estimates or {}).items()}

    def settle(self, view: View, gpu: int, residents: list[str], draft: Draft) -> None:
        """Nobody new: what the last probe said still holds. Alone: the whole GPU at once. Otherwise: probe."""
        if len(residents) > 1 and set(residents) <= set(view.gpus[gpu].tenants):
            super().settle(view, gpu, residents, draft)
            return
        model = view.cluster.gpus[gpu].model
        layout = with_slices(model, (total_slices(model),))
        assert layout is not None, "every GPU with MIG has a profile that is all of it"
        share = 100 / len(residents)
        draft.layouts[gpu] = layout
        draft.grants |= {job_id: (Grant(gpu, layout[0], share),) for job_id in residents}
        why = "alone on it"
        if len(residents) > 1:
            draft.probes.append(gpu)
            why = f"a new mix of {len(residents)}: probed under MPS before the GPU is cut"
        what = f"GPU {gpu} {layout[0]}" + (f" at {share:.0f} %" if share < 100 else "")
        draft.reasons += [Reason(job_id, what, why) for job_id in residents]
