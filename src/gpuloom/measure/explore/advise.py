"""From what was measured so far to the run to make next: the explorer as a campaign asks it."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.arrangement import Seat
from gpuloom.measure.explore.belief import RUN_SPREAD, Belief
from gpuloom.measure.explore.goals import Deadline, Goal
from gpuloom.measure.explore.next_run import AHEAD, next_run
from gpuloom.measure.explore.opening import opening, strangers
from gpuloom.measure.explore.places import Place, places_of, slices_of
from gpuloom.measure.explore.prior import Prior, learn
from gpuloom.measure.explore.set_runs import next_of_set, think
from gpuloom.measure.figures import Figure, alone
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.share_figures import load_share_figures


@dataclass(frozen=True, slots=True)
class Advice:
    place: Place
    """Run one copy there."""
    worth_pct: float | None
    """By how much less the choice is then expected to cost; None: an opening, which is not thought through."""

    @property
    def why(self) -> str:
        if self.worth_pct is None:
            return "to begin with, as runs there served the known workloads best"
        if self.worth_pct < 0.05:
            return "no run is expected to change the choice any more"
        return f"with it, and perhaps one more, the choice is expected to be {self.worth_pct:.1f} % better"


@lru_cache(maxsize=1)
def shipped_prior() -> Prior:
    """Learned from the figures that ship."""
    return learn(list(load_figures().workloads.values()), load_share_figures())


def believed(found: Sequence[Figure], model: GpuModel, workload: str, places: Sequence[Place] = ()) -> Belief:
    """What ships, and on it what was measured of this workload alone. Without places: the base profiles."""
    places = tuple(places) or slices_of(model)
    prior = shipped_prior().at(places, elsewhere=model.name != load_figures().gpu)
    belief = Belief(places, prior)
    solo = alone(found, workload)
    for at, place in enumerate(places):
        figure = solo.get(place.name)
        if figure is not None and figure.out_of_memory:
            belief = belief.ran_out(at)
        elif figure is not None and figure.step is not None:
            spread = RUN_SPREAD / figure.repetitions**0.5 if figure.step.error is None else figure.step.error
            belief = replace(replace(belief, spread=spread).saw([at], [figure.step.mean]), spread=belief.spread)
    return belief


def believed_of(found: Sequence[Figure], model: GpuModel, seats: Mapping[str, Sequence[Seat]]) -> dict[str, Belief]:
    """Of each workload that was not run in all of these seats, which are its own."""
    return {name: believed(found, model, name, places_of(own, model)) for name, own in seats.items()}


def advise(
    found: Sequence[Figure],
    model: GpuModel,
    workload: str,
    goal: Goal,
    places: Sequence[Place] = (),
    runs_left: int = AHEAD,
    failed: Container[str] = (),
) -> Advice | None:
    """The run to make next; None if it ran everywhere. `failed`: places in which it ran and nothing can be learned."""
    belief = believed(found, model, workload, places)
    left = [at for at, place in enumerate(belief.places) if at not in belief.ran and place.name not in failed]
    if not left:
        return None
    if isinstance(goal, Deadline):
        belief = belief.asked(goal.step_ms)
    elif len(belief.ran) < AHEAD <= len(belief.ran) + runs_left and len(belief.places) >= AHEAD:
        fresh = [at for at in _opening(belief.places, model.name != load_figures().gpu, goal) if at in left]
        if fresh:
            return Advice(belief.places[fresh[0]], None)
    run = next_run(belief, goal, left, runs_left)
    return Advice(belief.places[run.place], run.worth_pct)


def advise_set(
    found: Sequence[Figure], model: GpuModel, together: Sequence[str], among: Mapping[str, Container[str]]
) -> tuple[str, Advice]:
    """Whose run is next, and where. `among`: for whoever has places left, which; there is somebody."""
    places, names = slices_of(model), list(dict.fromkeys(together))
    beliefs = {name: believed(found, model, name) for name in names}
    thoughts = [
        think(beliefs[name], [at for at, place in enumerate(places) if place.name in among.get(name, ())])
        for name in names
    ]
    fresh = [at for at, name in enumerate(names) if name in among and not beliefs[name].ran]
    seats = [names.index(name) for name in together]
    run = next_of_set(model, [place.name for place in places], thoughts, fresh, seats)
    return names[run.who], Advice(places[run.place], 100 * run.gain / len(together))


@lru_cache(maxsize=8)
def _opening(places: tuple[Place, ...], elsewhere: bool, goal: Goal) -> tuple[int, ...]:
    known = strangers(list(load_figures().workloads.values()), load_share_figures(), places, elsewhere)
    return opening(known, goal)
