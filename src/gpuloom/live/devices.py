"""This machine's devices for the jobs of one run: take them, cut them, give them back. GPUs (`gpus`) or CPUs (`cpus`).

Knows nothing of jobs but their grants. The engine's index of a device is its position among those of the run.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, TypeVar

from gpuloom.gpus.cluster import Cluster, Gpu
from gpuloom.gpus.grant import Device, Grant, Grants
from gpuloom.gpus.host.cgroups import NO_LIMITS, Group, Home, Limits
from gpuloom.gpus.host.cutter import AGAIN_S, PATIENCE_S, CutOutcome, Cutter
from gpuloom.gpus.host.driver import GpuState, StepFailed
from gpuloom.gpus.host.health import Health, what_is_new
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.nvml import Code
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.model import Instance, Layout
from gpuloom.live.users import Account
from gpuloom.work.model import Job

TRIES = 3
"""How often the driver is asked before an error is believed: what one bad answer prevents, the next call may do."""

T = TypeVar("T")


class DeviceError(Exception):
    """A device cannot be given to a job; the text says why."""


class NotThereError(DeviceError):
    """The device does not have this instance, though it was cut."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job's processes run."""

    environment: Mapping[str, str]
    """What names its device and share to them."""
    limits: Limits = NO_LIMITS
    """Of its group: the job's own, and those of its share."""
    home: Home | None = None
    """In which its group has to be; None: where the runner keeps those."""
    workers: tuple["Worker", ...] = ()
    """One for each grant."""
    batch: int | None = None
    """Of all of them together; None leaves it to the job."""


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """What came of a cut."""

    layout: Layout | None
    """After it; None if the device does not answer."""
    reason: str | None = None
    """Why it is not the target, if so."""
    in_use: bool = False
    """It may be the target in a moment: the driver says that it is in use."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a device is to blame for what happened on it."""

    why: str
    is_gone: bool = False
    """Nobody can be at work there any more; else those who are may go on."""


class Worker(TypedDict):
    """One device of an elastic job, as it is told of it."""

    device: str
    """Its UUID."""
    env: dict[str, str]
    """What names it to a process that is to use no other."""


def lives_beside(job: Job, grants: Grants) -> bool:
    """Whether the job is not inside one device: it has several, or may have, while it runs."""
    return job.in_place or len(grants) > 1


def batch_of(grants: Grants) -> int | None:
    """What its grants say of the batch, taken together; None where one leaves it open."""
    batches = [grant.batch for grant in grants]
    return None if None in batches else sum(filter(None, batches))


def insist(ask: Callable[[], T]) -> T:
    """The driver's answer, asked for again if it is an error: what it says now and then is no reason to give up."""
    for _ in range(TRIES - 1):
        with suppress(StepFailed, Refused):
            return ask()
    return ask()


def uuids_of(cutter: Cutter, hosts: Sequence[int]) -> tuple[str, ...]:
    return tuple(insist(partial(cutter.look, host)).uuid for host in hosts)


