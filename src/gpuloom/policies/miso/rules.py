"""MISO's published rules (SoCC'22, sections 4 and 5), wherever the speeds come from: Oracle knows them, MISO probes.

Strict first come, first served; the head goes to the admissible GPU with the fewest jobs (ties: the lowest); a GPU
whose jobs changed is cut anew into exactly as many slices as it has jobs, with the smallest mean slowdown. Layouts are
those the authors knew: all maximal ones but 4g+3g. A job that wants whole GPUs gets empty ones, uncut.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.policy import Policy
from gpuloom.contract.view import JobView, View
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.assignment import best_assignment
from gpuloom.policies.slicing import (
    Draft,
    cut_for,
    draft_of,
    give_whole,
    is_settled,
    pause_youngest,
    require_mig,
    show,
    slices_by_count,
)
from gpuloom.work.model import Kind

Speeds = Mapping[str, float]
"""Relative speed on each profile; a profile that is absent lacks the memory."""


class MisoRules(Policy):
    cuts = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        require_mig(cluster)
        self.tables: dict[str, dict[int, tuple[tuple[str, ...], ...]]] = {}
        """By GPU model: of each number of slices, the cuts."""

    @abstractmethod
    def speeds(self, job: JobView, model: GpuModel) -> Speeds:
        """What is known or believed of the job on each profile; without those that lack the memory."""

    def allowed(self, job: JobView, model: GpuModel) -> Speeds:
        """Those of the speeds that keep what the job was promised."""
        floor = job.job.min_speed or 0.0
        return {name: speed for name, speed in self.speeds(job, model).items() if speed >= floor and speed > 0}

    def decide(self, view: View) -> Plan:
        draft = draft_of(view)
        for job in view.waiting.values():
            if job.job.kind is Kind.SLICEABLE:
                placed = self._admit(view, draft, job)
            else:
                placed = give_whole(draft, job, [*draft.jobs])
            if not placed:
                break
        for gpu, residents in draft.jobs.items():
            if residents and not is_settled(view, gpu, residents):
                self.settle(view, gpu, residents, draft)
        return draft.plan()

    def _admit(self, view: View, draft: Draft, job: JobView) -> bool:
        """To the admissible GPU with the fewest jobs."""
        by_load = sorted(draft.jobs, key=lambda gpu: (len(draft.jobs[gpu]), gpu))
        for gpu in by_load:
            residents = [view.jobs[job_id] for job_id in draft.jobs[gpu]]
            if self._has_slices_for(view.cluster.gpus[gpu].model, [*residents, job]):
                others = tuple((f"GPU {other}", float(len(draft.jobs[other]))) for other in by_load[:4] if other != gpu)
                why = "the fewest jobs of the GPUs with a slice for everybody"
                draft.reasons.append(Reason(job.id, f"GPU {gpu}", why, float(len(residents)), others))
                draft.jobs[gpu].append(job.id)
                return True
        return False

    def _has_slices_for(self, model: GpuModel, jobs: Sequence[JobView]) -> bool:
        """Is there a layout with a slice for each that it can run on?"""
        return bool(self._cuts(model, [self.allowed(job, model) for job in jobs]))

    def settle(self, view: View, gpu: int, residents: list[str], draft: Draft) -> None:
        """Cut the GPU for its residents in the best way that the speeds promise."""
        model = view.cluster.gpus[gpu].model
        cuts = self._cuts(model, [self.allowed(view.jobs[job_id], model) for job_id in residents])
        if not cuts:  # a probe has shown that somebody needs more than it said
            pause_youngest(view, gpu, residents, draft)
            if residents:
                self.settle(view, gpu, residents, draft)
            return
        (slowdown, profiles), *others = cuts
        cut_for(view, gpu, dict(zip(residents, profiles, strict=True)), draft)
        why = f"the smallest mean slowdown of the {len(residents)} on it" if len(residents) > 1 else "alone on it"
        options = tuple((show(names), value) for value, names in others[:4])
        draft.reasons += [
            Reason(job_id, f"GPU {gpu} {profile}", f"{why}, cut as {show(profiles)}", slowdown, options)
            for job_id, profile in zip(residents, profiles, strict=True)
        ]

    def _cuts(self, model: GpuModel, speeds: Sequence[Speeds]) -> list[tuple[float, tuple[str, ...]]]:
        """Over the layouts with one slice each, the best first: mean slowdown, and everybody's profile."""
        if model.name not in self.tables:
            self.tables[model.name] = slices_by_count(model, every_layout=False)
        slowdowns = [{name: 1 / speed for name, speed in known.items()} for known in speeds]
        found = [best_assignment(slowdowns, profiles) for profiles in self.tables[model.name].get(len(speeds), ())]
        return sorted((best[0] / len(speeds), best[1]) for best in found if best is not None)
