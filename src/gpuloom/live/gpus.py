"""GPUs for the jobs of a run: a slice is named by its UUID, a share is a client's limit at an MPS daemon."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuloom.gpus.grant import Device, Grant, Grants
from gpuloom.gpus.host.cgroups import NO_LIMITS, Group, Limits
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.mps.daemon import Daemon, MpsError, daemon_for, no_daemon, why_unusable
from gpuloom.gpus.host.mps.watch import MpsWatch
from gpuloom.live.devices import DeviceError, Devices, Place, Worker, batch_of
from gpuloom.live.users import Account, why_not_shared

HUNG_S = 1.0
"""So long one that hangs has to end when it is asked to, before it is killed."""


class GpuDevices(Devices):
    switched_early = True

    def __init__(
        self, cutter: Cutter, hosts: Sequence[int], mps_dir: Path, watch_s: float, mps_timeout_s: float = 5.0
    ) -> None:
        """`watch_s`: so often a daemon is asked whether it still answers, and so long it may take."""
        super().__init__(cutter, hosts)
        self.mps_dir, self.watch_s, self.mps_timeout_s = mps_dir, watch_s, mps_timeout_s
        self._daemons: dict[Device, Daemon] = {}
        self._watches: dict[Device, MpsWatch] = {}
        self._servers: dict[Device, tuple[int, ...]] = {}
        """Of each daemon, at the last launch there."""

    def place(
        self,
        grants: Grants,
        own: Limits = NO_LIMITS,
        share_pct: float | None = None,
        *,
        beside: bool = False,  # noqa: ARG002 (no process is inside a GPU's group)
        uid: int | None = None,
    ) -> Place:
        uuids = [self._uuid(grant) for grant in grants]
        try:
            environment = {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} | no_daemon(self.mps_dir)
        except OSError as error:
            raise DeviceError(f"no folder for MPS: {error}") from error
        shared = [grant for grant in grants if grant.share_pct < 100]
        if shared:
            if len(grants) > 1:
                raise DeviceError("a job that shares has one device")
            daemon = self._share(grants[0], uid)
            environment |= daemon.client_environment(share_pct or grants[0].share_pct, grants[0].mem_mib)
        profiles = ["whole" if grant.instance is None else grant.instance.profile for grant in grants]
        environment["GPULOOM_PROFILE"] = ",".join(profiles)
        return Place(environment, own, workers=self.workers(grants), batch=batch_of(grants))

    def workers(self, grants: Grants) -> tuple[Worker, ...]:
        uuids = [self._uuid(grant) for grant in grants]
        nobody = no_daemon(self.mps_dir)
        return tuple(Worker(device=uuid, env={"CUDA_VISIBLE_DEVICES": uuid} | nobody) for uuid in uuids)

    def why_no_sharing(self, accounts: Mapping[str, Account]) -> str | None:
        return why_not_shared(accounts) or why_unusable(self.mps_dir)

    def _share(self, grant: Grant, uid: int | None = None) -> Daemon:
        daemon = daemon_for(self._uuid(grant), self.mps_dir)
        if grant.device not in self._daemons:
            try:
                daemon.start(timeout_s=self.mps_timeout_s, uid=uid)
            except MpsError as error:
                raise DeviceError(str(error)) from error
            self._daemons[grant.device], self._watches[grant.device] = daemon, MpsWatch(daemon, self.watch_s)
        with suppress(MpsError):
            self._servers[grant.device] = daemon.servers(self.mps_timeout_s)
        return daemon

    def why_no_share(self, grant: Grant) -> str | None:
        """A server that has gone since the last launch took its clients along, though the daemon answers."""
        daemon = self._daemons.get(grant.device)
        if daemon is None or grant.share_pct >= 100:
            return None
        try:
            gone = {*self._servers.get(grant.device, ())} - {*daemon.servers(self.mps_timeout_s)}
        except MpsError as error:
            return str(error)
        return f"MPS server {min(gone)} has gone" if gone else daemon.trouble(self.mps_timeout_s)

    def broken_shares(self) -> dict[Device, str]:
        found = {device: watch.look() for device, watch in self._watches.items()}
        return {device: f"MPS daemon: {trouble}" for device, trouble in found.items() if trouble is not None}

    def before_kill(self, grant: Grant, pids: Sequence[int]) -> None:
        daemon = self._daemons.get(grant.device)
        if daemon is not None:
            with suppress(MpsError):  # they are killed all the same
                for pid in pids:
                    daemon.terminate_client(pid)

    def adopt(self, grant: Grant, group: Group | None, own: Limits) -> None:  # noqa: ARG002
        """It is a client of this device's daemon, unless that hangs, or has gone: then it is a client of nobody."""
        if grant.share_pct < 100:
            daemon = daemon_for(self._uuid(grant), self.mps_dir)
            trouble = daemon.trouble(self.mps_timeout_s)
            if trouble is not None:
                with suppress(MpsError):
                    daemon.kill(HUNG_S)
                raise DeviceError(trouble)
            self._share(grant)

    def shared(self) -> list[Device]:
        return list(self._daemons)

    def stop_sharing(self, device: Device, *, broken: bool = False) -> None:
        """A server that stays would hold the device."""
        daemon, watch = self._daemons.pop(device, None), self._watches.pop(device, None)
        self._servers.pop(device, None)
        if watch is not None:
            watch.close()
        if daemon is not None:
            with suppress(MpsError):  # what does not end makes the next cut refuse, and say so
                daemon.kill(HUNG_S) if broken else daemon.stop(self.mps_timeout_s)

    def stop_strays(self, keep: Sequence[Device]) -> None:
        kept = {self._daemons[device].folder for device in keep if device in self._daemons}
        for folder in sorted(self.mps_dir.glob("*-*")):
            if folder not in kept and any(folder.glob("pipe/*")):
                with suppress(MpsError):
                    Daemon("none", folder).stop(self.mps_timeout_s)
