"""Jobs that are told, over their socket, to go on with other devices. The loop looks in; nothing here waits.

A resize is a whole target with a generation above the one that the job says it is at. So whoever starts again, after
the runner was killed or the connection broke, tells the same target as a newer generation: a job that had reached it
has nothing to do, and says so. What the job holds meanwhile, and what it is to have, is in the engine's log.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gpuloom.contract.view import Phase
from gpuloom.engine.events import JobRescaled, RescaleFailed
from gpuloom.gpus.grant import Grants
from gpuloom.live.devices import DeviceError, Worker, batch_of
from gpuloom.live.elastic.link import MOST_WORDS, Link, Lost, Status
from gpuloom.live.jobs import LiveJob
from gpuloom.live.launch import limits_of

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody

CLOSED_REAL_S = 2.0
"""So long a job may live on after it has closed its socket: most that do so are about to end, which says more."""


@dataclass(slots=True)
class Resize:
    """One that is under way."""

    job: LiveJob
    grants: Grants
    workers: tuple[Worker, ...]
    by_s: float
    link: Link | None = None
    generation: int | None = None
    """As it was told; None until the job has said which one it is at."""
    trouble: str = "it does not answer"
    closed_real_s: float | None = None
    """When it first closed the connection, by the monotonic clock."""


class Resizing:
    def __init__(self, body: "LocalBody") -> None:
        self._body = body
        self._under_way: dict[str, Resize] = {}

    def begin(self, job_id: str, grants: Grants) -> None:
        """Have it go on with these. Before it grows, its group has room for what it has and what it gets."""
        body, job, view = self._body, self._body.jobs.get(job_id), self._body.engine.state.jobs.get(job_id)
        if view is None:
            return
        if job is None:
            body.post(partial(self._failed, job_id, "it has no process just now"))
            return
        job.grants = view.held
        try:
            body.devices.resize(job.launch.group, limits_of(view.job), view.held)
            workers = body.devices.workers(grants)
        except DeviceError as error:
            body.post(partial(self._failed, job_id, str(error)))
            return
        self._under_way[job_id] = Resize(job, grants, workers, body.now_s() + body.timing.resize_s)

    def advance(self) -> None:
        for job_id, resize in list(self._under_way.items()):
            if self._body.jobs.get(job_id) is not resize.job or resize.job.stopping:
                self._forget(job_id)  # its end is the answer
                continue
            try:
                for status in self._hear(resize):
                    self._take(job_id, resize, status)
            except Lost as reason:
                self._lost(job_id, resize, str(reason))
            if job_id in self._under_way and self._body.now_s() >= resize.by_s:
                self._failed(job_id, f"{resize.trouble} within {self._body.timing.resize_s:g} s")

    def interrupted(self, job_id: str) -> bool:
        """It has ended and would be launched again, in the middle of a resize: then it is started anew instead."""
        if job_id not in self._body.engine.state.rescaling:
            return False
        self._failed(job_id, "its processes have ended meanwhile")
        return True

    def _hear(self, resize: Resize) -> list[Status]:
        """What it says. Whoever is connected anew is asked first where it stands."""
        if resize.link is None:
            account = self._body.launcher.accounts[resize.job.id]
            resize.link, resize.generation = Link(resize.job.launch.socket_path, account.uid), None
            resize.trouble = "it does not answer"
            resize.link.send({"op": "status"})
        return resize.link.receive()

    def _take(self, job_id: str, resize: Resize, status: Status) -> None:
        if job_id not in self._under_way:
            return
        assert resize.link is not None
        if resize.generation is None:
            resize.generation = status.generation + 1
            batch = batch_of(resize.grants)
            told = {"op": "resize", "generation": resize.generation, "workers": resize.workers, "batch": batch}
            resize.link.send(told)
            resize.trouble = "it is not done"
        elif status.refused or (status.done and status.generation >= resize.generation):
            wrong = status.error or (None if status.finished else _differs(status, resize.workers))
            if wrong is None and not status.refused:
                self._done(job_id, resize, status)
            else:
                self._failed(job_id, wrong or "it refuses")

    def _done(self, job_id: str, resize: Resize, status: Status) -> None:
        """It has left what it does not keep: its group shrinks, and the engine may give that to others."""
        body, view = self._body, self._body.engine.state.jobs[job_id]
        self._forget(job_id)
        left = tuple(grant for grant in view.held if grant.device not in {one.device for one in resize.grants})
        try:
            body.devices.resize(resize.job.launch.group, limits_of(view.job), resize.grants, left)
        except DeviceError as error:
            self._failed(job_id, str(error))
            return
        resize.job.grants = resize.grants
        paused = f", after a pause of {status.pause_s:.3g} s" if status.pause_s is not None else ""
        cause = "its training is over, and it is about to end" if status.finished else f"it goes on{paused}"
        body.tell(JobRescaled(body.now_s(), cause, job_id))

    def _lost(self, job_id: str, resize: Resize, reason: str) -> None:
        """Before it listens it is waited for; after that it has a moment to end, or to listen again."""
        resize.trouble, now_real_s = reason, time.monotonic()
        if resize.link is not None:
            resize.link.close()
            resize.link, resize.closed_real_s = None, resize.closed_real_s or now_real_s
        if resize.closed_real_s is not None and now_real_s - resize.closed_real_s >= CLOSED_REAL_S:
            self._failed(job_id, reason)

    def _failed(self, job_id: str, cause: str) -> None:
        self._forget(job_id)
        state = self._body.engine.state
        if job_id in state.rescaling and state.jobs[job_id].phase is Phase.RUNNING:
            self._body.tell(RescaleFailed(self._body.now_s(), cause, job_id))

    def _forget(self, job_id: str) -> None:
        resize = self._under_way.pop(job_id, None)
        if resize is not None and resize.link is not None:
            resize.link.close()


def _differs(status: Status, workers: tuple[Worker, ...]) -> str | None:
    """Whether it is where it was told to be, if it says where it is."""
    wanted = [worker["device"] for worker in workers]
    if status.workers is None or sorted(status.workers) == sorted(wanted):
        return None
    return f"it says that it is done, with workers on {', '.join(status.workers)}"[:MOST_WORDS]
