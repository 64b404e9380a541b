"""MISO's Oracle: the published rules with the true speeds, and so without a probe. The authors' own upper bound."""

from gpuloom.contract.view import JobView
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.miso.rules import MisoRules, Speeds


class Oracle(MisoRules):
    """MISO's published rules with the true speeds of every job on every slice, without a probe."""

    told = frozenset({"speeds"})

    def speeds(self, job: JobView, model: GpuModel) -> Speeds:
        return (job.hints.speeds or {}).get(model.name, {})
