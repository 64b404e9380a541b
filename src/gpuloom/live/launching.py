"""Launches that are wanted and have not happened yet: the one before is not gone, or host or device are not ready.

Never two of a job at once: the launch before has to be gone, and that has to be certain.
"""

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gpuloom.contract.view import JobView, Phase
from gpuloom.gpus.grant import Device, Grants
from gpuloom.gpus.host.processes import ProcessId, born_ticks
from gpuloom.live.devices import DeviceError, NotThereError, lives_beside
from gpuloom.live.jobs import LiveJob
from gpuloom.live.keeper import NO_ROOM
from gpuloom.live.launch import Left, left_of, limits_of
from gpuloom.live.store import Launch
from gpuloom.live.trouble.blame import Blamed, Then

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody

MOST_TRIES = 8
"""So often a launch is tried again when the host refuses it, at longer and longer intervals: some 13 s in all."""

AFTER_CRASH_S = 0.5
"""So long, of the real clock, one waits that has crashed once, and twice as long each further time: what made it crash
may pass, and others may show meanwhile that it was its device."""


@dataclass(slots=True)
class Pending:
    grants: Grants
    share_pct: float | None
    needs_room: bool = False
    """The launch before failed for want of room on the disk."""
    due_s: float = 0.0
    tries: int = 0
    """How often host or device has refused."""


class Launching:
    def __init__(self, body: "LocalBody") -> None:
        self._body = body
        self._pending: dict[str, Pending] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._pending

    def __bool__(self) -> bool:
        return bool(self._pending)

    def devices(self) -> set[Device]:
        """That are shared by those who wait."""
        held = [grant for pending in self._pending.values() for grant in pending.grants]
        return {grant.device for grant in held if grant.share_pct < 100}

    def drop(self, job_id: str) -> None:
        self._pending.pop(job_id, None)

    def clear(self) -> None:
        self._pending.clear()

    def reshare(self, job_id: str, share_pct: float | None) -> None:
        self._pending[job_id].share_pct = share_pct

    def advance(self) -> None:
        for job_id, pending in list(self._pending.items()):
            if pending.due_s <= self._body.now_s():
                self._try(job_id)

    def begin(self, job_id: str, grants: Grants, share_pct: float | None = None, *, needs_room: bool = False) -> None:
        """Launch the job for the engine's latest start of it, as soon as that can be."""
        body = self._body
        if body.closing:
            return
        pending = self._pending[job_id] = Pending(grants, share_pct, needs_room)
        crashes = body.engine.state.jobs[job_id].crashes if job_id in body.engine.state.jobs else 0
        if crashes:
            pending.due_s = body.now_s() + body.clock.pace * AFTER_CRASH_S * 2 ** min(crashes - 1, 3)
        else:
            self._try(job_id)

    def _try(self, job_id: str) -> None:
        body = self._body
        pending, view = self._pending[job_id], body.engine.state.jobs.get(job_id)
        if body.closing or view is None or view.phase not in (Phase.STARTING, Phase.RUNNING):
            del self._pending[job_id]
            return
        last = body.store.last_launch(job_id)
        left = Left.NOBODY if last is None else left_of(last) if last.forestall() else Left.SOMEBODY
        if left is Left.SOMEBODY:
            self._later(job_id, f"job {job_id} waits: processes of its last launch are still there")
            return
        if pending.needs_room and not body.store.has_room():
            self._later(job_id, f"job {job_id} waits: no room on the disk of {body.store.folder}")
            return
        if left is Left.UNKNOWN:
            del self._pending[job_id]
            body.post(partial(body.lost_sight, job_id))
            return
        try:
            launch, child = self._launch(view, pending)
        except (DeviceError, OSError, ValueError) as error:
            self._failed(job_id, pending, error)
            return
        del self._pending[job_id]
        body.said(job_id)
        keeper = ProcessId(child.pid, born_ticks(child.pid) or 0)
        up_by_s = body.now_s() + body.timing.up_s
        body.jobs[job_id] = LiveJob(job_id, pending.grants, launch, keeper, child, up_by_s=up_by_s)

    def _failed(self, job_id: str, pending: Pending, error: Exception) -> None:
        """Host and device may be themselves again in a moment. If the device is not, the job has done nothing wrong."""
        body, gpus = self._body, {grant.gpu for grant in pending.grants}
        blamed = body.blame.of_device(gpus) if isinstance(error, DeviceError) else None
        if blamed is None and isinstance(error, NotThereError):
            blamed = Blamed(min(gpus), str(error), Then.HAS_LESS)
        lacks_room = isinstance(error, OSError) and error.errno in NO_ROOM
        if lacks_room or (blamed is None and pending.tries < MOST_TRIES and not isinstance(error, ValueError)):
            pending.tries += not lacks_room
            self._later(job_id, f"job {job_id} waits: {error}")
            return
        del self._pending[job_id]
        body.release_devices()
        words = f"cannot be launched: {error}"
        if blamed is None and isinstance(error, DeviceError):
            blamed = Blamed(min(gpus), words, Then.IS_CLOSED)
        body.post(partial(body.crashed, job_id, words) if blamed is None else partial(body.let_down, job_id, blamed))

    def _launch(self, view: JobView, pending: Pending) -> "tuple[Launch, subprocess.Popen[bytes]]":
        body = self._body
        own, beside = limits_of(view.job), lives_beside(view.job, pending.grants)
        uid = body.launcher.accounts[view.id].uid
        place = body.devices.place(pending.grants, own, pending.share_pct, beside=beside, uid=uid)
        launch, child = body.launcher.start(view.job, view.starts, place, pending.share_pct)
        if beside:
            with suppress(DeviceError):  # its limits are set; only who uses the devices could not be noted
                body.devices.resize(launch.group, own, pending.grants)
        return launch, child

    def _later(self, job_id: str, why: str) -> None:
        body, pending = self._body, self._pending[job_id]
        real_s = max(body.timing.poll_real_s, 0.05 * 2**pending.tries if pending.tries else 0.0)
        pending.due_s = body.now_s() + body.clock.pace * real_s
        body.say(job_id, why)
