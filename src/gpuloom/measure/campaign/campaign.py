"""A campaign: run what is next until all is known, the budget is spent or somebody asks to stop; give the device back.

The state folder holds what was asked, the journal, the table, and each copy's output. Whoever is killed leaves copies
that run and a device that is cut: the next campaign in the same folder ends those first, and counts no run twice, since
a run is in the journal only when it is over.

asked.json      what the campaign was begun with
journal.jsonl   a line a run
measured.csv    the rows; measured.json says what they were measured on, and with
jobs/, mps/     as of a run of jobs (`live.store`): each copy's output and report, the MPS daemons
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from gpuloom.errors import InputError
from gpuloom.gpus.host.cgroups import Home, NoCgroups
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.driver import StepFailed
from gpuloom.gpus.host.files import write_whole
from gpuloom.gpus.host.homes import find_home, key_of, leave_home
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.layouts import written
from gpuloom.gpus.model import GpuModel
from gpuloom.live.devices import TRIES, DeviceError, insist, uuids_of
from gpuloom.live.launch import Launcher
from gpuloom.live.run import devices_of
from gpuloom.live.store import Store
from gpuloom.live.timing import Timing
from gpuloom.live.users import Account, account_of, closed_to
from gpuloom.measure.arrangement import Arrangement, Way
from gpuloom.measure.campaign.asked import (
    NAME,
    Asked,
    code_in,
    device_facts,
    goes_on_with,
    read_asked,
    why_not_the_same,
    write_asked,
)
from gpuloom.measure.campaign.counting import counting_on
from gpuloom.measure.campaign.exploring import order_of
from gpuloom.measure.campaign.journal import Journal
from gpuloom.measure.campaign.left import end_what_is_left
from gpuloom.measure.campaign.order import Ahead, Next, Run, is_affordable, spent_s
from gpuloom.measure.campaign.run import Bench, OneRun
from gpuloom.measure.measured import CSV, METADATA, Stop, model_as
from gpuloom.measure.plan import LeftOut, Plan, Ways, arrangements, place
from gpuloom.measure.results import Copy
from gpuloom.measure.table import VERSION, to_csv

JOURNAL = "journal.jsonl"
STILL_THERE = "gpuloom measure takes only idle devices"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks for."""

    plan: Plan
    working_dir: str
    owner_uid: int
    """In whose name the commands are run."""
    gpu: int | None = None
    """The host's number; None: its only one, or that of before."""
    devices: tuple[str, ...] = ()
    """A CPU device, as the command line names it. The cutter was opened with the same."""
    pace: float = 1.0
    """Told to the commands, for rehearsals."""


@dataclass(frozen=True, slots=True)
class Result:
    rows: tuple[Copy, ...]
    metadata: dict[str, object]
    stop: Stop
    not_as_found: tuple[str, ...]
    """Why a device could not be given back."""


@dataclass(slots=True)
class Watcher:
    """Who looks on."""

    begins: Callable[[Next, Ahead], None] = lambda *_: None
    ended: Callable[[Run, Ahead], None] = lambda *_: None
    warns: Callable[[str], None] = lambda *_: None
    interrupts: int = 0
    """How often somebody has asked to stop; may be raised by a signal handler."""


