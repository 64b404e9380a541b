"""One run: cut, place, start all copies, watch them until enough is known, stop them, and see that nobody is left.

**The barrier.** All copies are started together, and they need different times to import and to load. So nobody is made
to wait: what counts is the time in which all are past their own warm-up and still running (`steps`), and a run goes on
until every copy has enough steps in it, or for so many seconds from when all have done their first step. The first copy
that ends by itself ends the run, since afterwards the others would be fewer.
"""

import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.cgroups import Limits
from gpuloom.gpus.host.cutter import PATIENCE_S
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.files import read_anyones
from gpuloom.gpus.host.processes import ProcessId, born_ticks
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.live.devices import TRIES, DeviceError, Devices, Place
from gpuloom.live.jobs import LiveJob
from gpuloom.live.keeper import NOT_WRITTEN
from gpuloom.live.launch import Launcher, Left, kill, left_of, limits_of
from gpuloom.live.store import Launch
from gpuloom.live.users import Account
from gpuloom.measure.arrangement import Way
from gpuloom.measure.campaign.counting import Counting, Watched
from gpuloom.measure.campaign.judge import Ended, Seen, by_the_right_clock, has_stepped, is_over, judge, window_of
from gpuloom.measure.campaign.listen import LOOK_S, Listener, listener_for
from gpuloom.measure.campaign.order import Next
from gpuloom.measure.plan import Bounds, Telling, Workload, place
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.steps import goes_back, is_enough
from gpuloom.work.model import HostNeeds, Job

CHECK_S = 0.1
"""Between two looks whether there are enough steps, which is more work than to hear them."""
DIE_S = 60.0
"""So long after SIGKILL somebody may take."""
LAST_WORDS, LOG_MAX_MIB = 8192, 64
MOST_LOOKS = 100
"""To read what a copy that has ended said last."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What runs are made with."""

    devices: Devices
    model: GpuModel
    launcher: Launcher
    account: Account
    workloads: Mapping[str, Workload]
    bounds: Bounds
    counting: Counting
    interrupts: Callable[[], int]
    """How often somebody has asked to stop."""


@dataclass(slots=True)
class Running:
    """One copy."""

    job: LiveJob
    listener: Listener
    outputs: tuple[Path, ...]
    watched: Watched
    seen: Seen = field(default_factory=Seen)

    @property
    def launch(self) -> Launch:
        return self.job.launch

    def hear(self) -> bool:
        """Whether there was anything."""
        news = self.listener.hear()
        self.seen.refused, self.seen.odd = self.listener.trouble, self.listener.odd
        self.seen.back = self.seen.back or goes_back(self.seen.heard, news)
        heard = self.seen.heard
        for one in news if self.seen.back is None else ():
            if heard and one.step <= heard[-1].step:
                continue
            if heard and one.at_s <= heard[-1].at_s:  # seen in the same look: one block
                heard.pop()
            heard.append(one)
        return bool(news)


def job_id(number: int, copy: int) -> str:
    """What a copy is called in the state folder."""
    return f"r{number:05}-{copy}"


