"""MISO's published rules with the true speeds and no probe: the bound its authors compared with (SoCC'22, section 5).

Strict first come, first served; the head goes to the admissible GPU with the fewest jobs; a GPU whose jobs changed is
cut anew into exactly as many slices as it has jobs, with the smallest mean slowdown. Layouts are those the authors
knew: all maximal ones but 4g+3g.
"""

from collections.abc import Sequence
from functools import lru_cache

from gpuloom.errors import InputError
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.gpus.steps import nearest
from gpuloom.policies.assignment import Speeds, best_assignment
from gpuloom.policies.contract import ON_EVENTS, Plan, Reason, View

UNKNOWN_TO_MISO = (4, 3)
"""Legal since driver R510, but missing from the authors' table."""


class Oracle:
    """MISO's published rules with the true speeds of every job on every slice, without a probe."""

    told = frozenset({"speeds"})

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.when = ON_EVENTS
        if not all(gpu.model.mig for gpu in cluster.gpus):
            raise InputError("oracle: needs GPUs that have MIG")
        self.tables = {gpu.model.name: known_layouts(gpu.model) for gpu in cluster.gpus}

    def decide(self, view: View) -> Plan:
        jobs = {gpu: [*seen.tenants] for gpu, seen in view.gpus.items() if not seen.lost}
        reasons: list[Reason] = []
        for job in view.waiting.values():
            gpu = self._admit(view, jobs, job.id, reasons)
            if gpu is None:
                break
            jobs[gpu].append(job.id)
        new_layouts: dict[int, Layout] = {}
        new_grants: dict[str, Grants] = {}
        for gpu, residents in jobs.items():
            if residents and (
                len(residents) != len(view.gpus[gpu].layout) or len(residents) != len(view.gpus[gpu].tenants)
            ):
                self._recut(view, gpu, residents, new_layouts, new_grants, reasons)
        return Plan(new_layouts, new_grants, tuple(reasons))

    def _speeds(self, view: View, job_id: str) -> Speeds:
        return view.jobs[job_id].hints.speeds or {}

    def _admit(self, view: View, jobs: dict[int, list[str]], job_id: str, reasons: list[Reason]) -> int | None:
        """The admissible GPU with the fewest jobs."""
        by_load = sorted(jobs, key=lambda gpu: (len(jobs[gpu]), gpu))
        for gpu in by_load:
            if self._cuts(view, gpu, [*jobs[gpu], job_id]):
                others = tuple((f"GPU {other}", float(len(jobs[other]))) for other in by_load[:4] if other != gpu)
                why = "the fewest jobs of the GPUs with a slice for everybody"
                reasons.append(Reason(job_id, f"GPU {gpu}", why, float(len(jobs[gpu])), others))
                return gpu
        return None

    def _cuts(self, view: View, gpu: int, residents: Sequence[str]) -> list[tuple[float, tuple[str, ...]]]:
        """Over the layouts with one slice each, the best first: mean slowdown, and everybody's profile."""
        cuts = self.tables[view.cluster.gpus[gpu].model.name].get(len(residents), ())
        speeds = [self._speeds(view, job_id) for job_id in residents]
        found = [best for profiles in cuts if (best := best_assignment(speeds, profiles)) is not None]
        return sorted((total / len(residents), profiles) for total, profiles in found)

    def _recut(
        self,
        view: View,
        gpu: int,
        residents: list[str],
        new_layouts: dict[int, Layout],
        new_grants: dict[str, Grants],
        reasons: list[Reason],
    ) -> None:
        (slowdown, profiles), *others = self._cuts(view, gpu, residents)
        model, now = view.cluster.gpus[gpu].model, view.gpus[gpu].layout
        busy = frozenset(g.instance for j in residents for g in view.jobs[j].grants if g.instance is not None)
        slices = tuple(model.by_name[name].slices for name in profiles)
        layout = nearest(model, now, slices, busy)
        assert layout is not None
        new_layouts[gpu] = layout
        new_grants.update(seat(view, gpu, layout, dict(zip(residents, profiles, strict=True))))
        why = f"the smallest mean slowdown of the {len(residents)} on it" if len(residents) > 1 else "alone on it"
        options = tuple((_show(names), value) for value, names in others[:4])
        for job_id, profile in zip(residents, profiles, strict=True):
            reasons.append(
                Reason(job_id, f"GPU {gpu} {profile}", f"{why}, cut as {_show(profiles)}", slowdown, options)
            )


def _show(profiles: Sequence[str]) -> str:
    return "+".join(sorted(profiles, reverse=True))


def seat(view: View, gpu: int, layout: Layout, profiles: dict[str, str]) -> dict[str, Grants]:
    """Exact instances for jobs with given profiles; whoever already sits on one of the right size keeps it."""
    free = list(layout)
    seats: dict[str, Grants] = {}
    for job_id, profile in profiles.items():
        for grant in view.jobs[job_id].grants:
            if grant.gpu == gpu and grant.instance in free and grant.instance.profile == profile:
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
        if tuple(sorted(layouts.slices_of(model, layout), reverse=True)) != UNKNOWN_TO_MISO:
            profiles = tuple(sorted(instance.profile for instance in layout))
            known.setdefault(len(layout), {})[profiles] = None
    return {count: tuple(cuts) for count, cuts in known.items()}