class Devices(ABC):
    switched_early = False
    """Whether a device that is to be cut is made one that can be before anything runs: that may not work."""
    most_of_a_job: int | None = None
    """So many a job that is not elastic can have at once; None: as many as it likes."""

    def __init__(self, cutter: Cutter, hosts: Sequence[int]) -> None:
        self.cutter = cutter
        self.hosts = tuple(hosts)
        """The host's number of each device, by the engine's."""
        self._known: dict[int, str] = {}
        """The UUID of each, since it was taken."""
        self._health: dict[int, Health] = {}

    def take(self) -> Cluster:
        """Make all the devices ours; Refused if one is not to be had."""
        states = [self._taken(host) for host in self.hosts]
        for gpu, state in enumerate(states):
            self._known[gpu] = state.uuid
            self.accept(gpu)
        return Cluster(tuple(Gpu(index, 0, state.model) for index, state in enumerate(states)))

    def take_again(self, uuids: Sequence[str]) -> tuple[list[int], Cluster | None]:
        """Those of a run that goes on, by their UUIDs: who is not there now, and lost until it is; all, if all are."""
        missing, gpus = [], []
        for gpu, uuid in enumerate(uuids):
            self._known[gpu] = uuid
            try:
                host = insist(partial(self.host, gpu))
            except StepFailed:
                missing.append(gpu)
                continue
            gpus.append(Gpu(gpu, 0, self._taken(host).model))
            self.accept(gpu)
        return missing, None if missing else Cluster(tuple(gpus))

    def host(self, gpu: int) -> int:
        """The number of this very device now: a driver that is loaded anew gives others. StepFailed if it is gone."""
        driver, known, number = self.cutter.driver, self._known.get(gpu), self.hosts[gpu]
        if known is None:
            return number
        silent: StepFailed | None = None
        for other in sorted(range(driver.count()), key=lambda other: other != number):  # where it was, first
            try:
                if driver.uuid(other) != known:
                    continue
            except StepFailed as failure:
                silent = failure if other == number else silent
                continue
            if other != number:
                self.hosts = (*self.hosts[:gpu], other, *self.hosts[gpu + 1 :])
                self.cutter.forget_models()
            return other
        raise silent or StepFailed(f"{self.noun} {number}, {known}, is not there any more", Code.GPU_IS_LOST)

    def _taken(self, host: int) -> GpuState:
        try:
            return insist(partial(self.cutter.take, host))
        except Refused as reason:
            raise Refused(f"{self.noun} {host}: {reason}") from reason

    @property
    def noun(self) -> str:
        return self.cutter.noun

    def uuids(self) -> tuple[str, ...]:
        return uuids_of(self.cutter, self.hosts)

    def users(self, gpu: int) -> str | None:
        """Who is on it, in words; None if nobody is."""
        return ", ".join(map(str, insist(lambda: self.cutter.look(self.host(gpu))).processes)) or None

    def accept(self, gpu: int) -> None:
        """As healthy as it is now: only what comes on top of that counts against it."""
        with suppress(StepFailed):
            self._health[gpu] = self.cutter.driver.health(self.host(gpu))

    def trouble(self, gpu: int) -> Trouble | None:
        """What the device says against itself since it was accepted; None if nothing."""
        try:
            now = insist(lambda: self.cutter.driver.health(self.host(gpu)))
        except StepFailed as reason:
            return Trouble(str(reason), is_gone=reason.code == Code.GPU_IS_LOST)
        why = what_is_new(self._health.get(gpu, Health()), now)
        return None if why is None else Trouble(why)

    def clear(self, gpu: int, to_cut: bool = False) -> str | None:
        """Make a device uncut; why it cannot be, if so. Its MIG mode stays until somebody needs it changed.

        `to_cut`: it has to be one that can be cut. Whether that takes a reset the driver tells only when it is tried.
        """
        try:
            host = self.host(gpu)
            state = self.cutter.look(host)
            early = to_cut and self.switched_early and (state.model.mig or not state.told)
            cut = self.cutter.apply(host, (), keep_mig=state.mig or early, patience_s=0)
            if cut.remedy is not None and not state.mig:
                return (
                    "MIG is off, and to switch it on takes a reset, which a run does not wait for. It is left as"
                    f" it was found: run `nvidia-smi -i {host} -mig 1`, then {cut.remedy}, then start this again"
                    " (a policy that uses GPUs whole needs none)"
                )
            return cut.reason
        except (Refused, StepFailed) as reason:
            return str(reason)

    def look(self, gpu: int) -> Layout | None:
        """The layout now, half-made instances removed or completed; None if the device does not answer."""
        with suppress(Refused, StepFailed):
            state = self.cutter.look(self.host(gpu))
            if state.occupied == state.layout:
                return state.layout
            return self._apply(gpu, state.occupied if self.cutter.driver.mends_in_place else state.layout).layout
        return None

    def cut(self, gpu: int, target: Layout, patience_s: float = 0.0) -> CutAnswer:
        """For so long it is tried again while the driver says that it is in use; 0 for who has others to look after."""
        for device in [device for device in self.shared() if device[0] == gpu and device[1] not in target]:
            self.stop_sharing(device)
        try:
            cut = self._apply(gpu, target, patience_s)
        except (Refused, StepFailed) as reason:
            return CutAnswer(self.look(gpu), str(reason))
        return CutAnswer(cut.layout, cut.reason, cut.in_use)

    def _apply(self, gpu: int, target: Layout, patience_s: float = 0.0) -> CutOutcome:
        """An uncut one keeps the MIG mode it has: whoever uses it whole switches it off, and nobody else needs to."""
        host = self.host(gpu)
        return self.cutter.apply(host, target, keep_mig=self.cutter.look(host).mig, patience_s=patience_s)

    def leave(self, hurry: Callable[[], bool] = lambda: False) -> list[str]:
        """Give every device back as it was found; the reasons where that failed. `hurry`: nothing is waited for."""
        for device in self.shared():
            self.stop_sharing(device)
        self.stop_strays(())
        until_s = time.monotonic() + PATIENCE_S
        problems = [self._leave(gpu, lambda: hurry() or time.monotonic() >= until_s) for gpu in range(len(self.hosts))]
        return [problem for problem in problems if problem is not None]

    def _leave(self, gpu: int, late: Callable[[], bool]) -> str | None:
        """Nobody is there any more who would be kept waiting, and whoever else is at work may be done in a moment."""
        tries = 0
        while True:
            reason, code = self._try_to_leave(gpu)
            if reason is None:
                return None
            tries += 1
            if tries >= TRIES:
                if late() or code == Code.GPU_IS_LOST or not self.cutter.driver.lingers:
                    return f"{self.noun} {self.hosts[gpu]} is not as it was found: {reason}"
                if tries == TRIES:
                    self.cutter.notice(
                        f"{self.noun} {self.hosts[gpu]} cannot be given back yet: {reason}; waiting for it"
                    )
                time.sleep(AGAIN_S)

    def _try_to_leave(self, gpu: int) -> tuple[str | None, int | None]:
        """Why not, if not, and the driver's code for it."""
        try:
            host = self.host(gpu)
            return None if self.cutter.found(host) is None else self.cutter.leave(host, patience_s=0).reason, None
        except StepFailed as failure:
            return str(failure), failure.code
        except Refused as refused:
            return str(refused), getattr(refused.__cause__, "code", None)

    def _uuid(self, grant: Grant) -> str:
        """Asked for each time: somebody else may have taken away what was there."""
        return self._find(grant.gpu, grant.instance)

    def _find(self, gpu: int, instance: Instance | None) -> str:
        try:
            host = self.host(gpu)
            state = self.cutter.look(host)
            if instance is None:
                if state.mig:  # what can be cut cannot be used whole
                    cut = self.cutter.apply(host, (), patience_s=0)
                    if cut.reason is not None:
                        raise DeviceError(f"{self.noun} {host} cannot be used whole: {cut.reason}")
                return state.uuid
            if instance not in state.uuids:
                raise NotThereError(f"{self.noun} {host} has no {instance} any more")
            return state.uuids[instance]
        except (Refused, StepFailed) as reason:
            raise DeviceError(str(reason)) from reason

    # ---- what GPUs and CPUs do differently ---------------------------------------------------------------------

    @abstractmethod
    def place(
        self,
        grants: Grants,
        own: Limits = NO_LIMITS,
        share_pct: float | None = None,
        *,
        beside: bool = False,
        uid: int | None = None,
    ) -> Place:
        """For a job with these grants and limits; `share_pct` instead of the grant's, in a probe. Or DeviceError.

        `beside`: see `lives_beside`; `uid`: whose job it is.
        """

    @abstractmethod
    def workers(self, grants: Grants) -> tuple[Worker, ...]:
        """What an elastic job is told of these grants; or DeviceError."""

    @abstractmethod
    def why_no_sharing(self, accounts: Mapping[str, Account]) -> str | None:
        """Why jobs of these users cannot share a device, known before they try."""

    def reshare(self, group: Group | None, own: Limits, grant: Grant, share_pct: float | None) -> bool:  # noqa: ARG002
        """Give one that runs another share; False if it has to be launched again. `own`: the job's own limits."""
        return False

    def resize(self, group: Group | None, own: Limits, grants: Grants, left: Grants = ()) -> None:  # noqa: B027
        """A job that lives beside the devices, in this group, has these now, and no longer those. Or DeviceError."""

    def cpus(self, gpu: int) -> float | None:  # noqa: ARG002
        """Whose time is counted: how much of it there is in a second; None if nobody counts."""
        return None

    def adopt(self, grant: Grant, group: Group | None, own: Limits) -> None:  # noqa: B027
        """Somebody has this share already, from before the runner was started again."""

    def noise(self) -> Noise | None:
        """How steady they are, measured while nobody uses them; None where nobody can tell."""
        return None

    def homes(self) -> list[Home]:
        """Where groups of jobs may live, beside the runner's own."""
        return []

    def shared(self) -> list[Device]:
        """Devices for which something has to be done when nobody shares them any more."""
        return []

    def stop_sharing(self, device: Device, *, broken: bool = False) -> None:  # noqa: B027
        """Nobody shares this device any more; `broken`: nobody can."""

    def why_no_share(self, grant: Grant) -> str | None:  # noqa: ARG002
        """Why what shares this device cannot work there; None if nothing speaks against it."""
        return None

    def broken_shares(self) -> dict[Device, str]:
        """Shared devices on which nobody can work any more, and why, as was found out since the last look."""
        return {}

    def before_kill(self, grant: Grant, pids: Sequence[int]) -> None:  # noqa: B027
        """These processes of one who shares are about to be killed."""

    def stop_strays(self, keep: Sequence[Device]) -> None:  # noqa: B027
        """End what a killed runner has left for sharing, but for devices that are still shared."""
