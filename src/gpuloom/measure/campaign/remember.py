"""What a campaign measured, as rows of this machine's memory: how fast one copy alone is on each slice and the whole.

A workload is remembered by its name, if somebody gave it one, which a job's `workload` can be; and by its command,
for a job with the same command in the same folder. Not by a command that its environment makes another one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuloom.measure.arrangement import Way
from gpuloom.measure.campaign.asked import Asked
from gpuloom.measure.plan import Telling, Workload
from gpuloom.measure.results import Copy, Outcome
from gpuloom.perf.slices.earlier import REPORTED, WHOLE, Rate, Row, Task


def remembered(copies: Iterable[Copy], asked: Asked, *, named: bool) -> list[Row]:
    """`named`: the workloads' names are their owner's, not made up from commands."""
    alone = [copy for copy in copies if copy.copies == 1 and copy.way in (Way.WHOLE, Way.CUT)]
    commands = Counter(workload.command for workload in asked.plan.workloads)
    rows = []
    for workload in asked.plan.workloads:
        mine = [copy for copy in alone if copy.seat.workload == workload.name]
        rates, too_small = _rates(mine), _too_small(mine)
        own = commands[workload.command] == 1 and not workload.environment
        rows += [
            Row(
                task.workload,
                asked.device.model,
                f"measure {asked.begun_unix_s!r} {asked.device.uuid}",
                asked.begun_unix_s,
                task.folder,
                True,
                asked.device.driver,
                _unit(workload),
                asked.pace,
                rates,
                too_small,
            )
            for task in _tasks(workload, asked.working_dir, named=named, own_command=own)
            if rates or too_small
        ]
    return rows


def _tasks(workload: Workload, folder: str, *, named: bool, own_command: bool) -> list[Task]:
    by_name = [Task(workload.name, None)] if named else []
    return by_name + ([Task(" ".join(workload.command), folder)] if own_command else [])


def _rates(copies: Iterable[Copy]) -> dict[str, Rate]:
    """Every run counts once, however many steps it had."""
    found: dict[str, list[float]] = {}
    for copy in copies:
        if copy.outcome is Outcome.OK and copy.steps_per_s:
            found.setdefault(copy.seat.profile or WHOLE, []).append(copy.steps_per_s)
    return {place: Rate(sum(rates) / len(rates), len(rates)) for place, rates in found.items()}


def _too_small(copies: Sequence[Copy]) -> tuple[str, ...]:
    fits = {copy.seat.profile for copy in copies if copy.outcome is Outcome.OK}
    lacks = {copy.seat.profile for copy in copies if copy.outcome is Outcome.OUT_OF_MEMORY}
    return tuple(sorted(profile for profile in lacks - fits if profile is not None))


def _unit(workload: Workload) -> str:
    return REPORTED if workload.telling is Telling.REPORT else f"{workload.telling}: {workload.where}"
