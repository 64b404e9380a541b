"""The cut pool: jobs that take one GPU or a part of it, and how many GPUs are worth being cut for them.

To the dynamic programme that counts GPUs the pool is one more row: V(g) is the most that these jobs are worth on g
GPUs, weighted as all others are. It is found by going from what is there: jobs that wait are put where that is worth
most, beside those who sit there or in the place of those who count least; GPU by GPU the pool then grows, with moves
that pay, and shrinks, with those who sat there put elsewhere. Each GPU's best cut, and who gets which slice of it, are
found exactly. Who moves or leaves loses part of its worth, so that who sits well stays. Who is alone on a GPU has it
whole and uncut.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate

import numpy as np

from gpuloom.contract.plan import Reason
from gpuloom.contract.view import JobView, View
from gpuloom.gpus.grant import Grant, Grants
from gpuloom.gpus.model import GpuModel, Layout
from gpuloom.gpus.steps import nearest
from gpuloom.perf.arrays import Floats, Ints
from gpuloom.policies.assignment import best_assignment
from gpuloom.policies.ones.steady import whole_profile
from gpuloom.policies.slicing import seats_of, show, slices_by_count

MOVES = 4
"""From GPU to GPU of the pool in one round, at most, for each number of GPUs."""

LEAST_GAIN = 1e-6
"""What a change is to bring at least: more than rounding does beside the worth of a claim."""

Speeds = Callable[[JobView, GpuModel], Mapping[str, float]]
"""Of a job on each profile that is for it, relative to the whole GPU."""
Lost = Callable[[JobView, float], float]
"""The part of a job's worth at this speed that it loses if it has to start again, elsewhere or later."""
Groups = dict[int, tuple[str, ...]]
"""Who sits on each GPU of the pool, in order of arrival; nobody on none."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What a job is worth on each profile of a GPU model."""

    stays: Mapping[str, float]
    moves: Mapping[str, float]
    """If it has to start again there."""


@dataclass(frozen=True, slots=True)
class Seating:
    value: float
    groups: Groups


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """On a GPU for one more job."""

    gain: float
    negative: int
    """Less than 0 by the number of the GPU: of two that gain as much the first is the larger."""
    group: tuple[str, ...]
    """Who sits there then."""


NOWHERE = Seat(LEAST_GAIN, 0, ())


@dataclass(frozen=True, slots=True)
class Placed:
    """What becomes of the pool."""

    gpus: frozenset[int]
    layouts: dict[int, Layout]
    grants: dict[str, Grants]
    reasons: list[Reason]


NOBODY = Placed(frozenset(), {}, {}, [])