class OneRun:
    def __init__(self, bench: Bench, chosen: Next) -> None:
        self._bench, self._chosen = bench, chosen
        self._copies: list[Running] = []
        self._stopped_s = 0.0
        self._looked_s = 0.0
        self._no_room = False
        self._cut: Layout = ()

    def measure(self) -> tuple[Copy, ...] | None:
        """Its rows; None if it was interrupted; StepFailed if something failed that it was made with. Nobody of it is
        left afterwards, whatever happens."""
        try:
            self._begin()
            self._watch()
            self._stopped_s = time.monotonic()
            self._count(self._stopped_s)
        finally:
            free_s = self._bench.counting.let_go()
            self._end()
            time.sleep(max(0.0, free_s - time.monotonic()))  # mostly the copies have needed longer to end
        if self._bench.interrupts():
            return None
        rows = self._rows()
        if any(row.outcome is not Outcome.OK for row in rows):
            self._insist_that_it_was_not_the_bench()
        return rows

    def _insist_that_it_was_not_the_bench(self) -> None:
        """A disk without room and a device that is gone are no result of whoever failed of them."""
        bench = self._bench
        if self._no_room or not bench.launcher.store.has_room():
            what = f"{bench.launcher.store.folder}: no room on the disk"
        elif all(bench.devices.look(0) != self._cut for _ in range(TRIES)):
            what = f"{bench.devices.noun} {bench.devices.hosts[0]} does not answer, or is no longer cut as it was"
        else:
            return
        raise StepFailed(f"{what}, so run {self._chosen.number} does not count: when that is mended, ask for the same")

    # ---- beginning -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        bench, arrangement = self._bench, self._chosen.arrangement
        instances = place(arrangement, bench.model)
        target = self._cut = tuple(sorted({instance for instance in instances if instance is not None}))
        for _ in range(TRIES):
            answer = bench.devices.cut(0, target, PATIENCE_S)
            if answer.reason is None:
                break
        else:
            raise StepFailed(f"{bench.devices.noun} {bench.devices.hosts[0]} cannot be cut for a run: {answer.reason}")
        for number, (seat, instance) in enumerate(zip(arrangement.seats, instances, strict=True)):
            grant = Grant(0, instance, seat.share_pct if arrangement.way is Way.SHARED else 100.0)
            self._copies.append(self._start(number, bench.workloads[seat.workload], grant))

    def _start(self, number: int, workload: Workload, grant: Grant) -> Running:
        # What is read line by line is not to wait in a buffer.
        more = {"PYTHONUNBUFFERED": "1"} if workload.telling is Telling.OUTPUT else {}
        store = self._bench.launcher.store

        def listener(launch: Launch, outputs: Sequence[Path]) -> Listener:
            return listener_for(workload, launch, outputs, store.checkpoint_dir(job_id(self._chosen.number, number)))

        def environment(granted: Place) -> dict[str, str]:
            return more | dict(workload.environment) | dict(granted.environment)

        return self._launch(number, workload.command, environment, grant, listener)

    def _launch(
        self,
        number: int,
        command: tuple[str, ...],
        environment: Callable[[Place], dict[str, str]],
        grant: Grant,
        listener: Callable[[Launch, Sequence[Path]], Listener],
    ) -> Running:
        """Copy `number` of the run: this command with this grant."""
        bench = self._bench
        job = Job(job_id(self._chosen.number, number), command=command, host=HostNeeds(log_max_mib=LOG_MAX_MIB))
        granted = self._place(grant, limits_of(job))
        launcher = replace(bench.launcher, accounts={job.id: bench.account})
        launch, child = launcher.start(job, 1, replace(granted, environment=environment(granted)), None)
        folder = bench.launcher.store.job_dir(job.id)
        outputs = (folder / "out.log", folder / "err.log")
        live = LiveJob(job.id, (grant,), launch, ProcessId(child.pid, born_ticks(child.pid) or 0), child)
        uuid = granted.environment.get("CUDA_VISIBLE_DEVICES", "")
        watched = bench.counting.watch(
            launch.group, uuid, grant.instance, sole=len(self._chosen.arrangement.seats) == 1
        )
        return Running(live, listener(launch, outputs), outputs, watched)

    def _place(self, grant: Grant, own: Limits) -> Place:
        for _ in range(TRIES - 1):
            with suppress(DeviceError):
                return self._bench.devices.place((grant,), own, uid=self._bench.account.uid)
        return self._bench.devices.place((grant,), own, uid=self._bench.account.uid)

    # ---- meanwhile -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        bounds, begun_s = self._bench.bounds, time.monotonic()
        all_since_s: float | None = None
        check_s = 0.0
        while not self._bench.interrupts():
            now_s = time.monotonic()
            for copy in self._copies:
                copy.hear()
                if copy.job.keeper_has_gone():
                    self._note_end(copy, now_s)
            if now_s - self._looked_s >= self._bench.counting.every_s:
                self._count(now_s)
            seen = [copy.seen for copy in self._copies]
            if any(map(is_over, seen)):
                return
            if all(map(has_stepped, seen)):
                all_since_s = now_s if all_since_s is None else all_since_s
                if now_s - all_since_s >= bounds.seconds:
                    return
                if now_s >= check_s:
                    if is_enough([by_the_right_clock(one).heard for one in seen], now_s, bounds.steps):
                        return
                    check_s = max(now_s + CHECK_S, now_s + 20 * (time.monotonic() - now_s))
            elif now_s - begun_s >= bounds.patience_s:
                for one in seen:
                    one.waited = True
                return
            time.sleep(LOOK_S)

    def _count(self, now_s: float) -> None:
        self._looked_s = now_s
        self._bench.counting.look(now_s)
        for copy in self._copies:
            copy.watched.look(now_s)

    def _note_end(self, copy: Running, now_s: float) -> None:
        if copy.seen.ended is not None:
            return
        copy.watched.look(now_s)
        for _ in range(MOST_LOOKS):
            if not copy.hear():
                break
        told = copy.launch.exit()
        not_written = copy.job.child is not None and copy.job.child.poll() == NOT_WRITTEN
        self._no_room = self._no_room or not_written or (told is not None and not told.room)
        words = "\n".join(filter(None, [*map(_end_of, copy.outputs), copy.launch.trouble() if told is None else None]))
        copy.seen.ended = Ended(None if told is None else told.code, now_s, copy.launch.oom_kills() > 0, words)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Ask those that still run, kill who does not hear, and wait until there is nobody."""
        for copy in self._copies:
            if copy.job.keeper is not None:
                copy.job.keeper.signal(signal.SIGTERM)
                copy.job.keeper.signal(signal.SIGCONT)  # one that is stopped hears nothing else
        kill_s = time.monotonic() + self._bench.bounds.grace_s
        left = list(self._copies)
        while left:
            now_s, hurry = time.monotonic(), self._bench.interrupts() > 1
            left = [copy for copy in left if not _is_gone(copy)]
            for copy in left if hurry or now_s >= kill_s else ():
                copy.seen.deaf = copy.seen.deaf or not copy.job.keeper_has_gone()
                kill(copy.launch)
            if left and now_s >= kill_s + DIE_S:
                raise StepFailed("the processes of a run do not die, so its device is not free: look for them by hand")
            if left:
                time.sleep(LOOK_S)
        for device in self._bench.devices.shared():
            self._bench.devices.stop_sharing(device)
        for copy in self._copies:
            clear(self._bench, copy.job.id)

    def _rows(self) -> tuple[Copy, ...]:
        return self._judged([copy.seen for copy in self._copies], self._stopped_s)

    def _judged(self, told: Sequence[Seen], stopped_s: float) -> tuple[Copy, ...]:
        seen = [by_the_right_clock(one) for one in told]
        within = window_of(seen, stopped_s)
        late_s = [
            LOOK_S if one.misclocked else copy.listener.late_s for one, copy in zip(seen, self._copies, strict=True)
        ]
        rows = judge(self._chosen, seen, within, stopped_s, self._bench.bounds.patience_s, late_s)
        counted = self._bench.counting.figures(within)
        return tuple(
            replace(row, **copy.watched.figures(within), **counted)
            for row, copy in zip(rows, self._copies, strict=True)
        )


def _is_gone(copy: Running) -> bool:
    if not copy.job.keeper_has_gone():
        return False
    match left_of(copy.launch):
        case Left.UNKNOWN:
            raise StepFailed(
                "the keeper of a copy was killed, and without cgroups nobody can tell whether it has ended"
            )
        case left:
            return left is Left.NOBODY


def clear(bench: Bench, job: str) -> None:
    """What a copy has saved is nobody's checkpoint: it may be large. Its output stays."""
    with suppress(OSError):
        shutil.rmtree(bench.launcher.store.checkpoint_dir(job))


def _end_of(path: Path) -> str:
    """The end of an output, in which the job may have written anything."""
    with suppress(OSError):
        data = read_anyones(path, LOG_MAX_MIB << 20)
        return data[-LAST_WORDS:].decode(errors="replace")
    return ""
