"""One run of a list of jobs on this machine: begin it or go on with it, and give the GPUs back at the end."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from gpuloom.contract.policy import Policy
from gpuloom.engine.events import (
    CutFailed,
    GpuClosed,
    GpuLeft,
    GpuLost,
    JobArrived,
    JobCancelled,
    JobCompleted,
    JobCrashed,
    PolicyReset,
)
from gpuloom.engine.feasible import why_too_large
from gpuloom.engine.log import Header, read
from gpuloom.engine.machine import Engine
from gpuloom.engine.recovery import recover as recover_engine
from gpuloom.engine.seen import SeenInRun
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, describe
from gpuloom.gpus.host.cgroups import Home, NoCgroups
from gpuloom.gpus.host.cpu_driver import CpuDriver
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.homes import find_home, is_home, key_of, leave_home
from gpuloom.gpus.host.noise import Noise
from gpuloom.gpus.host.ownership import Refused
from gpuloom.live.body import LocalBody, Settings
from gpuloom.live.clock import Clock
from gpuloom.live.cpus import CpuDevices
from gpuloom.live.devices import Devices, insist
from gpuloom.live.gpus import GpuDevices
from gpuloom.live.launch import Launcher, limits_of
from gpuloom.live.memory.keeping import Keeper, handed_in, kept_by
from gpuloom.live.recover import recover
from gpuloom.live.store import Run, Store, same_work
from gpuloom.live.timing import Timing
from gpuloom.live.users import accounts_of, closed_to
from gpuloom.policies.registry import make_policy
from gpuloom.work.model import Job, Kind


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks for."""

    jobs: tuple[Job, ...]
    policy: str
    seed: int = 0
    pace: float = 1.0
    gpus: tuple[int, ...] | None = None
    """The host's numbers; None: all."""
    owner_uid: int | None = None
    """Whose work file it is (`users.work_owner`); None: ours."""
    devices: tuple[str, ...] = ()
    """As the command line names them; none: this host's GPUs. The cutter was opened with the same."""
    memory: str | None = None
    """The file of what earlier runs saw, to read when it begins and to add to; None: neither."""


@dataclass(frozen=True, slots=True)
class Outcome:
    job_id: str
    state: str
    """completed, given up, waiting or not submitted."""
    ended_s: float | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    outcomes: tuple[Outcome, ...]
    not_as_found: tuple[str, ...]
    """Why a GPU could not be given back."""
    interrupted: bool
    had_ended: bool = False
    """All its jobs had ended before: nothing was run now."""
    noise: Noise | None = None
    """How steady its devices were before it began."""

    @property
    def all_done(self) -> bool:
        return not self.not_as_found and all(outcome.state == "completed" for outcome in self.outcomes)


def run_jobs(
    wish: Wish,
    store: Store,
    cutter: Cutter,
    settings: Settings,
    on_body: Callable[[LocalBody], None] | None = None,
) -> Result:
    """Run to the end, or until the body (which `on_body` is given) is interrupted. Store and cutter are open."""
    before = store.run()
    _check_users(wish if before is None else before, store)
    if before is not None:
        differs = same_work(before, wish.jobs, wish.policy, wish.seed, wish.pace, wish.owner_uid, wish.devices)
        hosts = () if differs else _found_again(cutter, before)
        if differs is None and wish.gpus is not None and wish.gpus != hosts:
            differs = f"GPUs {','.join(map(str, hosts))}"
        if differs:
            raise InputError(f"{store.folder} holds a run with {differs}; go on with that, or name another folder")
        outcomes = outcomes_of(store, before.jobs)
        if all(outcome.state in ("completed", "given up") for outcome in outcomes):
            # It may have been killed before it did that.
            left = tuple(devices_of(cutter, hosts, store, settings.timing).leave())
            _leave_home(store)
            return Result(outcomes, left, interrupted=False, had_ended=True, noise=before.noise)
    else:
        hosts = _hosts(cutter, wish.gpus)
    devices = devices_of(cutter, hosts, store, settings.timing)
    cutter.notice = settings.notice
    keeper = Keeper(wish.memory, settings.notice)
    settings = kept_by(keeper, settings)
    if before is None:
        try:
            body = _begin(wish, store, devices, _take(devices), settings)
        except BaseException:
            devices.leave()  # nothing has begun, so nothing is to be left
            _leave_home(store)
            raise
    else:
        body = _go_on(before, store, devices, settings)
    if on_body is not None:
        on_body(body)
    body.run()
    keeper.keep(body)
    run = store.run()
    if run is None:
        raise InputError(f"{store.folder}: was removed while its jobs ran")
    left = tuple(devices.leave(lambda: body.interrupts > 2))
    if not body.jobs:
        _leave_home(store)
        _leave_old_homes(store, run.jobs)
    return Result(outcomes_of(store, run.jobs), left, body.closing, noise=run.noise)


