"""This machine's GPUs for the jobs of one run: cut them, share them under MPS, name them to a process, give them back.

Knows nothing of jobs but their grants. The engine's index of a GPU is its position among those that the run has taken.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from gpuloom.gpus.cluster import Cluster, Gpu
from gpuloom.gpus.grant import Device, Grant, Grants
from gpuloom.gpus.host.cutter import CutOutcome, Cutter
from gpuloom.gpus.host.mig import StepFailed
from gpuloom.gpus.host.mps import Daemon, MpsError, daemon_for
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.model import Instance, Layout

TRIES = 3
"""How often the driver is asked before an error is believed: what one bad answer prevents, the next call may do."""

T = TypeVar("T")


class DeviceError(Exception):
    """A device cannot be given to a job; the text says why."""


def insist(ask: Callable[[], T]) -> T:
    """The driver's answer, asked for again if it is an error: what it says now and then is no reason to give up."""
    for _ in range(TRIES - 1):
        with suppress(StepFailed, Refused):
            return ask()
    return ask()


class Devices:
    def __init__(self, cutter: Cutter, hosts: Sequence[int], mps_dir: Path, mps_timeout_s: float = 5.0) -> None:
        self.cutter = cutter
        self.hosts = tuple(hosts)
        """The host's number of each GPU, by the engine's."""
        self.mps_dir = mps_dir
        self.mps_timeout_s = mps_timeout_s
        self._uuids: dict[Device, str] = {}
        self._daemons: dict[Device, Daemon] = {}

    def take(self) -> Cluster:
        """Make all the GPUs ours; Refused if one is not to be had."""
        states = [insist(partial(self.cutter.take, host)) for host in self.hosts]
        return Cluster(tuple(Gpu(index, 0, state.model) for index, state in enumerate(states)))

    def uuids(self) -> tuple[str, ...]:
        return tuple(insist(partial(self.cutter.look, host)).uuid for host in self.hosts)

    def clear(self, gpu: int) -> str | None:
        """Make a GPU uncut; why it cannot be, if so. Its MIG mode stays until somebody needs it changed."""
        try:
            return self._apply(gpu, ()).reason
        except (Refused, StepFailed) as reason:
            return str(reason)

    def look(self, gpu: int) -> Layout | None:
        """The layout now, half-made instances removed or completed; None if the GPU does not answer."""
        with suppress(Refused, StepFailed):
            state = self.cutter.look(self.hosts[gpu])
            if state.occupied != state.layout:
                return self._apply(gpu, state.layout).layout
            return state.layout
        return None

    def cut(self, gpu: int, target: Layout) -> tuple[Layout | None, str | None]:
        """The layout after it, None if the GPU does not answer; and why it is not the target, if so."""
        for device in [device for device in self._daemons if device[0] == gpu and device[1] not in target]:
            self.stop_sharing(device)
        self._uuids = {device: uuid for device, uuid in self._uuids.items() if device[0] != gpu}
        try:
            cut = self._apply(gpu, target)
        except (Refused, StepFailed) as reason:
            return self.look(gpu), str(reason)
        return cut.layout, cut.reason

    def _apply(self, gpu: int, target: Layout) -> CutOutcome:
        """An uncut GPU keeps the MIG mode it has: whoever uses it whole switches it off, and nobody else needs to."""
        host = self.hosts[gpu]
        return self.cutter.apply(host, target, keep_mig=self.cutter.look(host).mig)

    def leave(self) -> list[str]:
        """Give every GPU back as it was found; the reasons where that failed."""
        for device in list(self._daemons):
            self.stop_sharing(device)
        self.stop_stray_daemons(())
        return [problem for gpu in range(len(self.hosts)) if (problem := self._leave(gpu)) is not None]

    def _leave(self, gpu: int) -> str | None:
        host, reason = self.hosts[gpu], None
        for _ in range(TRIES):
            try:
                if self.cutter.found(host) is None:
                    return None
                reason = self.cutter.leave(host).reason
            except (Refused, StepFailed) as refused:
                reason = str(refused)
            if reason is None:
                return None
        return f"GPU {host} is not as it was found: {reason}"

    # ---- naming a grant to a process ---------------------------------------------------------------------------

    def environment(self, grants: Grants, share_pct: float | None = None) -> dict[str, str]:
        """What a job's process needs in its environment; `share_pct` instead of the grant's, during a probe."""
        uuids = [self._uuid(grant) for grant in grants]
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}
        shared = [grant for grant in grants if grant.share_pct < 100]
        if shared:
            if len(grants) > 1:
                raise DeviceError("a job that shares has one device")
            daemon = self._share(grants[0])
            environment |= daemon.client_environment(share_pct or grants[0].share_pct, grants[0].mem_mib)
        profiles = ["whole" if grant.instance is None else grant.instance.profile for grant in grants]
        return environment | {"GPULOOM_PROFILE": ",".join(profiles)}

    def _uuid(self, grant: Grant) -> str:
        if grant.device not in self._uuids:
            self._uuids[grant.device] = self._find(grant.gpu, grant.instance)
        return self._uuids[grant.device]

    def _find(self, gpu: int, instance: Instance | None) -> str:
        host = self.hosts[gpu]
        try:
            state = self.cutter.look(host)
            if instance is None:
                if state.mig:  # a GPU in MIG mode cannot be used whole
                    cut = self.cutter.apply(host, ())
                    if cut.reason is not None:
                        raise DeviceError(f"GPU {host} cannot be used whole: {cut.reason}")
                return state.uuid
            if instance not in state.uuids:
                raise DeviceError(f"GPU {host} has no {instance}")
            return state.uuids[instance]
        except (Refused, StepFailed) as reason:
            raise DeviceError(str(reason)) from reason

    # ---- MPS ---------------------------------------------------------------------------------------------------

    def _share(self, grant: Grant) -> Daemon:
        daemon = daemon_for(self._uuid(grant), self.mps_dir)
        if grant.device not in self._daemons:
            try:
                daemon.start(timeout_s=self.mps_timeout_s)
            except MpsError as error:
                raise DeviceError(str(error)) from error
            self._daemons[grant.device] = daemon
        return daemon

    def adopt(self, grant: Grant) -> None:
        """Somebody is a client of this device's daemon already, from before the runner was started again."""
        if grant.share_pct < 100:
            self._share(grant)

    def shared(self) -> list[Device]:
        return list(self._daemons)

    def stop_sharing(self, device: Device) -> None:
        """Nobody shares this device any more: a server that stays would hold it."""
        daemon = self._daemons.pop(device, None)
        if daemon is not None:
            with suppress(MpsError):  # what does not end makes the next cut refuse, and say so
                daemon.stop(self.mps_timeout_s)

    def stop_stray_daemons(self, keep: Sequence[Device]) -> None:
        """End the daemons that a killed runner has left, but for those of devices that are still shared."""
        kept = {self._daemons[device].folder for device in keep if device in self._daemons}
        for folder in sorted(self.mps_dir.glob("*-*")):
            if folder not in kept and any(folder.glob("pipe/*")):
                with suppress(MpsError):
                    Daemon("none", folder).stop(self.mps_timeout_s)
