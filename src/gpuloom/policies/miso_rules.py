"""MISO's published rules (SoCC'22, sections 4 and 5), wherever the speeds come from: Oracle knows them, MISO probes.

Strict first come, first served; the head goes to the admissible GPU with the fewest jobs (ties: the lowest); a GPU
whose jobs changed is cut anew into exactly as many slices as it has jobs, with the smallest mean slowdown. Layouts are
those the authors knew: all maximal ones but 4g+3g. A job that wants whole GPUs gets empty ones, uncut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.gpus.steps import nearest
from gpuloom.policies.assignment import Speeds, best_assignment
from gpuloom.policies.contract import ON_EVENTS, JobView, Plan, Reason, View
from gpuloom.work.model import Kind

UNKNOWN_TO_MISO = (4, 3)
"""Legal since driver R510, but missing from the authors' table."""


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    jobs: dict[int, list[str]]
    """Who sits, or is to sit, on each GPU that can be shared now."""
    layouts: dict[int, Layout] = field(default_factory=dict)
    grants: dict[str, Grants] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)

    def plan(self) -> Plan:
        return Plan(self.layouts, self.grants, tuple(self.reasons), tuple(self.probes))


class MisoRules:
    told: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.when = ON_EVENTS
        if not all(gpu.model.mig for gpu in cluster.gpus):
            raise InputError("policies that cut GPUs need GPUs that have MIG")
        self.tables = {gpu.model.name: known_layouts(gpu.model) for gpu in cluster.gpus}

    def speeds(self, job: JobView) -> Speeds:
        """What is known or believed of the job on each profile; without those that lack the memory."""
        raise NotImplementedError

    def decide(self, view: View) -> Plan:
        draft = Draft({gpu: [*seen.tenants] for gpu, seen in view.gpus.items() if self._can_be_shared(view, gpu)})
        for job in view.waiting.values():
            placed = self._admit(view, draft, job) if job.job.kind is Kind.SLICEABLE else self._give_whole(draft, job)
            if not placed:
                break
        for gpu, residents in draft.jobs.items():
            if residents and not self._is_settled(view, gpu, residents):
                self.settle(view, gpu, residents, draft)
        return draft.plan()

    def _can_be_shared(self, view: View, gpu: int) -> bool:
        seen = view.gpus[gpu]
        if seen.lost or seen.probe_wanted or seen.probing:
            return False
        return not any(grant.instance is None for tenant in seen.tenants for grant in view.jobs[tenant].grants)

    def _is_settled(self, view: View, gpu: int, residents: list[str]) -> bool:
        """As many slices as jobs, each with one for itself, and nobody new among them."""
        shares = [grant.share_pct for job_id in residents for grant in view.jobs[job_id].grants if grant.gpu == gpu]
        return len(residents) == len(view.gpus[gpu].layout) == len(shares) and min(shares) >= 100

    def _give_whole(self, draft: Draft, job: JobView) -> bool:
        empty = [gpu for gpu, residents in draft.jobs.items() if not residents][: job.job.gpus]
        if len(empty) < job.job.gpus:
            return False
        for gpu in empty:
            del draft.jobs[gpu]
            draft.layouts[gpu] = ()
        draft.grants[job.id] = tuple(map(Grant, empty))
        draft.reasons.append(Reason(job.id, f"GPU {', '.join(map(str, empty))}", "whole GPUs, as it asks, are empty"))
        return True

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
        """Is there a layout with a slice for each that has the memory?"""
        fits = [_that_fit(model, job.job.mem_mib or 0) for job in jobs]
        return any(best_assignment(fits, cut) for cut in self.tables[model.name].get(len(jobs), ()))

    def settle(self, view: View, gpu: int, residents: list[str], draft: Draft) -> None:
        """Cut the GPU for its residents in the best way that the speeds promise."""
        model = view.cluster.gpus[gpu].model
        speeds = [self.speeds(view.jobs[job_id]) for job_id in residents]
        (slowdown, profiles), *others = self._cuts(model, speeds)
        busy = frozenset(g.instance for j in residents for g in view.jobs[j].grants if g.gpu == gpu and g.instance)
        layout = nearest(model, view.gpus[gpu].layout, tuple(model.by_name[name].slices for name in profiles), busy)
        assert layout is not None, "the table holds legal layouts only"
        draft.layouts[gpu] = layout
        draft.grants.update(seat(view, gpu, layout, dict(zip(residents, profiles, strict=True))))
        why = f"the smallest mean slowdown of the {len(residents)} on it" if len(residents) > 1 else "alone on it"
        options = tuple((_show(names), value) for value, names in others[:4])
        draft.reasons += [
            Reason(job_id, f"GPU {gpu} {profile}", f"{why}, cut as {_show(profiles)}", slowdown, options)
            for job_id, profile in zip(residents, profiles, strict=True)
        ]

    def _cuts(self, model: GpuModel, speeds: Sequence[Speeds]) -> list[tuple[float, tuple[str, ...]]]:
        """Over the layouts with one slice each, the best first: mean slowdown, and everybody's profile."""
        cuts = self.tables[model.name].get(len(speeds), ())
        found = [best for profiles in cuts if (best := best_assignment(speeds, profiles)) is not None]
        return sorted((total / len(speeds), profiles) for total, profiles in found)


def _show(profiles: Sequence[str]) -> str:
    return "+".join(sorted(profiles, reverse=True))


def _that_fit(model: GpuModel, need_mib: int) -> Speeds:
    return {profile.name: 1.0 for profile in model.profiles if profile.mem_mib >= need_mib}


def seat(view: View, gpu: int, layout: Layout, profiles: Mapping[str, str]) -> dict[str, Grants]:
    """Exact instances for jobs with given profiles; whoever already sits on one of the right size keeps it."""
    free = list(layout)
    seats: dict[str, Grants] = {}
    for job_id, profile in profiles.items():
        for grant in view.jobs[job_id].grants:
            if grant == Grant(gpu, grant.instance) and grant.instance in free and grant.instance.profile == profile:
                seats[job_id] = (grant,)
                free.remove(grant.instance)
    for job_id, profile in profiles.items():
        if job_id not in seats:
            instance = next(instance for instance in free if instance.profile == profile)
            free.remove(instance)
            seats[job_id] = (Grant(gpu, instance),)
    return seats


@lru_cache
def known_layouts(model: GpuModel) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Multisets of profiles by number of slices, of the maximal layouts that MISO knew."""
    known: dict[int, dict[tuple[str, ...], None]] = {}
    for layout in layouts.maximal(model):
        if layouts.as_multiset(layouts.slices_of(model, layout)) != UNKNOWN_TO_MISO:
            profiles = tuple(sorted(instance.profile for instance in layout))
            known.setdefault(len(layout), {})[profiles] = None
    return {count: tuple(cuts) for count, cuts in known.items()}
