"""What every policy that cuts GPUs does alike: draft who sits where, then turn the draft into layouts and grants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.view import JobView, View
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.layouts import as_multiset, maximal, slices_of, total_slices, with_slices
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.gpus.steps import nearest


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


UNKNOWN_TO_MISO = (4, 3)
"""Legal since driver R510, but missing from the authors' table."""


@lru_cache
def slices_by_count(model: GpuModel, every_layout: bool = True) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Multisets of profiles by number of slices, of all maximal layouts, or of those that MISO's authors knew."""
    found: dict[int, dict[tuple[str, ...], None]] = {}
    for layout in maximal(model):
        if every_layout or as_multiset(slices_of(model, layout)) != UNKNOWN_TO_MISO:
            found.setdefault(len(layout), {})[tuple(sorted(instance.profile for instance in layout))] = None
    return {count: tuple(cuts) for count, cuts in found.items()}


def require_mig(cluster: Cluster) -> None:
    if not all(gpu.model.mig for gpu in cluster.gpus):
        raise InputError("policies that cut GPUs need GPUs that have MIG")


def draft_of(view: View) -> Draft:
    """As it is now, without the GPUs that are lost, given away whole, or being probed."""
    return Draft({gpu: [*seen.tenants] for gpu, seen in view.gpus.items() if _can_be_shared(view, gpu)})


def _can_be_shared(view: View, gpu: int) -> bool:
    seen = view.gpus[gpu]
    if seen.lost or seen.probe_wanted or seen.probing:
        return False
    return not any(grant.instance is None for tenant in seen.tenants for grant in view.jobs[tenant].grants)


def is_settled(view: View, gpu: int, residents: Sequence[str]) -> bool:
    """As many slices as jobs, each with one for itself, and nobody new among them."""
    shares = [grant.share_pct for job_id in residents for grant in view.jobs[job_id].grants if grant.gpu == gpu]
    return len(residents) == len(view.gpus[gpu].layout) == len(shares) and min(shares, default=100) >= 100


def give_whole(draft: Draft, job: JobView, gpus: Sequence[int]) -> bool:
    """Whole GPUs for a job that wants them, if enough of these are empty."""
    empty = [gpu for gpu in gpus if not draft.jobs[gpu]][: job.job.gpus]
    if len(empty) < job.job.gpus:
        return False
    for gpu in empty:
        del draft.jobs[gpu]
        draft.layouts[gpu] = ()
    draft.grants[job.id] = tuple(map(Grant, empty))
    draft.reasons.append(Reason(job.id, f"GPU {', '.join(map(str, empty))}", "whole GPUs, as it asks, are empty"))
    return True


def pause_youngest(view: View, gpu: int, residents: list[str], draft: Draft) -> None:
    """Take the last that came to this GPU off it again: there is no slice for everybody."""
    job_id = residents.pop()
    if view.jobs[job_id].grants:
        draft.grants[job_id] = ()
    draft.reasons.append(Reason(job_id, "wait", f"no cut of GPU {gpu} has a slice that each of its jobs can run on"))


def cut_for(view: View, gpu: int, profiles: Mapping[str, str], draft: Draft) -> None:
    """Cut the GPU so that every job has an instance of its profile, leaving as many where they are as possible."""
    model = view.cluster.gpus[gpu].model
    busy = frozenset(g.instance for job_id in profiles for g in view.jobs[job_id].grants if g.gpu == gpu and g.instance)
    slices = tuple(model.by_name[name].slices for name in profiles.values())
    layout = nearest(model, view.gpus[gpu].layout, slices, busy)
    assert layout is not None, "profiles come from legal layouts"
    draft.layouts[gpu] = layout
    draft.grants |= seats_of(view, gpu, layout, profiles)


def seats_of(view: View, gpu: int, layout: Layout, profiles: Mapping[str, str]) -> dict[str, Grants]:
    """Exact instances; whoever already has one of the right size for itself keeps it."""
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


def share_whole(view: View, gpu: int, residents: Sequence[str], draft: Draft) -> str:
    """One instance that is all of the GPU, in equal shares; returns what each job gets, in words."""
    model = view.cluster.gpus[gpu].model
    layout = with_slices(model, (total_slices(model),))
    assert layout is not None, "every GPU with MIG has a profile that is all of it"
    share_pct = 100 / len(residents)
    draft.layouts[gpu] = layout
    draft.grants |= {job_id: (Grant(gpu, layout[0], share_pct),) for job_id in residents}
    return f"GPU {gpu} {layout[0]}" + (f" at {share_pct:.0f} %" if len(residents) > 1 else "")


def show(profiles: Sequence[str]) -> str:
    return "+".join(sorted(profiles, reverse=True))