def devices_of(cutter: Cutter, hosts: Sequence[int], store: Store, timing: Timing) -> Devices:
    """As the cutter has them: GPUs, or parts of this machine's CPUs."""
    if isinstance(cutter.driver, CpuDriver):
        return CpuDevices(cutter, hosts, cutter.driver)
    return GpuDevices(cutter, hosts, store.mps_dir, timing.share_real_s)


def outcomes_of(store: Store, jobs: Sequence[Job]) -> tuple[Outcome, ...]:
    """What the log says of every job. Who arrived, crashed last and is unknown to the engine was given up."""
    found = {job.id: Outcome(job.id, "not submitted") for job in jobs}
    crashes: dict[str, int] = {}
    trouble: str | None = None
    for entry in read(store.lines(), str(store.log_path)):
        match entry:
            case JobArrived():
                found[entry.job.id] = Outcome(entry.job.id, "waiting")
            case JobCompleted():
                found[entry.job_id] = Outcome(entry.job_id, "completed", entry.at_s, entry.cause)
            case JobCrashed():
                crashes[entry.job_id] = crashes.get(entry.job_id, 0) + 1
                over = crashes[entry.job_id] > MAX_CRASHES
                state, ended_s = ("given up", entry.at_s) if over else ("waiting", None)
                found[entry.job_id] = Outcome(entry.job_id, state, ended_s, entry.cause)
            case JobCancelled():
                found[entry.job_id] = Outcome(entry.job_id, "given up", entry.at_s, entry.cause)
            case CutFailed() | GpuLost() | GpuClosed() | GpuLeft():
                trouble = f"GPU {entry.gpu}: {entry.cause}"
    # Who waits for no reason of its own waits for a GPU.
    return tuple(
        replace(found[job.id], cause=trouble)
        if found[job.id].state == "waiting" and found[job.id].cause is None
        else found[job.id]
        for job in jobs
    )


STILL_THERE = "a run that was killed goes on with --resume, what is served ends with serve down"
MAX_CRASHES = 3
"""A job that crashes more often is given up: the engine's own default, which a replay uses too."""


def check_runnable(jobs: Sequence[Job], path: Path) -> None:
    for job in jobs:
        if not job.command:
            raise InputError(f"{path}: job {job.id} has no command: to be run it needs one, such as python train.py")


def _check_users(asked: Wish | Run, store: Store) -> None:
    """Before anything happens: every job has an account, and that can reach what is its own in the state folder."""
    ours = os.geteuid()
    for account in {*accounts_of(asked.jobs, asked.owner_uid, ours).values()}:
        # The state folder itself will be opened for it.
        if account.uid != ours and (wall := closed_to(account, store.folder.parent)) is not None:
            raise InputError(
                f"{store.folder}: user {account.name} cannot pass through {wall} to the checkpoints of its jobs;"
                " name a --state to which everybody can pass, such as /var/lib/gpuloom/run"
            )


def _check_told(policy: Policy, wish: Wish) -> None:
    """Of what a simulation tells a policy, only the owners' guess of the length can be known here."""
    unknown = policy.told - {"length_s"}
    if unknown:
        raise InputError(
            f"policy {wish.policy} has to be told {', '.join(sorted(unknown))}, which only a simulation can"
        )
    for job in wish.jobs if policy.told else ():
        if job.estimate_s is None:
            raise InputError(f"policy {wish.policy} has to know how long jobs are: job {job.id} has no length")


def _begin(wish: Wish, store: Store, devices: Devices, cluster: Cluster, settings: Settings) -> LocalBody:
    policy = make_policy(wish.policy, cluster, wish.seed)
    _check_told(policy, wish)
    reason = why_too_large(wish.jobs, cluster)
    if reason is None and getattr(policy, "uses_mps", False):
        shared = devices.why_no_sharing(accounts_of(wish.jobs, wish.owner_uid, os.geteuid()))
        reason = None if shared is None else f"policy {wish.policy} has jobs share a device: {shared}"
    if reason is not None:
        raise InputError(reason)
    for job in wish.jobs:
        most = None if job.kind is Kind.ELASTIC else devices.most_of_a_job
        if most is not None and job.gpus > most:
            raise InputError(
                f"job {job.id} asks for {job.gpus} GPUs: on CPU devices a job that is not elastic has {most}"
            )
    launcher = _launcher(wish, store, settings, settings.working_dir)
    _check_limits(wish.jobs, launcher)
    for gpu in cluster.gpus:
        users = devices.users(gpu.index)  # it may be ours since a run that was killed, whose jobs go on
        to_cut = getattr(policy, "cuts", False)
        reason = devices.clear(gpu.index, to_cut) if users is None else f"it is in use by {users}; {STILL_THERE}"
        if reason is not None:
            raise Refused(f"{devices.noun} {devices.hosts[gpu.index]}: {reason}")
    noise = devices.noise()  # before the clock starts
    run = Run(
        wish.policy,
        wish.seed,
        wish.pace,
        time.time(),
        settings.working_dir,
        devices.uuids(),
        wish.jobs,
        asdict(settings.timing),
        os.geteuid() if wish.owner_uid is None else wish.owner_uid,
        wish.devices,
        noise,
        wish.memory,
    )
    described, costs = describe(cluster, run.gpus), settings.timing.told_costs()
    store.begin(run, Header(_written(cluster), wish.policy, wish.seed, cluster=described, costs=costs, freezes=True))
    engine = Engine(cluster, policy, costs=costs, max_crashes=MAX_CRASHES)
    body = LocalBody(engine, devices, store, Clock(run.origin_unix_s, run.pace), launcher, settings)
    earlier = handed_in(run, cluster, settings.notice)
    if earlier is not None:
        body.tell(earlier)
    body.expect(wish.jobs)
    return body


