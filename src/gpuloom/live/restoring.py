"""GPUs that are out of service, and how they come back."""

from functools import partial
from typing import TYPE_CHECKING

from gpuloom.engine.events import GpuLost, GpuRestored

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody


class Restoring:
    def __init__(self, body: "LocalBody") -> None:
        self._body = body
        self._planned: set[int] = set()

    def lost(self, gpu: int, cause: str) -> None:
        self._body.tell(GpuLost(self._body.now_s(), cause, gpu))

    def plan(self) -> None:
        """Look at every GPU that is out of service again, after a while."""
        body = self._body
        if body.closing:
            return
        for gpu, view in body.engine.state.gpus.items():
            if view.lost and gpu not in self._planned and gpu not in body.engine.state.left:
                self._planned.add(gpu)
                body.at(body.now_s() + body.timing.restore_s, partial(self.restore, gpu))

    def restore(self, gpu: int) -> None:
        """Take a GPU into service again, if it answers and can be made uncut, as the engine expects it then."""
        body = self._body
        self._planned.discard(gpu)
        if not body.engine.state.gpus[gpu].lost or gpu in body.engine.state.left:
            return
        if not any(grant.gpu == gpu for job in body.jobs.values() for grant in job.grants):
            reason = body.devices.clear(gpu)
            if reason is None:
                body.tell(GpuRestored(body.now_s(), "it answers again", gpu))
        self.plan()
