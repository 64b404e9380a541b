"""What runs and campaigns before this one saw of a workload, and how several of them are put together.

A row is what one of them saw. Rows need not agree: code and drivers change, and what one calls a step may be an epoch
to another. So what counts is how fast a workload is on one profile against another, and no rate is ever held against
one that a job of this run reports. Knows no file (`earlier_file` has its format) and no clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, log
from typing import NamedTuple

from gpuloom.gpus.model import GpuModel
from gpuloom.perf.slices.memory import Seen, fingerprint
from gpuloom.work.model import Job

WHOLE = "whole"
"""In place of a profile: the uncut device."""
REPORTED = "report"
"""The unit of steps that a job tells by `gpuloom.train.report`."""

Terms = tuple[str, str | None, float]
"""Unit, driver, pace."""


class Rate(NamedTuple):
    """How fast it was on one profile: a mean."""

    steps_per_s: float
    """Of real seconds."""
    observations: int


class Task(NamedTuple):
    """What makes two jobs of different runs the same work."""

    workload: str
    """Its name, or else its command."""
    folder: str | None
    """In which the command is run, since train.py is another file elsewhere; None of a name, which holds everywhere."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one run, or one campaign of measurements, saw of one workload on one model of device."""

    workload: str
    model: str
    source: str
    """Which run or campaign."""
    at_unix_s: float
    """Of its latest observation."""
    folder: str | None = None
    """As `Task` has it."""
    measured: bool = False
    """By `gpuloom measure`."""
    driver: str | None = None
    """Its version; of a CPU device, the kernel's."""
    unit: str = REPORTED
    """What a step is: how the workload told them."""
    pace: float = 1.0
    """Of a rehearsal, in which some jobs hurry and some do not."""
    rates: Mapping[str, Rate] = field(default_factory=dict)
    """By profile, or WHOLE."""
    too_small: tuple[str, ...] = ()
    """Profiles on which it ran out of memory."""

    @property
    def task(self) -> Task:
        return Task(self.workload, self.folder)

    @property
    def terms(self) -> Terms:
        """Under which rates of two rows can be told to mean the same without comparing them."""
        return self.unit, self.driver, self.pace

    @property
    def newness(self) -> tuple[float, int, str]:
        """Of two rows of the same source the newer one has all that the other has."""
        return self.at_unix_s, sum(rate.observations for rate in self.rates.values()), self.source


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a policy is handed of one workload on one model of device."""

    workload: str
    """Its fingerprint."""
    model: str
    rates: Mapping[str, float]
    """Steps a second by profile, all in one unit, which need not be that of this run's reports."""
    too_small_mib: int | None = None
    """With so much memory it ran out of it; None: nobody saw that."""
    measured: bool = False
    """Some of it by `gpuloom measure`."""
    ran: bool = False
    """Some of it by runs."""
    age_s: float | None = None
    """Of the newest of it, when this run began; None where time does not pass."""

    @property
    def seen(self) -> dict[str, Seen]:
        """A profile counts as one report, however many there were: code, driver and data may have changed since."""
        return {profile: Seen(1, rate, 0.0) for profile, rate in self.rates.items()}

    @property
    def by_whom(self) -> str:
        if self.measured and self.ran:
            return "gpuloom measure and earlier runs"
        return "gpuloom measure" if self.measured else "an earlier run"


def task_of(job: Job, folder: str) -> Task | None:
    """`folder`: where the run's commands are run. None: nothing says what it is."""
    name = fingerprint(job)
    return None if name is None else Task(name, None if job.workload else folder)


def earlier_of(
    rows: Iterable[Row], jobs: Iterable[Job], models: Iterable[GpuModel], folder: str, now_unix_s: float | None = None
) -> tuple[Earlier, ...]:
    """What the rows say of these jobs on these models, and nothing else; in the order of the jobs."""
    known: dict[tuple[Task, str], list[Row]] = {}
    for row in rows:
        known.setdefault((row.task, row.model), []).append(row)
    by_name = {model.name: model for model in models}
    tasks: dict[str, Task] = {}
    for task in (task_of(job, folder) for job in jobs):
        if task is not None:  # a policy cannot tell a name from a command that reads the same: the first counts
            tasks.setdefault(task.workload, task)
    found = [
        put_together(known[task, name], model, now_unix_s)
        for task in tasks.values()
        for name, model in by_name.items()
        if (task, name) in known
    ]
    return tuple(one for one in found if one.rates or one.too_small_mib is not None)


def put_together(rows: Iterable[Row], model: GpuModel, now_unix_s: float | None = None) -> Earlier:
    """Rows of one workload on one model, the newest first.

    An older row is brought to the level of the newer ones by the profiles that both have, and then adds to them. One
    that shares none counts as it is if it was seen under the same terms, else not at all. Whether a profile has the
    memory is what the newest says that tried it.
    """
    newest_first = sorted(rows, key=lambda row: row.newness, reverse=True)
    rates: dict[str, Rate] = {}
    fits: dict[str, bool] = {}
    levels: dict[Terms, float] = {}
    """By terms: what brings such rates to the level of the newest."""
    used: list[Row] = []
    for row in newest_first:
        told = {profile: rate for profile, rate in _on(model, row.rates).items() if fits.setdefault(profile, True)}
        small = [profile for profile in row.too_small if profile in model.by_name and profile not in fits]
        fits |= dict.fromkeys(small, False)
        factor = _factor(told, rates) or levels.get(row.terms) or (None if rates else 1.0)
        if told and factor is not None:
            levels.setdefault(row.terms, factor)
            for profile, rate in told.items():
                scaled = rate._replace(steps_per_s=rate.steps_per_s * factor)
                rates[profile] = _mean(rates[profile], scaled) if profile in rates else scaled
        if small or (told and factor is not None):
            used.append(row)
    small_mib = [model.by_name[profile].mem_mib for profile, enough in fits.items() if not enough]
    at_unix_s = max([row.at_unix_s for row in used], default=0.0)
    return Earlier(
        newest_first[0].workload,
        model.name,
        {profile: rate.steps_per_s for profile, rate in sorted(rates.items())},
        max(small_mib, default=None),
        any(row.measured for row in used),
        any(not row.measured for row in used),
        None if now_unix_s is None else max(0.0, now_unix_s - at_unix_s),
    )


def _on(model: GpuModel, rates: Mapping[str, Rate]) -> dict[str, Rate]:
    """By profiles of this model. The uncut device is one of them where that has all of its SMs."""
    found = {profile: rate for profile, rate in rates.items() if profile in model.by_name}
    largest = max(model.profiles, key=lambda profile: profile.sms, default=None)
    if WHOLE in rates and largest is not None and largest.sms == model.sms and largest.name not in found:
        found[largest.name] = rates[WHOLE]
    return found


def _factor(told: Mapping[str, Rate], known: Mapping[str, Rate]) -> float | None:
    """From one level to the other, by the profiles that both have; None if they have none."""
    both = [log(known[profile].steps_per_s / rate.steps_per_s) for profile, rate in told.items() if profile in known]
    return exp(sum(both) / len(both)) if both else None


def _mean(one: Rate, other: Rate) -> Rate:
    number = one.observations + other.observations
    part = other.observations / number
    return Rate(one.steps_per_s + (other.steps_per_s - one.steps_per_s) * part, number)
