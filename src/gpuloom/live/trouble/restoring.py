"""Devices that are out of service, and how they come back: looked at again after a while.

One on which something failed that may fail again is left alone for longer each time.
"""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from gpuloom.engine.events import GpuClosed, GpuCut, GpuLost, GpuRestored
from gpuloom.gpus.grant import Grants

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody

MOST_DOUBLED = 5


class Restoring:
    def __init__(self, body: "LocalBody") -> None:
        self._body = body
        self._planned: set[int] = set()
        self._times: Counter[int] = Counter()
        """How often each was out of service since anybody made a step there."""

    def lost(self, gpu: int, cause: str) -> None:
        self._body.tell(GpuLost(self._body.now_s(), cause, gpu))

    def closed(self, gpu: int, cause: str) -> None:
        self._body.tell(GpuClosed(self._body.now_s(), cause, gpu))

    def worked(self, grants: Grants) -> None:
        for grant in grants:
            self._times.pop(grant.gpu, None)

    def plan(self) -> None:
        """Look at every GPU that is out of service again, after a while."""
        body = self._body
        if body.closing:
            return
        for gpu, view in body.engine.state.gpus.items():
            if view.lost and gpu not in self._planned and gpu not in body.engine.state.left:
                self._planned.add(gpu)
                doubled = min(self._times[gpu], MOST_DOUBLED) if gpu in body.engine.state.frozen else 0
                after_s = body.timing.restore_s * 2**doubled
                body.at(body.now_s() + after_s, partial(self.restore, gpu))

    def restore(self, gpu: int) -> None:
        """Take a GPU into service again, if it answers and is as the engine expects it then."""
        body = self._body
        self._planned.discard(gpu)
        self._times[gpu] += 1
        if body.engine.state.gpus[gpu].lost and gpu not in body.engine.state.left:
            if gpu in body.engine.state.frozen:
                self._open_again(gpu)
            elif not self._is_used(gpu) and body.devices.clear(gpu) is None:
                self._restored(gpu, "it answers again")
        self.plan()

    def soon(self, gpu: int) -> None:
        """One that was closed for no reason of its own."""
        if gpu in self._body.engine.state.frozen:
            self._times.pop(gpu, None)
            self._body.post(partial(self.restore, gpu))

    def _open_again(self, gpu: int) -> None:
        """One that was closed, or could not be cut: with what it has now, if that is enough for who works there."""
        body = self._body
        layout, actual = body.devices.look(gpu), body.engine.state.gpus[gpu].actual
        here = {grant.instance for job in body.jobs.values() for grant in job.grants if grant.gpu == gpu}
        if layout is None:
            trouble = body.devices.trouble(gpu)
            if trouble is not None and trouble.is_gone:
                self.lost(gpu, trouble.why)
        elif here - {None} <= {*layout}:
            self._restored(gpu, "it is tried again")
            if layout != actual:
                body.tell(GpuCut(body.now_s(), "found when it was tried again", gpu, layout))
        elif not here:
            self.lost(gpu, "it no longer has what was cut")

    def _is_used(self, gpu: int) -> bool:
        return any(grant.gpu == gpu for job in self._body.jobs.values() for grant in job.grants)

    def _restored(self, gpu: int, cause: str) -> None:
        self._body.devices.accept(gpu)
        self._body.tell(GpuRestored(self._body.now_s(), cause, gpu))