class Pool:
    """Of the jobs with these weights. Made for one round.

    To those with a claim it is worth so much to be seated at all, whatever the slice.
    """

    def __init__(
        self,
        view: View,
        weights: Mapping[str, float],
        speeds: Speeds,
        lost: Lost,
        exponent: float,
        claims: Mapping[str, float] | None = None,
    ) -> None:
        self._view, self._weights, self._speeds, self._lost, self._exponent = view, weights, speeds, lost, exponent
        self._claims = claims or {}
        self._order = {job_id: number for number, job_id in enumerate(weights)}
        self._worths: dict[tuple[str, str], Worth] = {}
        self._cuts: dict[tuple[object, ...], tuple[float, tuple[str, ...]] | None] = {}
        self._kinds: dict[str, tuple[object, ...]] = {}
        self._known_most: dict[tuple[str, str, str, int], float] = {}
        self._known_prices: dict[tuple[int, tuple[str, ...]], list[tuple[float, tuple[str, ...]]]] = {}
        self._candidates = [gpu for gpu, seen in view.gpus.items() if not seen.lost]
        self._models = [
            *{view.cluster.gpus[gpu].model.name: view.cluster.gpus[gpu].model for gpu in self._candidates}.values()
        ]
        self._seatings = self._search()

    @property
    def jobs(self) -> Container[str]:
        return self._weights

    def row(self) -> tuple[Ints, Floats]:
        """Numbers of cut GPUs, from 0 on, and what each is worth."""
        values = [seating.value for seating in self._seatings]
        return np.arange(len(values)), np.array(values)

    def place(self, count: int, free: Sequence[int]) -> Placed:
        """On so many GPUs: those of the pool, and of the free ones the first that are like those looked for.

        If the free ones will not do, because those that are cannot be cut, on as many as can be had.
        """
        for seating in reversed(self._seatings[: count + 1]):
            groups = self._on_free(seating.groups, free)
            if groups is not None:
                return self._placed(groups, len(seating.groups))
        raise AssertionError("no GPU at all can always be had")

    # ---- how many GPUs -----------------------------------------------------------------------------------------

    def _search(self) -> list[Seating]:
        """The best that was found on 0, 1, 2… GPUs, as far as more of them are of use."""
        groups, waiting = self._as_it_is()
        waiting = self._seat_in(groups, waiting, [*groups])
        for _ in range(MOVES):
            if not self._move(groups, [*groups]):
                break
        found = [self._seating(groups)]
        others = [gpu for gpu in self._candidates if gpu not in groups]
        grown, useless = dict(groups), set[str]()
        for gpu in others:
            model = self._view.cluster.gpus[gpu].model.name
            if model in useless:
                continue
            # Who waits was let wait by the GPUs so far: only the new one can change that.
            waiting = self._seat_in(grown, waiting, [gpu])
            for _ in range(MOVES):
                if not self._move(grown, [gpu]):
                    break
            if gpu in grown:
                found.append(self._seating(grown))
            else:
                useless.add(model)
        while groups:
            victim = min(groups, key=lambda gpu: (self._value(gpu, groups[gpu]), gpu))
            homeless = groups.pop(victim)
            self._seat_in(groups, homeless, [*groups])
            found.insert(0, self._seating(groups))
        return found

    def _as_it_is(self) -> tuple[Groups, list[str]]:
        """Who has a place for itself stays there; who no longer can, because more is known of it, waits."""
        groups: Groups = {}
        waiting: list[str] = []
        for job_id in self._weights:
            gpu = next((grant.gpu for grant in self._view.jobs[job_id].grants), None)
            if gpu is not None and gpu in self._candidates and self._fits(gpu, (*groups.get(gpu, ()), job_id)):
                groups[gpu] = (*groups.get(gpu, ()), job_id)
            else:
                waiting.append(job_id)
        return groups, waiting

    def _outside(self, groups: Groups) -> list[str]:
        inside = {job_id for group in groups.values() for job_id in group}
        return [job_id for job_id in self._weights if job_id not in inside]

    def _seat_in(self, groups: Groups, waiting: Iterable[str], gpus: Sequence[int]) -> list[str]:
        """Everybody on that of these GPUs where it adds most, those that count most first; returns who is to wait."""
        queue = [self._rank(job_id) for job_id in waiting]
        heapify(queue)
        left, refused = [], dict[tuple[object, ...], tuple[float, int, str]]()
        while queue:
            rank = heappop(queue)
            job_id, kind = rank[-1], self._kind(rank[-1])
            # Who counts no more than one of its kind that found nothing finds nothing either.
            seat = NOWHERE if kind in refused and refused[kind] < rank else self._seat(groups, job_id, gpus)
            if seat is NOWHERE:
                refused.setdefault(kind, rank)
                left.append(job_id)
                continue
            for other in groups.get(-seat.negative, ()):
                if other not in seat.group:
                    heappush(queue, self._rank(other))
            groups[-seat.negative] = seat.group
        return left

    def _rank(self, job_id: str) -> tuple[float, int, str]:
        """The smaller the more it counts."""
        return -self._weights[job_id] - self._claims.get(job_id, 0.0), self._order[job_id], job_id

    def _kind(self, job_id: str) -> tuple[object, ...]:
        """The same for jobs that are as fast as each other everywhere."""
        if job_id not in self._kinds:
            job = self._view.jobs[job_id]
            self._kinds[job_id] = tuple(item for model in self._models for item in self._speeds(job, model).items())
        return self._kinds[job_id]

    def _seat(self, groups: Groups, job_id: str, gpus: Sequence[int]) -> Seat:
        return max(self._beside(groups, job_id, gpus), self._instead(groups, job_id, gpus), NOWHERE)

    def _beside(self, groups: Groups, job_id: str, gpus: Sequence[int]) -> Seat:
        """Where it adds most to those who sit there."""
        best, waits = NOWHERE, self._waits(job_id)
        hopes = [(self._most(job_id, gpu, len(groups.get(gpu, ())) + 1) - waits, -gpu) for gpu in gpus]
        for hope, negative in sorted(hopes, reverse=True):
            if hope <= best.gain:
                break
            gpu = -negative
            group = self._with(groups.get(gpu, ()), job_id)
            best = max(best, Seat(self._value(gpu, group) - self._value(gpu, groups.get(gpu, ())) - waits, -gpu, group))
        return best

    def _instead(self, groups: Groups, job_id: str, gpus: Sequence[int]) -> Seat:
        """In the place of those who are missed least of all whose leaving makes room for it."""
        waits, prices = self._waits(job_id), list[tuple[float, int, tuple[str, ...]]]()
        for gpu in gpus:
            most = self._most(job_id, gpu, 1) - waits
            prices += [(price, gpu, them) for price, them in self._prices(gpu, groups.get(gpu, ())) if price < most]
        for _, gpu, leaving in sorted(prices):
            stay = tuple(other for other in groups[gpu] if other not in leaving)
            group = self._with(stay, job_id)
            if self._fits(gpu, group):
                gain = self._value(gpu, group) - self._value(gpu, groups[gpu]) + sum(map(self._waits, leaving)) - waits
                return Seat(gain, -gpu, group)
        return NOWHERE

    def _prices(self, gpu: int, group: tuple[str, ...]) -> list[tuple[float, tuple[str, ...]]]:
        """What is lost if the one leaves who counts least here, the two, the three…, and who they are."""
        key = (gpu, group)
        if key not in self._known_prices:
            model, cut = self._view.cluster.gpus[gpu].model, self._cut(gpu, group) if group else None
            alone = sorted(
                (
                    self._claims.get(job_id, 0.0)
                    - self._costs(job_id, self._has(job_id, gpu), model)[profile]
                    - self._waits(job_id),
                    -self._order[job_id],
                    job_id,
                )
                for job_id, profile in zip(group, cut[1] if cut else (), strict=True)
            )
            them = [job_id for *_, job_id in alone]
            self._known_prices[key] = [
                (price, tuple(them[:number]))
                for number, price in enumerate(accumulate(price for price, *_ in alone), 1)
            ]
        return self._known_prices[key]

    def _move(self, groups: Groups, targets: Sequence[int]) -> bool:
        """The one move to one of these GPUs that gains most, if one gains."""
        best = (LEAST_GAIN, "", -1, -1)
        # Those first that could gain most: what the others could is soon less than what was found.
        for hope, freed, job_id, source, target in sorted(self._hopes(groups, targets), reverse=True):
            if hope <= best[0]:
                break
            there = groups.get(target, ())
            gain = freed + self._value(target, self._with(there, job_id)) - self._value(target, there)
            best = max(best, (gain, job_id, source, target))
        _, job_id, source, target = best
        if target < 0:
            return False
        groups[source] = self._without(groups[source], job_id)
        groups[target] = self._with(groups.get(target, ()), job_id)
        return True

    def _hopes(self, groups: Groups, targets: Sequence[int]) -> Iterator[tuple[float, float, str, int, int]]:
        """Moves: what each can gain at most, what the GPU that is left gains by it, who moves, from where, to where."""
        for source, group in groups.items():
            if len(group) < 2:
                continue  # whoever is alone has the whole GPU already
            for job_id in group:
                freed = self._value(source, self._without(group, job_id)) - self._value(source, group)
                for target in targets:
                    hope = freed + self._most(job_id, target, len(groups.get(target, ())) + 1)
                    if target != source and hope > LEAST_GAIN:
                        yield hope, freed, job_id, source, target

    def _with(self, group: tuple[str, ...], job_id: str) -> tuple[str, ...]:
        return tuple(sorted((*group, job_id), key=self._order.__getitem__))

    def _without(self, group: tuple[str, ...], job_id: str) -> tuple[str, ...]:
        return tuple(other for other in group if other != job_id)

    # ---- what it is worth --------------------------------------------------------------------------------------

    def _seating(self, groups: Groups) -> Seating:
        inside = sum(self._value(gpu, group) for gpu, group in groups.items())
        return Seating(inside + sum(map(self._waits, self._outside(groups))), dict(groups))

    def _waits(self, job_id: str) -> float:
        """What a job is worth that is left out: less than nothing if it has to start again then."""
        job = self._view.jobs[job_id]
        if not job.grants:
            return 0.0
        model = self._view.cluster.gpus[job.grants[0].gpu].model
        worth = self._worth(job_id, model)
        profile = self._has(job_id, job.grants[0].gpu)
        return worth.moves.get(profile, 0.0) - worth.stays.get(profile, 0.0)

    def _value(self, gpu: int, group: tuple[str, ...]) -> float:
        if not group:
            return 0.0
        cut = self._cut(gpu, group)
        return -np.inf if cut is None else -cut[0] + sum(self._claims.get(job_id, 0.0) for job_id in group)

    def _most(self, job_id: str, gpu: int, slices: int) -> float:
        """That a job can bring to a GPU which is cut in so many, whoever else is there."""
        model, has = self._view.cluster.gpus[gpu].model, self._has(job_id, gpu)
        key = (job_id, model.name, has, slices)
        if key not in self._known_most:
            costs = self._costs(job_id, has, model)
            open_ = {profile for cut in cuts_of(model).get(slices, ()) for profile in cut if profile in costs}
            least = min((costs[profile] for profile in open_), default=np.inf)
            self._known_most[key] = self._claims.get(job_id, 0.0) - least
        return self._known_most[key]

    def _fits(self, gpu: int, group: tuple[str, ...]) -> bool:
        return self._cut(gpu, group) is not None

    def _cut(self, gpu: int, group: tuple[str, ...]) -> tuple[float, tuple[str, ...]] | None:
        """The best cut of this GPU for these, as (-value, profile of each): as many slices, or those it has now."""
        model, layout = self._view.cluster.gpus[gpu].model, self._view.gpus[gpu].layout
        has = tuple(self._has(job_id, gpu) for job_id in group)
        key = (model.name, layout if any(has) else (), group, has)
        if key not in self._cuts:
            options = [*cuts_of(model).get(len(group), ())]
            if any(has) and len(layout) >= len(group):
                options.append(tuple(sorted(instance.profile for instance in layout)))
            costs = [self._costs(job_id, profile, model) for job_id, profile in zip(group, has, strict=True)]
            found = [best_assignment(costs, profiles) for profiles in options]
            self._cuts[key] = min((cut for cut in found if cut is not None), default=None)
        return self._cuts[key]

    def _has(self, job_id: str, gpu: int) -> str:
        """The profile that it has on this GPU for itself; empty if it comes from elsewhere."""
        for grant in self._view.jobs[job_id].grants:
            if grant.gpu == gpu and grant.share_pct >= 100:
                return (
                    whole_profile(self._view.cluster.gpus[gpu].model)
                    if grant.instance is None
                    else grant.instance.profile
                )
        return ""

    def _costs(self, job_id: str, has: str, model: GpuModel) -> dict[str, float]:
        worth = self._worth(job_id, model)
        found = worth.moves if self._view.jobs[job_id].grants else worth.stays
        return {profile: -(worth.stays if profile == has else found)[profile] for profile in found}

    def _worth(self, job_id: str, model: GpuModel) -> Worth:
        key = (job_id, model.name)
        if key not in self._worths:
            job, weight = self._view.jobs[job_id], self._weights[job_id]
            speeds = self._speeds(job, model)
            stays = {profile: weight * speed**self._exponent for profile, speed in speeds.items()}
            moves = {profile: stays[profile] * (1.0 - self._lost(job, speed)) for profile, speed in speeds.items()}
            self._worths[key] = Worth(stays, moves)
        return self._worths[key]

    # ---- which GPUs --------------------------------------------------------------------------------------------

    def _on_free(self, groups: Groups, free: Sequence[int]) -> Groups | None:
        """With GPUs that can be had in the place of those that the pool does not have; None if there are too few."""
        now = {grant.gpu for job_id in self._weights for grant in self._view.jobs[job_id].grants}
        found: Groups = {gpu: group for gpu, group in groups.items() if gpu in now}
        open_ = [gpu for gpu in free if gpu not in found and gpu in self._candidates]
        for gpu in sorted(groups.keys() - now):
            alike = next((one for one in open_ if self._fits(one, groups[gpu])), None)
            if alike is None:
                return None
            open_.remove(alike)
            found[alike] = groups[gpu]
        return found

    def _placed(self, groups: Groups, count: int) -> Placed:
        view = self._view
        layouts: dict[int, Layout] = {}
        grants: dict[str, Grants] = dict.fromkeys(self._outside(groups), ())
        reasons: list[Reason] = []
        others = tuple(
            (f"{near} GPUs for all of them", self._seatings[near].value)
            for near in (count - 1, count + 1)
            if 0 <= near < len(self._seatings)
        )
        for gpu, group in sorted(groups.items()):
            cut = self._cut(gpu, group)
            assert cut is not None, "only what fits is looked at"
            layouts[gpu], seats = self._seats(gpu, dict(zip(group, cut[1], strict=True)))
            grants |= seats
            why = f"GPU {gpu} for {len(group)}, cut as {show(cut[1])}; worth of all on {count} GPUs for parts of them"
            reasons += [
                Reason(job_id, _where(seats[job_id][0]), why, self._seatings[count].value, others)
                for job_id in group
                if seats[job_id] != view.jobs[job_id].grants
            ]
        return Placed(
            frozenset(groups),
            {gpu: layout for gpu, layout in layouts.items() if layout != view.gpus[gpu].layout},
            {job_id: them for job_id, them in grants.items() if them != view.jobs[job_id].grants},
            reasons,
        )

    def _seats(self, gpu: int, profiles: Mapping[str, str]) -> tuple[Layout, dict[str, Grants]]:
        """The layout, and who has which instance of it: as it is cut now, if that has a slice for everybody."""
        model, now = self._view.cluster.gpus[gpu].model, self._view.gpus[gpu].layout
        spare = [instance.profile for instance in now]
        for profile in profiles.values():
            if profile not in spare:
                break
            spare.remove(profile)
        else:
            return now, seats_of(self._view, gpu, now, profiles)
        if [*profiles.values()] == [whole_profile(model)]:
            return (), {job_id: (Grant(gpu),) for job_id in profiles}
        busy = frozenset(
            grant.instance
            for job_id in profiles
            for grant in self._view.jobs[job_id].grants
            if grant.gpu == gpu and grant.instance is not None
        )
        slices = tuple(model.by_name[profile].slices for profile in profiles.values())
        layout = nearest(model, now, slices, busy)
        assert layout is not None, "profiles come from legal layouts"
        return layout, seats_of(self._view, gpu, layout, profiles)


def cuts_of(model: GpuModel) -> Mapping[int, Sequence[tuple[str, ...]]]:
    """By number of slices. A GPU that cannot be cut is one for one."""
    return slices_by_count(model) if model.mig else {1: [(whole_profile(model),)]}


def _where(grant: Grant) -> str:
    return f"GPU {grant.gpu}" if grant.instance is None else f"GPU {grant.gpu} {grant.instance.profile}"
