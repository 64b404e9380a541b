"""Cuts that are under way. A driver that says "in use" is asked again, for a while: it says so for some time after a
process has gone. Whoever works on what stays notices nothing, and the runner looks after everybody meanwhile.
"""

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from gpuloom.engine.events import CutFailed, GpuCut
from gpuloom.engine.instructions import Cut
from gpuloom.gpus.host.cutter import AGAIN_S, PATIENCE_S
from gpuloom.live.devices import CutAnswer

if TYPE_CHECKING:
    from gpuloom.live.body import LocalBody


class Cutting:
    def __init__(self, body: "LocalBody") -> None:
        self._body = body
        self._failed: Counter[int] = Counter()
        """How many cuts of each GPU have failed in a row."""

    def begin(self, cut: Cut) -> None:
        """At once; or later, if the one before has failed."""
        failed = self._failed[cut.gpu]
        self._later(cut, time.monotonic(), AGAIN_S * 2 ** (failed - 1) if failed else 0.0)

    def _later(self, cut: Cut, since_s: float, real_s: float) -> None:
        body = self._body
        if real_s:
            body.at(body.now_s() + body.clock.pace * real_s, partial(self._try, cut, since_s))
        else:
            self._try(cut, since_s)

    def _try(self, cut: Cut, since_s: float) -> None:
        body = self._body
        if body.closing or not body.engine.state.gpus[cut.gpu].cutting:
            return  # it was lost meanwhile
        answer, about = body.devices.cut(cut.gpu, cut.target), f"cut {cut.gpu}"
        if self._may_pass(cut.gpu, answer) and time.monotonic() - since_s < PATIENCE_S:
            noun, host = body.devices.noun, body.devices.hosts[cut.gpu]
            body.say(about, f"{noun} {host} cannot be cut yet: {answer.reason or 'it does not answer'}")
            self._later(cut, since_s, AGAIN_S)
            return
        body.said(about)
        body.post(partial(self._tell, cut.gpu, answer))

    def _may_pass(self, gpu: int, answer: CutAnswer) -> bool:
        """In use; or no answer at all, from a driver that may be busy or loaded anew. One that says "lost" means it."""
        if answer.layout is None:
            trouble = self._body.devices.trouble(gpu)
            return trouble is None or not trouble.is_gone
        return answer.in_use

    def _tell(self, gpu: int, answer: CutAnswer) -> None:
        body = self._body
        self._failed[gpu] = 0 if answer.reason is None else self._failed[gpu] + 1
        if answer.layout is None:
            body.restoring.lost(gpu, answer.reason or "it does not answer")
        elif answer.reason is None:
            body.tell(GpuCut(body.now_s(), "cut", gpu, answer.layout))
        else:
            body.tell(CutFailed(body.now_s(), answer.reason, gpu, answer.layout))
