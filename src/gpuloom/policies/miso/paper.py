"""MISO as published (SoCC'22): a new mix runs together under MPS for a moment, the probe predicts, then one cut."""

from gpuloom.contract.plan import Reason
from gpuloom.contract.view import JobView, View
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.miso.rules import MisoRules, Speeds
from gpuloom.policies.slicing import Draft, share_whole


class MisoPaper(MisoRules):
    """MISO as published: whenever a job joins others, all of them are probed under MPS, and the GPU is cut once."""

    uses_mps = True

    def speeds(self, job: JobView, model: GpuModel) -> Speeds:
        """What its probe predicts; before that, only which slices have the memory that it states."""
        if job.estimates is None:
            return {profile.name: 1.0 for profile in model.profiles if profile.mem_mib >= (job.job.mem_mib or 0)}
        return {name: estimate.speed for name, estimate in job.estimates.items() if name in model.by_name}

    def settle(self, view: View, gpu: int, residents: list[str], draft: Draft) -> None:
        """Nobody new: what the last probe said still holds. Alone: the whole GPU at once. Otherwise: probe."""
        if len(residents) > 1 and set(residents) <= set(view.gpus[gpu].tenants):
            super().settle(view, gpu, residents, draft)
            return
        what = share_whole(view, gpu, residents, draft)
        why = "alone on it"
        if len(residents) > 1:
            draft.probes.append(gpu)
            why = f"a new mix of {len(residents)}: probed under MPS before the GPU is cut"
        draft.reasons += [Reason(job_id, what, why) for job_id in residents]
