"""Can this plan be carried out? Looks only at what the plan touches: a small plan on a large cluster stays cheap."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuloom.contract.plan import Plan
from gpuloom.engine.state import State
from gpuloom.gpus import layouts
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.grant import Grants
from gpuloom.gpus.model import Instance
from gpuloom.work.model import Job, Kind

SHARE_TOLERANCE_PCT = 1e-6
"""Three shares of 100/3 add up to a little more than 100 in floating point."""


def why_infeasible(state: State, plan: Plan) -> str | None:
    """The first reason why the plan cannot be carried out, or None."""
    for gpu, layout in plan.layouts.items():
        stays = gpu in state.frozen and layout == state.gpus[gpu].layout
        reason = (None if stays else _bad_gpu(state, gpu)) or layouts.check(state.cluster.gpus[gpu].model, layout)
        if reason:
            return f"GPU {gpu}: {reason}"
    for gpu in plan.probes:
        reason = _bad_gpu(state, gpu)
        if reason:
            return f"GPU {gpu}: cannot be probed: {reason}"
    newcomers: dict[int, dict[str, Grants]] = {gpu: {} for gpu in plan.layouts}
    for job_id, grants in plan.grants.items():
        if job_id not in state.jobs:
            return f"job {job_id}: unknown"
        if job_id in state.cancelled:
            continue  # it is leaving: what it is given is not carried out, and the rest of the plan is
        reason = _bad_count(state.jobs[job_id].job, grants) if grants else None
        if reason:
            return f"job {job_id}: {reason}"
        for grant in grants:
            stays = grants == state.jobs[job_id].grants
            reason = None if stays else _bad_gpu(state, grant.gpu)
            if reason:
                return f"job {job_id}: GPU {grant.gpu}: {reason}"
            if not 0 < grant.share_pct <= 100:
                return f"job {job_id}: a share of {grant.share_pct:g} % is not between 0 and 100"
            newcomers.setdefault(grant.gpu, {})[job_id] = grants
    for gpu, placed in newcomers.items():
        stay = {job_id: state.jobs[job_id].grants for job_id in state.gpus[gpu].tenants if job_id not in plan.grants}
        reason = _overcommitted(state, gpu, plan, stay | placed)
        if reason:
            return f"GPU {gpu}: {reason}"
    return None


def _bad_gpu(state: State, gpu: int) -> str | None:
    view = state.gpus.get(gpu)
    if view is None:
        return "unknown"
    if not view.lost:
        return None
    return "it cannot be cut now, and stays as it is" if gpu in state.frozen else "lost"


def _bad_count(job: Job, grants: Grants) -> str | None:
    """Does the number and the kind of grants suit the job?"""
    if job.kind is Kind.ELASTIC:
        if not job.min_gpus <= len(grants) <= job.max_gpus:
            return f"{len(grants)} GPUs, but it takes {job.min_gpus} to {job.max_gpus}"
    elif len(grants) != job.gpus:
        return f"{len(grants)} GPUs, but it takes {job.gpus}"
    if len(grants) > 1 and len({grant.gpu for grant in grants}) != len(grants):
        return "two grants on one GPU"
    if job.kind is not Kind.SLICEABLE and any(grant.instance is not None or grant.share_pct < 100 for grant in grants):
        return f"it is {job.kind.value} and cannot run on a part of a GPU"
    return None


def _overcommitted(state: State, gpu: int, plan: Plan, tenants: Mapping[str, Grants]) -> str | None:
    """Is every tenant's device there, and does nobody's share or memory exceed it?"""
    view, model = state.gpus[gpu], state.cluster.gpus[gpu].model
    layout = plan.layouts.get(gpu, view.layout)
    share: dict[Instance | None, float] = {}
    memory: dict[Instance | None, int] = {}
    for job_id, grants in tenants.items():
        job = state.jobs[job_id].job
        for grant in grants:
            if grant.gpu != gpu:
                continue
            device = grant.instance
            if device is None and layout:
                return f"job {job_id} holds it whole, but it is to be cut into {_show(layout)}"
            if device is not None and device not in layout:
                return f"job {job_id} is on {device}, which is not in its layout {_show(layout)}"
            share[device] = share.get(device, 0.0) + grant.share_pct
            memory[device] = memory.get(device, 0) + (grant.mem_mib or job.mem_mib or 0)
    for device, total_pct in share.items():
        if total_pct > 100 + SHARE_TOLERANCE_PCT:
            return f"{device or 'the whole GPU'} is promised to {total_pct:g} %"
        has_mib = model.mem_mib if device is None else model.by_name[device.profile].mem_mib
        if memory[device] > has_mib:
            return f"{device or 'the whole GPU'} has {has_mib} MiB, but {memory[device]} MiB are promised"
    return None


def _show(layout: tuple[Instance, ...]) -> str:
    return "+".join(map(str, layout)) or "uncut"


def why_too_large(jobs: Iterable[Job], cluster: Cluster) -> str | None:
    """Why no policy could ever place one of these jobs, in words; None if each has room on an empty cluster."""
    gpus_by_mib = Counter(gpu.model.mem_mib for gpu in cluster.gpus)
    for job in jobs:
        fit = sum([count for mib, count in gpus_by_mib.items() if mib >= (job.mem_mib or 0)])
        if fit < (job.min_gpus if job.kind is Kind.ELASTIC else job.gpus):
            there = f"{len(cluster)} {cluster.gpus[0].model.noun}s of at most {max(gpus_by_mib)} MiB"
            return f"job {job.id} ({describe(job)}) fits nowhere on {there}"
    return None


def describe(job: Job) -> str:
    memory = "" if job.mem_mib is None else f", {job.mem_mib} MiB"
    return f"{job.gpus} GPU{'s' if job.gpus > 1 else ''}{memory}"
