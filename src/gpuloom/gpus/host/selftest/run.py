"""The self-test itself: whether it may begin, the parts in their order, and the GPU as it was found at the end.

Only a GPU that is idle and not gpuloom's already is taken, through `Cutter` as every other: what it looked like is
written down before the first change, so that `layout apply --as-found` restores it even after a kill.
"""

import importlib
import os
import time
from collections.abc import Callable
from functools import partial

from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import GpuState
from gpuloom.gpus.host.mig import nvml_driver
from gpuloom.gpus.host.nvml import NoDriver
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.host.selftest import describe, instances, modes, sharing
from gpuloom.gpus.host.selftest.clients import NoCuda
from gpuloom.gpus.host.selftest.privacy import Pseudonyms, names_here
from gpuloom.gpus.host.selftest.recording import RecordedNvml, Recorder
from gpuloom.gpus.host.selftest.session import NotHere, Session, Stopped
from gpuloom.gpus.host.selftest.transcript import Finding, Part, Transcript, Verdict

LIMIT_S = 900.0
"""Past this the GPU is restored, whatever is left to test."""

TestPart = Callable[[Session], Finding]
PARTS: dict[str, TestPart] = {
    "versions": describe.versions,
    "MIG off": modes.switch_off,
    "profiles, MIG off": describe.profiles_without_mig,
    "MPS, whole GPU": sharing.on_the_whole_gpu,
    "MIG on": modes.switch_on,
    "profiles, MIG on": describe.profiles_with_mig,
    "each profile": instances.each_profile,
    "process on an instance": instances.destroy_under_a_process,
    "MPS, slice": sharing.on_a_slice,
}
RESTORE = "restore"


def why_not(cutter: Cutter, gpu: int, uid: int) -> str | None:
    """Why the self-test may not begin, in a sentence; None if it may. Nothing is changed."""
    if uid != 0:
        return "the self-test switches MIG mode and cuts, which needs root"
    if cutter.found(gpu) is not None:
        return f"gpuloom has taken it already; `gpuloom layout apply --gpu {gpu} --as-found` gives it up"
    reason = cutter.managed(gpu)
    if reason is not None:
        return reason
    split = [str(part.instance) for part in cutter.look(gpu).parts if part.uuid is None]
    if split:
        return f"{', '.join(split)} is not one whole instance, and would not be restored as it is"
    return None


class SelfTest:
    """One GPU of this host, from the look whether it may be tested to its transcript."""

    def __init__(self, gpu: int, uid: int | None = None) -> None:
        self.gpu, self._uid = gpu, os.geteuid() if uid is None else uid
        self._recorder = Recorder(Pseudonyms(names_here()))
        try:
            module = importlib.import_module("pynvml")
        except ImportError:
            raise NoDriver("the Python package nvidia-ml-py is not installed") from None
        self._nvml = RecordedNvml(module, self._recorder)

    def _cutter(self) -> Cutter:
        return Cutter(partial(nvml_driver, self._nvml), whole=True)

    def look(self) -> tuple[int, GpuState | None, str | None]:
        """How many GPUs there are, this one, and why it may not be tested. Nothing is changed."""
        with self._cutter() as cutter:
            count = cutter.count()
            if self.gpu >= count:
                return count, None, None
            state, reason = cutter.look(self.gpu), why_not(cutter, self.gpu, self._uid)
        self._recorder.take()  # what follows is the self-test
        return count, state, reason

    def run(
        self, on_session: Callable[[Session], None], done: Callable[[int], None], limit_s: float = LIMIT_S
    ) -> Transcript:
        """All parts, and the GPU restored, whatever happens. Refused: nothing was changed."""
        parts = list[Part]()
        with self._cutter() as cutter:
            reason = why_not(cutter, self.gpu, self._uid)
            if reason is not None:
                raise Refused(reason)
            cutter.take(self.gpu)
            session = Session(cutter, self.gpu, self._nvml, self._recorder, limit_s)
            try:
                on_session(session)
                for number, (name, part) in enumerate(PARTS.items()):
                    parts.append(self._part(name, part, session))
                    done(number + 1)
            finally:
                parts.append(self._part(RESTORE, modes.restore, session))
        return Transcript(self.gpu, tuple(parts), session.stopped, bool(session.interrupts))

    def _part(self, name: str, part: TestPart, session: Session) -> Part:
        begun_s = time.monotonic()
        try:
            finding = part(session)
        except (NotHere, NoCuda, Stopped) as reason:
            finding = Finding(Verdict.NOT_HERE, str(reason), {})
        except Exception as problem:  # whatever it was, the rest is tested and the GPU restored
            finding = Finding(Verdict.FAILED, str(problem) or type(problem).__name__, {})
        seconds, told = time.monotonic() - begun_s, self._recorder.pseudonyms.sentence(finding.detail)
        return Part(name, finding.verdict, finding.detail, told, seconds, finding.facts, self._recorder.take())