class Campaign:
    def __init__(
        self,
        wish: Wish,
        store: Store,
        cutter: Cutter,
        watcher: Watcher,
        run_of: Callable[[Bench, Next], OneRun] = OneRun,
    ) -> None:
        """Store and cutter are open. `run_of`: commands tell their steps, servers are asked."""
        self._wish, self._store, self._cutter, self._watcher = wish, store, cutter, watcher
        self._run_of = run_of
        before = read_asked(store.folder)
        self._host = _host(cutter, wish, before)
        if before is not None:
            reason = why_not_the_same(before, wish.plan, wish.devices, wish.working_dir, wish.owner_uid, wish.pace)
            if reason is not None:
                raise InputError(
                    f"{store.folder} holds measurements of {reason}; go on with that, or name another --state"
                )
        self._before = before
        self._account = _account(wish, store)
        self._devices = devices_of(cutter, (self._host,), store, Timing())
        self.model = insist(lambda: cutter.look(self._host)).model
        self._arrangements, self._left_out = self._what_there_is()
        self._order = order_of(wish.plan, self.model, self._arrangements)
        self._arrangements = self._order.arrangements

    def _what_there_is(self) -> tuple[tuple[Arrangement, ...], tuple[LeftOut, ...]]:
        plan = self._wish.plan
        every, out = arrangements(plan, self.model)
        reason = self._devices.why_no_sharing({"": self._account})
        shared = [one for one in every if one.way is Way.SHARED]
        if reason is None or not shared:
            return every, out
        if plan.shares_pct is not None or set(plan.ways) == {Ways.SHARES}:
            raise InputError(f"shares of the device cannot be measured: {reason}")
        skipped = tuple(LeftOut(one.seats[0].workload, one.name, reason) for one in shared)
        return tuple(one for one in every if one.way is not Way.SHARED), (*out, *skipped)

    # ---- from begin to end -----------------------------------------------------------------------------------------

    def run(self) -> Result:
        if not self._arrangements:
            why = f": {self._left_out[0].why}" if self._left_out else ""
            raise InputError(f"nothing of this plan can be measured on {self.model.name}{why}")
        with Journal(self._store.folder / JOURNAL) as journal:
            self._check(journal)
            home = self._home()
            launcher = Launcher(
                self._store, home, {}, self._wish.working_dir, self._wish.pace, self._wish.plan.bounds.grace_s
            )
            try:
                asked, stop = self._measure(journal, launcher)
            except (OSError, StepFailed, DeviceError) as error:
                if self._store.is_there():
                    raise
                gone = f"{self._store.folder}: this state folder was removed or moved away meanwhile"
                raise StepFailed(f"{gone}, and what was measured with it: put it back and ask for the same") from error
            finally:
                left = tuple(self._devices.leave())
                if home is not None:
                    leave_home(home)
            metadata = self._metadata(asked, journal.runs, stop)
            self._write(journal.runs, metadata)
            return Result(_rows(journal.runs), metadata, stop, left)

    def _check(self, journal: Journal) -> None:
        """Whose runs these are, and that they are as they were."""
        if self._before is None and journal.runs:
            raise InputError(
                f"{journal.path} has {len(journal.runs)} runs, and nobody can tell of what: {NAME} is not beside it; "
                "put it back, or name another --state"
            )
        journal.check(self.model)

    def _measure(self, journal: Journal, launcher: Launcher) -> tuple[Asked, Stop]:
        end_what_is_left(self._store, launcher, self._devices, {run.number for run in journal.runs})
        chosen = self._next(journal.runs)
        if self._before is not None and (chosen is None or not self._affords(chosen, journal.runs)):
            return self._before, self._end if chosen is None else Stop.BUDGET
        self._take()
        plan = self._wish.plan
        most_s = plan.bounds.patience_s + plan.bounds.seconds
        with counting_on(self._cutter, self._host, most_s) as counting:
            number = 0 if chosen is None else chosen.number
            asked = self._begin(counting.says) if self._before is None else self._go_on(self._before, number)
            bench = Bench(
                self._devices,
                self.model,
                launcher,
                self._account,
                {workload.name: workload for workload in plan.workloads},
                plan.bounds,
                counting,
                lambda: self._watcher.interrupts,
            )
            while chosen is not None and not self._watcher.interrupts:
                if not self._affords(chosen, journal.runs):
                    return asked, Stop.BUDGET
                self._watcher.begins(chosen, self._ahead(journal.runs))
                began_s = time.monotonic()
                copies = self._run_of(bench, chosen).measure()
                if copies is None:
                    break
                seconds = time.monotonic() - began_s
                run = Run(chosen.number, chosen.arrangement, chosen.repetition, seconds, copies)
                journal.write(run)
                self._write(journal.runs, self._metadata(asked, journal.runs, None))
                self._watcher.ended(run, self._ahead(journal.runs))
                chosen = self._next(journal.runs)
        return asked, Stop.INTERRUPTED if chosen is not None else self._end

    def _take(self) -> None:
        """The device is ours, whole and uncut; Refused if it is not to be had."""
        noun, host = self._devices.noun, self._host
        self._devices.take()
        users = self._devices.users(0)  # it may be ours since somebody was killed, whose processes go on
        if users:
            raise Refused(f"{noun} {host}: it is in use by {users}; {STILL_THERE}")
        for _ in range(TRIES):
            reason = self._devices.clear(0)
            if reason is None:
                return
        raise Refused(f"{noun} {host}: {reason}")

    def _begin(self, counters: str | None) -> Asked:
        wish = self._wish
        asked = Asked(
            wish.plan,
            device_facts(self._cutter, self._host),
            wish.devices,
            wish.working_dir,
            wish.owner_uid,
            wish.pace,
            time.time(),
            code_in(wish.working_dir),
            self._devices.noise(),
            len(os.sched_getaffinity(0)),
            counters,
        )
        write_asked(self._store.folder, asked)
        return asked

    def _go_on(self, before: Asked, number: int) -> Asked:
        """Most commits change nothing that is measured, so another one is no reason to refuse; but it is told."""
        asked = goes_on_with(before, code_in(self._wish.working_dir), number)
        if asked == before:
            return asked
        write_asked(self._store.folder, asked)
        if asked.later_code and asked.last_code != before.last_code:
            was, now = before.last_code or "no repository", asked.last_code or "no repository"
            self._watcher.warns(
                f"the runs so far were made with {was}, those from run {number} on are made with {now}: if the program"
                f" does other work now, their figures do not belong in one table; name another --state then"
            )
        return asked

    def _home(self) -> Home | None:
        """None: without cgroups, which only GPUs can do without."""
        with suppress(NoCgroups):
            return find_home(key_of(self._store.folder))
        return None

    @property
    def _end(self) -> Stop:
        return Stop.KNOWN if self._wish.plan.exploring is None else Stop.ENOUGH

    def _next(self, runs: Sequence[Run]) -> Next | None:
        return self._order.next(runs)

    def _affords(self, chosen: Next, runs: Sequence[Run]) -> bool:
        return is_affordable(chosen, runs, self._wish.plan.budget_s)

    def _ahead(self, runs: Sequence[Run]) -> Ahead:
        return self._order.ahead(runs, self._wish.plan.budget_s)

    # ---- what is written -------------------------------------------------------------------------------------------

    def _write(self, runs: Sequence[Run], metadata: dict[str, object]) -> None:
        folder = self._store.folder
        write_whole(folder / METADATA, json.dumps(metadata, indent=2) + "\n")
        write_whole(folder / CSV, to_csv(_rows(runs)))

    def _metadata(self, asked: Asked, runs: Sequence[Run], stop: Stop | None) -> dict[str, object]:
        found = asdict(asked)
        now = asdict(self._wish.plan)
        plan = found.pop("plan") | {name: now[name] for name in ("repeats", "budget_s", "exploring")}
        return {
            "version": VERSION,
            "gpuloom": found.pop("version"),
            **found,
            "gpu": None if self._wish.devices else self._host,
            "model": model_as(self.model),
            "stop": None if stop is None else stop.value,
            "runs": len(runs),
            "spent_s": spent_s(runs),
            "plan": plan,
            "arrangements": [_described(one, self.model, runs) for one in self._arrangements],
            "left_out": [asdict(one) for one in self._left_out],
            "explored": self._order.told(runs),
        }


