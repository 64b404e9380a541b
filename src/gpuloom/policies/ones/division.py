"""Which jobs and GPUs are the cut pool's, and which those of jobs on whole GPUs."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from gpuloom.contract.view import JobView, View
from gpuloom.gpus.cluster import Cluster, IdleGpus
from gpuloom.gpus.grant import Grants
from gpuloom.gpus.model import Layout
from gpuloom.work.model import Job, Kind


def any_sliceable(view: View) -> bool:
    """Somebody is here, or has just ended, who can do with a part of a GPU: short jobs, that a round is long for."""
    return any(job.job.kind is Kind.SLICEABLE for job in (*view.jobs.values(), *view.finished))


def as_counted(view: View) -> View:
    """As the counts see it: a job that cannot change its number of GPUs takes exactly so many."""
    if all(job.job.kind is Kind.ELASTIC for job in view.jobs.values()):
        return view
    return replace(view, jobs={job.id: _as_counted(job) for job in view.jobs.values()})


def _as_counted(job: JobView) -> JobView:
    if job.job.kind is Kind.ELASTIC:
        return job
    return job._replace(job=replace(job.job, min_gpus=job.job.gpus, max_gpus=job.job.gpus))


def largest_slice_mib(cluster: Cluster) -> int:
    """Memory of the largest slice that there could be; 0 where no GPU can be cut."""
    models = {gpu.model.name: gpu.model for gpu in cluster.gpus if gpu.model.mig}
    return max((profile.mem_mib for model in models.values() for profile in model.profiles), default=0)


def is_for_slices(job: Job, largest_mib: int) -> bool:
    """One GPU or a part of it, and there is one that can be cut and has the memory."""
    return job.kind is Kind.SLICEABLE and largest_mib >= max(job.mem_mib or 0, 1)


def free_for_slices(view: View, wanted: Mapping[str, int]) -> list[int]:
    """GPUs that could be cut, if jobs on whole ones get the wanted numbers: those first that these miss the least.

    Idle ones, then what a job gives up, then what it would rather keep, and of these those of nodes that are in pieces
    already: where jobs on parts of GPUs sit, and where few are free.
    """
    reluctance = {gpu: 0 for gpu, seen in view.gpus.items() if not seen.lost and not seen.tenants}
    for job_id, count in wanted.items():
        own = sorted(grant.gpu for grant in view.jobs[job_id].grants)
        if len(own) != count:
            reluctance |= {gpu: 1 if number >= count else 2 for number, gpu in enumerate(own)}
    node_of, nodes = view.cluster.node_of, Counter(view.cluster.node_of[gpu] for gpu in reluctance)
    cut = Counter(
        node_of[gpu] for gpu, seen in view.gpus.items() if any(job_id not in wanted for job_id in seen.tenants)
    )
    return sorted(reluctance, key=lambda gpu: (reluctance[gpu], -cut[node_of[gpu]], nodes[node_of[gpu]], -gpu))


def without_pool(view: View, wanted: Mapping[str, int], pool: Container[int]) -> View:
    """With all GPUs idle that neither the pool has nor a job on whole ones."""
    idle = [
        gpu
        for gpu, seen in view.gpus.items()
        if not seen.lost and gpu not in pool and not any(job_id in wanted for job_id in seen.tenants)
    ]
    return replace(view, idle=IdleGpus(view.cluster, idle))


def uncut(view: View, grants: Iterable[Grants]) -> dict[int, Layout]:
    """Of GPUs that are given away whole: those that were cut are so no longer."""
    return {grant.gpu: () for them in grants for grant in them if view.gpus[grant.gpu].layout}
