"""From what was measured so far to the run to make next: the explorer as a campaign asks it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuloom.gpus.model import GpuModel
from gpuloom.measure.explore.belief import RUN_SPREAD, Belief
from gpuloom.measure.explore.goals import Deadline, Goal
from gpuloom.measure.explore.next_run import AHEAD, next_run, opening
from gpuloom.measure.explore.places import Place, slices_of
from gpuloom.measure.explore.prior import Prior, learn, scenarios
from gpuloom.measure.figures import Figure, alone
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.share_figures import load_share_figures


@dataclass(frozen=True, slots=True)
class Advice:
    place: Place
    """Run one copy there."""
    worth_pct: float | None
    """By how much less the choice is then expected to cost; None: an opening, which is not thought through."""


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


def advise(
    found: Sequence[Figure],
    model: GpuModel,
    workload: str,
    goal: Goal,
    places: Sequence[Place] = (),
    runs_left: int = AHEAD,
) -> Advice | None:
    """The run to make next; None if it ran everywhere."""
    belief = believed(found, model, workload, places)
    left = [at for at in range(len(belief.places)) if at not in belief.ran]
    if not left:
        return None
    if isinstance(goal, Deadline):
        belief = belief.asked(goal.step_ms)
    elif len(belief.ran) < AHEAD <= len(belief.ran) + runs_left and len(belief.places) >= AHEAD:
        known = list(load_figures().workloads.values())
        first = opening(scenarios(known, load_share_figures(), belief.places), belief.places, goal)
        fresh = [at for at in first if at in left]
        if fresh:
            return Advice(belief.places[fresh[0]], None)
    run = next_run(belief, goal, left, runs_left)
    return Advice(belief.places[run.place], run.worth_pct)
