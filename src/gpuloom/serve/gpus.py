"""This host's GPUs for servers: a slice is named by its UUID, a share is a client's limit at an MPS daemon.

Nothing is cut here: a plan with instances needs them made first (`gpuloom layout apply`).
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.host.mig_read import look
from gpuloom.gpus.host.mps.daemon import Daemon, MpsError, daemon_for, no_daemon
from gpuloom.gpus.host.nvml import opened
from gpuloom.serve.seats import DeviceError, Kind, Seat


class HostDevices:
    """This host's GPUs: the plan's GPU 0 is the driver's GPU 0."""

    kind, noise = Kind.GPU, None

    def __init__(self, mps_dir: Path) -> None:
        self.mps_dir = mps_dir
        self._uuids: dict[Device, str] = {}
        self._daemons: dict[Device, Daemon] = {}

    def find(self, grants: Sequence[Grant]) -> None:
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

    def seat(self, grant: Grant, name: str) -> Seat:  # noqa: ARG002
        told = {"GPULOOM_GRANT": str(grant)}
        uuid = self._uuids[grant.device]
        if grant.share_pct >= 100:
            return Seat(told | {"CUDA_VISIBLE_DEVICES": uuid} | no_daemon(self.mps_dir))
        try:
            daemon = self._daemons.get(grant.device)
            if daemon is None:
                daemon = daemon_for(uuid, self.mps_dir)
                daemon.start()
                self._daemons[grant.device] = daemon
            return Seat(told | daemon.client_environment(grant.share_pct, grant.mem_mib))
        except MpsError as reason:
            raise DeviceError(str(reason)) from reason

    def release(self) -> None:
        for daemon in self._daemons.values():  # by their processes, even if somebody has removed the folder
            with suppress(MpsError):
                daemon.stop()
        self._daemons.clear()
        stop_daemons(self.mps_dir)


def stop_daemons(mps_dir: Path) -> None:
    """End the MPS daemons of a deployment, also of one that was killed."""
    for folder in sorted(mps_dir.glob("*-*")):
        if any(folder.glob("pipe/*")):
            with suppress(MpsError):
                Daemon("none", folder).stop()
