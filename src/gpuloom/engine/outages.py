"""GPUs that leave service: who is on them has to go or may stay, and who was to come is unplaced."""

from collections.abc import Container

from gpuloom.contract.view import GpuView, JobView, Phase
from gpuloom.engine.instructions import Instruction, Stop
from gpuloom.engine.rescale import can_stay, is_at_work, rescale
from gpuloom.engine.state import State
from gpuloom.work.model import Kind


def stop(state: State, job: JobView, *, save: bool) -> list[Instruction]:
    if job.phase is Phase.STOPPING:
        return []
    state.enter(job, Phase.STOPPING)
    return [Stop(job.id, save)]


def lose(state: State, gpu: int) -> list[Instruction]:
    """Take the GPU out of service: who is on it has to leave without saving, who was to come is unplaced."""
    out, was_in_service = _unplace(state, gpu), not state.gpus[gpu].lost
    state.frozen.discard(gpu)
    state.gpus[gpu] = GpuView(gpu, lost=True)
    if was_in_service:
        state.idle.remove(state.cluster.node_of[gpu], gpu)
    return out


def freeze(state: State, gpu: int) -> list[Instruction]:
    """It stays as it is until it is restored: who works there goes on, and plans do without the rest of it.

    Elastic jobs leave it, and save: they are resized all the time, and what they have is not to be planned with.
    """
    tenants = [state.jobs[job_id] for job_id in state.gpus[gpu].tenants]
    stay = {job.id for job in tenants if is_at_work(job) and job.job.kind is not Kind.ELASTIC}
    out = _unplace(state, gpu, stay, save=True)
    view = state.gpus[gpu]
    state.gpus[gpu] = view._replace(layout=view.actual, lost=True, probe_wanted=False)
    state.frozen.add(gpu)
    if not view.tenants:
        state.idle.remove(state.cluster.node_of[gpu], gpu)
    return out


def _unplace(state: State, gpu: int, stay: Container[str] = (), *, save: bool = False) -> list[Instruction]:
    """Nobody is planned on this GPU any more, but for those who stay. Who is on it has to leave."""
    out = list[Instruction]()
    there = {job_id for device, jobs in state.held.items() if device[0] == gpu for job_id in jobs}
    for job_id in sorted(there | set(state.gpus[gpu].tenants), key=state.order.__getitem__):
        if job_id in stay:
            continue
        job = state.jobs[job_id]
        rest = tuple([grant for grant in job.grants if grant.gpu != gpu])
        stays = can_stay(state, job, gpu, rest)
        if len(rest) < len(job.grants):
            state.plan_grants(job_id, rest if stays else ())
        job = state.jobs[job_id]
        if stays and job.phase is Phase.RUNNING:
            out += rescale(state, job)
        elif not stays and job.phase is not Phase.WAITING:
            out += stop(state, job, save=save or job_id not in there)
    return out
