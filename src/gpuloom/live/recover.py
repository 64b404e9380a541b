"""After the runner was killed: the log says what was meant, processes and GPUs say what is; tell the engine the rest.

Living jobs are adopted. Of the others their keepers have written down how they ended. What was instructed and not begun
is begun; what was begun and not finished (a cut, a probe) is answered with what the hardware shows, or done again.
"""

from contextlib import suppress
from functools import partial

from gpuloom.contract.view import JobView, Phase
from gpuloom.engine.events import GpuCut, GpuLost, GpuRestored, JobStopped
from gpuloom.live.body import LocalBody
from gpuloom.live.devices import DeviceError, lives_beside
from gpuloom.live.jobs import LiveJob
from gpuloom.live.launch import limits_of
from gpuloom.live.store import Launch
from gpuloom.live.trouble.blame import Blamed, Then

ACTIVE = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


def recover(body: LocalBody) -> None:
    """Bring a body whose engine was rebuilt from the log into agreement with this machine."""
    state = body.engine.state
    # As the log left them: what we tell the engine below must not be mistaken for the past.
    before = {job_id: view for job_id, view in state.jobs.items() if view.phase in ACTIVE}
    resizing = dict(state.rescaling)
    body.wake_s = state.next_wake_s
    _adopt(body, before)
    body.devices.stop_strays(body.devices.shared())
    for gpu in state.gpus:
        _look_for_what_is_gone(body, gpu)
    for job_id, view in before.items():
        if job_id not in body.jobs and job_id in state.jobs and state.jobs[job_id].phase is view.phase:
            _begin_what_was_not(body, view)
    for gpu in state.gpus:
        _finish_what_was_begun(body, gpu)
    for job_id, change in resizing.items():
        if job_id in body.jobs and state.rescaling.get(job_id) is change and state.jobs[job_id].phase is Phase.RUNNING:
            body.resizing.begin(job_id, change.after)
    body.commit()


def _adopt(body: LocalBody, views: dict[str, JobView]) -> None:
    """Every launch that began, living or dead: the loop finds out which. Whoever nobody knows is ended."""
    for job_id, view in views.items():
        launch = _current(body, view)
        if launch is None or (launch.forestall() and not launch.started):
            continue
        job = LiveJob(job_id, view.held, launch, launch.keeper(), up=view.phase is Phase.RUNNING)
        job.up_by_s = body.now_s() + body.timing.up_s
        body.jobs[job_id] = job
        if view.phase is Phase.STOPPING:
            job.stopping = True
            body.ask_to_leave(job, save=True)
        if lives_beside(view.job, view.held):
            with suppress(DeviceError):
                body.devices.resize(launch.group, limits_of(view.job), view.held)
            continue
        for grant in view.held:
            try:
                body.devices.adopt(grant, launch.group, limits_of(view.job))
            except DeviceError as reason:  # its daemon is ended as a stray, and it has to be started again
                job.let_down = Blamed(grant.gpu, str(reason), Then.STAYS)
                body.ask_to_leave(job, save=True)
    known = {job.launch.group.path for job in body.jobs.values() if job.launch.group is not None}
    for group in body.launcher.strays(known, body.devices.homes()):
        group.kill()


def _current(body: LocalBody, view: JobView) -> Launch | None:
    """The launch of the engine's latest start of the job, if it came to that."""
    launch = body.store.last_launch(view.id)
    return launch if launch is not None and launch.start == view.starts else None


def _begin_what_was_not(body: LocalBody, view: JobView) -> None:
    if view.phase is Phase.STOPPING:
        body.tell(JobStopped(body.now_s(), "it had not been launched", view.id))
    elif not body.resizing.interrupted(view.id):
        body.launching.begin(view.id, view.held)


def _look_for_what_is_gone(body: LocalBody, gpu: int) -> None:
    """A GPU without instances that it should have (after a reboot) is one that was lost and is back, uncut."""
    view = body.engine.state.gpus[gpu]
    if gpu in body.engine.state.left:
        return
    if view.lost and gpu not in body.engine.state.frozen:
        body.post(partial(body.restoring.restore, gpu))
        return
    layout = body.devices.look(gpu)
    if layout is not None and (view.cutting or set(view.actual) <= set(layout)):
        return
    body.tell(GpuLost(body.now_s(), "it no longer has what was cut" if layout else "it does not answer", gpu))
    if layout is not None and body.devices.clear(gpu) is None:
        body.tell(GpuRestored(body.now_s(), "taken into service again", gpu))


def _finish_what_was_begun(body: LocalBody, gpu: int) -> None:
    view = body.engine.state.gpus[gpu]
    if view.lost:
        return
    layout = body.devices.look(gpu)
    if layout is not None and (view.cutting or layout != view.actual):
        body.tell(GpuCut(body.now_s(), "found after the runner was killed", gpu, layout))
    view = body.engine.state.gpus[gpu]
    if view.probing:
        body.probing.begin(gpu, view.tenants)
