"""Leading a running job to other grants in place: what it can be told now, who waits for whom, and who has to leave."""

from gpuloom.contract.view import JobView, Phase
from gpuloom.engine.feasible import SHARE_TOLERANCE_PCT
from gpuloom.engine.instructions import Rescale
from gpuloom.engine.state import Rescaling, State
from gpuloom.gpus.grant import Grant, Grants


def rescale(state: State, job: JobView) -> list[Rescale]:
    """Lead a running job towards its grants in place.

    What a job is not to keep it gives up at once, before it has all that it is to get. One that could keep nothing
    waits where it is; see `is_in_the_way`.
    """
    if job.id in state.rescaling or job.held == job.grants:
        return []
    mine = {grant.device for grant in job.held}
    kept = tuple([grant for grant in job.grants if grant.device in mine])
    if all(grant.device in mine or is_free(state, grant) for grant in job.grants):
        target = job.grants
    elif job.job.min_gpus <= len(kept) < len(mine):
        target = kept
    else:
        return []  # it works on with what it has, until there is room for the rest
    come = tuple([grant for grant in target if grant.device not in mine])
    state.occupy(job, come)
    state.put(job._replace(held=(*job.held, *come)))
    state.rescaling[job.id] = Rescaling(job.held, target)
    return [Rescale(job.id, target)]


def is_in_the_way(state: State, job: JobView) -> bool:
    """It waits for what others hold, while others wait for what it holds: of a circle, somebody has to leave.

    Not if those others are just leaving: they will answer, and then it is looked at again.
    """
    if job.id in state.rescaling:
        return False
    wanted = {grant.device for grant in job.grants}
    gives_up = [grant for grant in job.held if grant.device not in wanted]
    if all(state.gpus[grant.gpu].tenants in ((), (job.id,)) for grant in gives_up):
        return False
    mine = {grant.device for grant in job.held}
    missing = [grant for grant in job.grants if grant.device not in mine and not is_free(state, grant)]
    return not all(_is_being_left(state, grant) for grant in missing)


def _is_being_left(state: State, grant: Grant) -> bool:
    """Everybody who is on this device is about to leave it."""
    for job_id in state.held.get(grant.device, ()):
        change = state.rescaling.get(job_id)
        leaves = change is not None and grant.device not in [after.device for after in change.after]
        if not leaves and state.jobs[job_id].phase is not Phase.STOPPING:
            return False
    return True


def is_free(state: State, grant: Grant) -> bool:
    """Is the device there, and is enough of it unoccupied at this moment?"""
    gpu = state.gpus[grant.gpu]
    if gpu.cutting or gpu.lost or (gpu.actual if grant.instance is None else grant.instance not in gpu.actual):
        return False
    occupied_pct = sum(state.held.get(grant.device, {}).values())
    return occupied_pct + grant.share_pct <= 100 + SHARE_TOLERANCE_PCT


def is_at_work(job: JobView) -> bool:
    """It is where it is to be."""
    return job.phase in (Phase.STARTING, Phase.RUNNING) and job.held == job.grants


def can_stay(state: State, job: JobView, gpu: int, rest: Grants) -> bool:
    """It can go on with the rest of its plan without this GPU: it was not there yet, or has workers elsewhere."""
    if not job.job.in_place or job.phase not in (Phase.STARTING, Phase.RUNNING) or len(rest) < job.job.min_gpus:
        return False
    elsewhere = [grant for grant in job.held if grant.gpu != gpu]
    settled = job.phase is Phase.RUNNING and job.id not in state.rescaling
    return len(elsewhere) == len(job.held) or (settled and bool(elsewhere))