def _go_on(run: Run, store: Store, devices: Devices, settings: Settings) -> LocalBody:
    missing, cluster = devices.take_again(run.gpus)
    for gpu in missing:
        settings.notice(f"{devices.noun} {run.gpus[gpu]} does not answer: it is out of service until it does")
    store.open_log()
    lines = store.lines()
    name, seen = str(store.log_path), SeenInRun()
    found = recover_engine(lines, name, lambda head, on: make_policy(head.policy, on, head.seed), cluster, seen.hear)
    engine = found.engine
    arrived = {entry.job.id for entry in read(lines, name) if isinstance(entry, JobArrived)}
    clock = Clock(run.origin_unix_s, run.pace, not_before_s=engine.state.now_s)
    launcher = _launcher(run, store, settings, run.working_dir)
    _check_limits(run.jobs, launcher)
    body = LocalBody(engine, devices, store, clock, launcher, settings)
    body.seen = seen
    body.expect(job for job in run.jobs if job.id not in arrived)
    if found.reset is not None:
        body.tell(PolicyReset(body.now_s(), found.reset))
    recover(body)
    return body


def _launcher(asked: Wish | Run, store: Store, settings: Settings, working_dir: str) -> Launcher:
    accounts, home = accounts_of(asked.jobs, asked.owner_uid, os.geteuid()), None
    try:
        home = find_home(key_of(store.folder))
    except NoCgroups as reason:
        settings.notice(f"no cgroups: a job whose keeper is killed cannot be run again; {reason}")
    return Launcher(store, home, accounts, working_dir, asked.pace, settings.timing.grace_s)


def _check_limits(jobs: Sequence[Job], launcher: Launcher) -> None:
    for job in jobs:
        limits = limits_of(job)
        if not limits.controllers:
            continue
        reason = "limits need cgroups" if launcher.home is None else launcher.home.why_no_limit(limits)
        if reason is not None:
            raise InputError(f"job {job.id}: {reason}; leave cpus, host_memory and pids out, or see gpuloom doctor")


def _leave_home(store: Store) -> None:
    """Nobody lives there any more."""
    with suppress(NoCgroups, OSError):
        leave_home(find_home(key_of(store.folder)))


def _leave_old_homes(store: Store, jobs: Sequence[Job]) -> None:
    """Of runners before this one, that were started elsewhere."""
    last = [store.last_launch(job.id) for job in jobs]
    for home in {launch.group.path.parent for launch in last if launch is not None and launch.group is not None}:
        if is_home(home):  # and not an instance of a CPU device, which may be there for others
            leave_home(Home(home))


def _take(devices: Devices) -> Cluster:
    cluster = devices.take()
    if not len(cluster):
        raise InputError("this host has no GPU to run jobs on; --device cpu runs them on its CPUs")
    return cluster


def _hosts(cutter: Cutter, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    there = range(insist(cutter.count))
    for gpu in wanted or ():
        if gpu not in there:
            raise InputError(
                f"--gpus {gpu}: this host has {len(there)} {cutter.noun}s; accepted are 0 to {len(there) - 1}"
            )
    return tuple(there) if wanted is None else wanted


def _found_again(cutter: Cutter, run: Run) -> tuple[int, ...]:
    """Where the run's GPUs are now: numbers may change with a reboot, UUIDs do not.

    One that does not answer gets a number that is nobody's, and is looked for by its UUID again. Not if none does.
    """
    numbers: dict[str, int] = {}
    count = insist(cutter.count)
    for host in range(count):
        with suppress(StepFailed):
            numbers[insist(partial(cutter.driver.uuid, host))] = host
    missing = [uuid for uuid in run.gpus if uuid not in numbers]
    if len(missing) == len(run.gpus):
        which = ", ".join(missing)
        raise InputError(f"the run was begun on {which}, which this host no longer has, or which does not answer")
    free = iter([host for host in range(count + len(missing)) if host not in numbers.values()])
    return tuple(numbers[uuid] if uuid in numbers else next(free) for uuid in run.gpus)


def _written(cluster: Cluster) -> str:
    """As people write a cluster, and `explain` reads it."""
    kinds = groupby(gpu.model.name for gpu in cluster.gpus)
    return ",".join(f"{len(list(same))}x{name}" for name, same in kinds)
