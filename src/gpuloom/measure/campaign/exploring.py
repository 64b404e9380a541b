"""Which run is next where not all are to be made: what the explorer advises. Pure: it follows from plan and journal.

One copy is run in one place, once. Workloads that are asked about one by one take turns; of a set the explorer says
whose run is worth most. Whoever goes on after a kill gets the advice that there would have been.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gpuloom.errors import InputError
from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Arrangement, Way
from gpuloom.measure.campaign.order import Ahead, Next, Run, Turns, spent_s
from gpuloom.measure.explore.advise import Advice, advise, advise_set
from gpuloom.measure.explore.goals import Deadline, Goal, MostWork, OneCopy
from gpuloom.measure.explore.places import places_of, slices_of
from gpuloom.measure.explore.wanted import Aim, Exploring, Wanted
from gpuloom.measure.figures import figures
from gpuloom.measure.plan import Plan
from gpuloom.measure.results import Outcome
from gpuloom.measure.sets import orders


@dataclass(frozen=True, slots=True)
class Explorer:
    exploring: Exploring
    model: GpuModel
    arrangements: tuple[Arrangement, ...]
    """One copy each: where it may be run."""

    @classmethod
    def of(cls, exploring: Exploring, model: GpuModel, arrangements: Sequence[Arrangement]) -> "Explorer":
        """The uncut device is a place unless the largest instance, which is as much, is there too."""
        single = [one for one in arrangements if one.alone]
        if exploring.wanted.aim is Aim.SET:
            base = {place.name for place in slices_of(model)}
            single = [one for one in single if one.seats[0].place in base]
        full = any(place.cut and place.part >= 1 for place in places_of((one.seats[0] for one in single), model))
        found = cls(exploring, model, tuple(one for one in single if not (full and one.way is Way.WHOLE)))
        if exploring.wanted.aim is Aim.SET and not orders(model, len(found.together)):
            raise InputError(
                f"for {exploring.wanted.words}: {model.name} has no layout for {len(found.together)} copies"
            )
        return found

    @property
    def names(self) -> list[str]:
        """Of the workloads, in the plan's order."""
        return list(dict.fromkeys(one.seats[0].workload for one in self.arrangements))

    @property
    def together(self) -> tuple[str, ...]:
        return self.exploring.wanted.together or tuple(self.names)

    def next(self, done: Sequence[Run]) -> Next | None:
        """None: as many runs as were wished for are made."""
        to_go = self.to_go(done)
        if not any(to_go.values()):
            return None
        name, advice = self._of_set(done, to_go) if self.exploring.wanted.aim is Aim.SET else self._of_one(done, to_go)
        chosen = next(one for one in self._of(name) if one.seats[0].place == advice.place.name)
        return Next(max((run.number for run in done), default=-1) + 1, chosen, 0, advice.why)

    def _of_one(self, done: Sequence[Run], to_go: dict[str, int]) -> tuple[str, Advice]:
        """Of whoever has had the fewest runs."""
        name = min((name for name in self.names if to_go[name]), key=lambda name: len(self._tried(name, done)))
        places = places_of((one.seats[0] for one in self._of(name)), self.model)
        found = figures(copy for run in done for copy in run.copies)
        goal, failed = goal_of(self.exploring.wanted), self._failed(name, done)
        advice = advise(found, self.model, name, goal, places, to_go[name], failed)
        assert advice is not None, "there are runs to go, so there is a place"
        return name, advice

    def _of_set(self, done: Sequence[Run], to_go: dict[str, int]) -> tuple[str, Advice]:
        found = figures(copy for run in done for copy in run.copies)
        there = {name: {one.seats[0].place for one in self._of(name)} - self._tried(name, done) for name in to_go}
        return advise_set(found, self.model, self.together, {name: left for name, left in there.items() if left})

    def to_go(self, done: Sequence[Run]) -> dict[str, int]:
        """Runs of each workload that may still be made. Those of a set are anybody's until all are made."""
        tried = {name: len(self._tried(name, done)) for name in self.names}
        there = {name: len(self._of(name)) for name in self.names}
        most = {name: self.exploring.most(there[name]) for name in self.names}
        if self.exploring.wanted.aim is not Aim.SET:
            return {name: max(most[name] - tried[name], 0) for name in self.names}
        left = sum(most.values()) - sum(tried.values())
        return {name: there[name] - tried[name] if left > 0 else 0 for name in self.names}

    def ahead(self, done: Sequence[Run], budget_s: float | None) -> Ahead:
        most = sum(self.exploring.most(len(self._of(name))) for name in self.names)
        runs = max(most - sum(len(self._tried(name, done)) for name in self.names), 0)
        if not done:
            return Ahead(runs, budget_s, at_most=True)
        seconds = runs * spent_s(done) / len(done)
        left_s = seconds if budget_s is None else max(min(seconds, budget_s - spent_s(done)), 0.0)
        return Ahead(runs, left_s, at_most=True)

    def told(self, done: Sequence[Run]) -> dict[str, object]:
        """For the metadata: what was asked, which places there are, and which of them were not run."""
        tried = {run.arrangement for run in done}
        return {
            "for": self.exploring.wanted.words,
            "places": [asdict(one.seats[0]) for one in self.arrangements],
            "not_run": [asdict(one.seats[0]) for one in self.arrangements if one not in tried],
            "says": "answers about places that were not run are predicted from those that were, not measured",
        }

    def _of(self, name: str) -> list[Arrangement]:
        return [one for one in self.arrangements if one.seats[0].workload == name]

    def _tried(self, name: str, done: Sequence[Run]) -> set[str]:
        """Places."""
        own = self._of(name)
        return {run.arrangement.seats[0].place for run in done if run.arrangement in own}

    def _failed(self, name: str, done: Sequence[Run]) -> set[str]:
        """Places in which it ran and nothing was learned. Out of memory is something."""
        told = {Outcome.OK, Outcome.OUT_OF_MEMORY}
        own = self._of(name)
        return {
            run.arrangement.seats[0].place
            for run in done
            if run.arrangement in own and not {copy.outcome for copy in run.copies} & told
        }


def order_of(plan: Plan, model: GpuModel, arrangements: tuple[Arrangement, ...]) -> Turns | Explorer:
    if plan.exploring is None:
        return Turns(arrangements, plan.repeats, plan.seed)
    return Explorer.of(plan.exploring, model, arrangements)


def goal_of(wanted: Wanted) -> Goal:
    """Of one workload."""
    if wanted.step_ms is not None:
        return Deadline(wanted.step_ms)
    return OneCopy() if wanted.aim is Aim.ONE_COPY else MostWork()
