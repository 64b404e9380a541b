"""CPU devices for the jobs of a run: a job's control group is in that of its instance; a share is a quota of its own.

A quota can be changed while the job runs, so no share costs a restart, and the kernel counts who has had how much time.
A job with several devices, or one that may get more while it runs, lives beside them with what they have together.
"""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.host.cgroups import NO_LIMITS, Group, Home, Limits
from gpuloom.gpus.host.cpu import CpuDevice, environment_on, limits_on
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.noise import Noise
from gpuloom.live.devices import DeviceError, Devices, Place, Worker, batch_of
from gpuloom.live.users import Account


class CpuDevices(Devices):
    most_of_a_job = 1

    def __init__(self, cutter: Cutter, hosts: Sequence[int], driver: CpuDriver) -> None:
        super().__init__(cutter, hosts)
        self._driver = driver

    def place(
        self,
        grants: Grants,
        own: Limits = NO_LIMITS,
        share_pct: float | None = None,
        *,
        beside: bool = False,
        uid: int | None = None,  # noqa: ARG002 (the kernel asks nobody whose it is)
    ) -> Place:
        if beside:
            return self._place_beside(grants, own)
        grant = grants[0]
        self._uuid(grant)  # it is there; or, of a whole one, nobody has it cut any more
        try:
            home = self._driver.home_for(self.hosts[grant.gpu], grant.instance)
        except StepFailed as reason:
            raise DeviceError(str(reason)) from reason
        # Not for its share, which can change while it runs: a probe has to see how many threads it can use.
        environment = environment_on(self._device(grant.gpu), grant.instance, self._cpus(grant))
        limits = self._limits(own, grant, share_pct)
        return Place(environment, limits, home, self.workers(grants), batch_of(grants))

    def _place_beside(self, grants: Grants, own: Limits) -> Place:
        """Its processes can be in one group only, none of the devices' then: it has what they have together."""
        workers = self.workers(grants)
        environment = workers[0]["env"] | {
            "GPULOOM_DEVICE": ",".join(worker["device"] for worker in workers),
            "GPULOOM_PROFILE": ",".join("whole" for _ in workers),
        }
        return Place(environment, self._together(own, grants), None, workers, batch_of(grants))

    def workers(self, grants: Grants) -> tuple[Worker, ...]:
        found = []
        for grant in grants:
            environment = environment_on(self._device(grant.gpu), grant.instance, self._cpus(grant))
            environment.pop("GPULOOM_PROFILE")
            found.append(Worker(device=self._uuid(grant), env=environment))
        return tuple(found)

    def resize(self, group: Group | None, own: Limits, grants: Grants, left: Grants = ()) -> None:
        if group is None:
            return
        try:
            for grant in grants:
                self._driver.lend(self.hosts[grant.gpu], group.path)
            limits = self._together(own, grants)
            group.limit(replace(limits, mem_mib=None))
            self._limit_memory(group, limits)
            for grant in left:
                self._driver.lend(self.hosts[grant.gpu], group.path, back=True)
        except (StepFailed, OSError) as reason:
            raise DeviceError(str(reason)) from reason

    def _limit_memory(self, group: Group, limits: Limits) -> None:
        """Version 1 of cgroups refuses a limit below what is in use; then it keeps the one before until it leaves."""
        try:
            group.limit(Limits(mem_mib=limits.mem_mib))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise

    def _together(self, own: Limits, grants: Grants) -> Limits:
        """Of a group beside these devices, which it has whole."""
        devices = [self._device(grant.gpu) for grant in grants]
        pinned = any(self._driver.devices[host].pinned for host in self.hosts)
        cores = tuple(sorted({core for device in devices for core in device.cores})) if pinned else None
        limits = own.within(sum(device.cpus for device in devices), sum(device.model.mem_mib for device in devices))
        return replace(limits, cores=cores)

    def why_no_sharing(self, accounts: Mapping[str, Account]) -> str | None:  # noqa: ARG002
        return None

    def reshare(self, group: Group | None, own: Limits, grant: Grant, share_pct: float | None) -> bool:
        if group is None:
            return False
        cpus = self._limits(own, grant, share_pct).cpus
        try:
            if cpus is None:
                group.lift_cpus()
            else:
                group.limit(Limits(cpus))
        except OSError:  # it has just ended
            return False
        return True

    def adopt(self, grant: Grant, group: Group | None, own: Limits) -> None:
        """A probe may have been under way."""
        self.reshare(group, own, grant, None)

    def noise(self) -> Noise:
        """Of the first: they are parts of one machine."""
        return self._driver.noise(self.hosts[0])

    def homes(self) -> list[Home]:
        return [home for host in self.hosts for home in self._driver.homes(host)]

    def cpus(self, gpu: int) -> float:
        return self._device(gpu).cpus

    def _device(self, gpu: int) -> CpuDevice:
        return self._driver.devices[self.hosts[gpu]]

    def _cpus(self, grant: Grant) -> float:
        """Of what it has a share of, or has alone."""
        return self._device(grant.gpu).cpus_of(None if grant.instance is None else grant.instance.profile)

    def _limits(self, own: Limits, grant: Grant, share_pct: float | None) -> Limits:
        """Of its group."""
        pct = grant.share_pct if share_pct is None else share_pct
        return limits_on(self._cpus(grant), pct, grant.mem_mib, own)