def _described(arrangement: Arrangement, model: GpuModel, runs: Sequence[Run]) -> dict[str, object]:
    instances = place(arrangement, model)
    layout = tuple(sorted({instance for instance in instances if instance is not None}))
    return {
        "name": arrangement.name,
        "way": arrangement.way.value,
        "workloads": [seat.workload for seat in arrangement.seats],
        "layout": written(layout),
        "instances": [None if instance is None else str(instance) for instance in instances],
        "runs": sum(run.arrangement == arrangement for run in runs),
    }


def _rows(runs: Sequence[Run]) -> tuple[Copy, ...]:
    return tuple(copy for run in runs for copy in run.copies)


def _host(cutter: Cutter, wish: Wish, before: Asked | None) -> int:
    """The host's number of the device; InputError unless it is clear which one that is."""
    count = insist(cutter.count)
    if wish.devices and count != 1:
        raise InputError(f"--device {' '.join(wish.devices)} is {count} devices; a campaign measures one, such as cpu")
    if not count:
        raise InputError("this host has no GPU to measure on; --device cpu measures on its CPUs")
    if wish.gpu is not None and wish.gpu >= count:
        raise InputError(f"--gpu {wish.gpu}: this host has {count} GPUs; accepted are 0 to {count - 1}")
    if before is None:
        if wish.gpu is None and count > 1:
            raise InputError(f"this host has {count} GPUs: say which one with --gpu, 0 to {count - 1}")
        return wish.gpu or 0
    # Numbers may change with a reboot, UUIDs do not.
    there = [host for host, uuid in enumerate(uuids_of(cutter, range(count))) if uuid == before.device.uuid]
    if not there or wish.gpu not in (None, there[0]):
        here = "which this host no longer has" if not there else f"which is GPU {there[0]}"
        raise InputError(f"the measurements were begun on {before.device.uuid}, {here}; name another --state")
    return there[0]


def _account(wish: Wish, store: Store) -> Account:
    account = account_of(None, wish.owner_uid, os.geteuid())
    if account.uid != os.geteuid() and (wall := closed_to(account, store.folder.parent)) is not None:
        raise InputError(
            f"{store.folder}: user {account.name} cannot pass through {wall} to what is its own; name a --state to"
            " which everybody can pass, such as /var/lib/gpuloom/measure"
        )
    return account
