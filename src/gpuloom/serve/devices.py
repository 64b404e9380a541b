"""A replica's grant as its server's environment: MIG's UUID, MPS's share. Without a GPU there is nothing to name.

Nothing is cut here: a plan with MIG instances needs them made first (`gpuloom layout apply`).
"""

from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.host.mig_read import look
from gpuloom.gpus.host.mps import Daemon, MpsError, daemon_for
from gpuloom.gpus.host.nvml import NoDriver, opened


class Devices(Protocol):
    @property
    def real(self) -> bool: ...
    def environment(self, grant: Grant) -> dict[str, str]:
        """Of a server with this grant. May start an MPS daemon, and wait for it."""
        ...

    def release(self) -> None:
        """End what was started for the servers; they have ended."""
        ...


class NoDevices:
    """A machine without a GPU: the share is told for the record only."""

    real = False

    def environment(self, grant: Grant) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": "", "GPULOOM_GRANT": str(grant)}

    def release(self) -> None:
        pass


class HostDevices:
    """This host's GPUs: the plan's GPU 0 is the driver's GPU 0."""

    real = True

    def __init__(self, mps_dir: Path) -> None:
        self.mps_dir = mps_dir
        self._uuids: dict[Device, str] = {}
        self._daemons: dict[Device, Daemon] = {}

    def find(self, grants: list[Grant]) -> None:
        """Look every device up; InputError if the plan needs one that is not there."""
        with opened() as nvml:
            count = nvml.nvmlDeviceGetCount()
            for grant in grants:
                if grant.gpu >= count:
                    raise InputError(f"the plan uses GPU {grant.gpu}, but this host has {count}: plan for that many")
                self._uuids[grant.device] = self._uuid(nvml, grant)

    def _uuid(self, nvml: Any, grant: Grant) -> str:
        try:
            state = look(nvml, grant.gpu)
        except nvml.NVMLError as reason:
            raise InputError(f"GPU {grant.gpu} does not answer: {reason}") from None
        if grant.instance is None:
            if state.mig:
                raise InputError(f"the plan uses GPU {grant.gpu} whole, but MIG is on: switch it off first")
            return state.uuid
        if grant.instance not in state.uuids:
            raise InputError(
                f"the plan uses {grant.instance} of GPU {grant.gpu}, which is not there: make it with layout apply"
            )
        return state.uuids[grant.instance]

    def environment(self, grant: Grant) -> dict[str, str]:
        environment = {"GPULOOM_GRANT": str(grant)}
        uuid = self._uuids[grant.device]
        if grant.share_pct >= 100:
            return environment | {"CUDA_VISIBLE_DEVICES": uuid}
        daemon = self._daemons.get(grant.device)
        if daemon is None:
            daemon = daemon_for(uuid, self.mps_dir)
            daemon.start()
            self._daemons[grant.device] = daemon
        return environment | daemon.client_environment(grant.share_pct, grant.mem_mib)

    def release(self) -> None:
        for daemon in self._daemons.values():  # by their processes, even if somebody has removed the folder
            with suppress(MpsError):
                daemon.stop()
        self._daemons.clear()
        stop_daemons(self.mps_dir)


def devices_of(grants: list[Grant], mps_dir: Path) -> Devices:
    """This host's, or none if it has no driver."""
    try:
        with opened():
            pass
    except NoDriver:
        return NoDevices()
    host = HostDevices(mps_dir)
    host.find(grants)
    return host


def stop_daemons(mps_dir: Path) -> None:
    """End the MPS daemons of a deployment, also of one that was killed."""
    for folder in sorted(mps_dir.glob("*-*")):
        if any(folder.glob("pipe/*")):
            with suppress(MpsError):
                Daemon("none", folder).stop()
