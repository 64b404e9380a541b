"""MISO, ours: probe only what is worth knowing, place where it costs least, cut only what has to change.

What it does beyond the paper: all legal layouts; placement and migration by marginal gain over all GPUs; no probe for
a workload that is known, or where no answer could change the cut; a cut is changed when what jobs report shows that
another pays; instances that stay keep running; nobody is held up by a job that does not fit, for a bounded time; jobs
that are short, or may be, come first; priorities; speed floors. `tuning` can turn off all but the last two.
"""

from bisect import insort
from typing import Any, NamedTuple

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.policy import Policy, When
from gpuloom.contract.view import Estimates, JobView, Phase, View
from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.miso.beliefs import Alike, Beliefs
from gpuloom.policies.miso.cuts import CutBook, Seat, Seating, Seats
from gpuloom.policies.miso.tuning import without
from gpuloom.policies.slicing import (
    Draft,
    cut_for,
    draft_of,
    give_whole,
    is_settled,
    pause_youngest,
    require_mig,
    share_whole,
    show,
)
from gpuloom.work.model import Kind

NOWHERE = -1
"""The GPU of a job that has no slice for itself."""
MOST_PRIORITY = 100
"""Beyond, a priority still counts in the queue, but no more on the GPU."""


class Sitter(NamedTuple):
    """A live job as placement sees it."""

    kind: int
    weight: float
    gpu: int
    """Where it has a slice for itself."""
    profile: str


class Miso(Policy):
    """Ours: marginal-gain placement and migration, all layouts, probes only where the answer could matter."""

    uses_mps = True
    cuts = True

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "") -> None:  # noqa: ARG002
        self.when = When(on_reports=True)
        require_mig(cluster)
        self.tuning = tuning = without(arg)
        self.beliefs = Beliefs(by_workload=tuning.by_workload, telemetry=tuning.telemetry)
        self._move_s = tuning.move_s if tuning.counts_moves else 0.0
        self._cuts = CutBook(self._speeds, tuning.horizon_s, self._move_s, every_layout=tuning.every_layout)
        self._kinds: dict[int, Alike] = {}
        self._numbers: dict[Alike, int] = {}
        """Kinds in the order in which they were first seen: a number is quicker to compare."""
        self._next_kind = 0
        self._sitters: dict[str, Sitter] = {}
        """Of each live job, as it is at the moment of a decision."""
        self._looked_at: dict[int, Seats] = {}
        """Who was on each GPU, and what was believed of them, when it was last considered."""
        self._reserved: dict[int, str] = {}
        """GPUs on which nobody is placed but one job that has waited for long."""

    def decide(self, view: View) -> Plan:
        self.beliefs.learn(view)
        self._sitters = {job_id: self._sit(view, job) for job_id, job in view.jobs.items()}
        draft = draft_of(view)
        self._place_waiting(view, draft)
        changed = {gpu for gpu in draft.jobs if self._looked_at.get(gpu) != self._seats(draft, gpu)}
        if self.tuning.migrating:
            self._migrate(view, draft, changed)
        for gpu, residents in draft.jobs.items():
            if residents and (not is_settled(view, gpu, residents) or gpu in changed):
                self._settle(view, gpu, residents, draft)
        self._looked_at = {gpu: self._seats(draft, gpu) for gpu in draft.jobs}
        for job_id, grants in draft.grants.items():
            for grant in grants:
                if grant.instance is not None:
                    self.beliefs.given(job_id, view.cluster.gpus[grant.gpu].model, grant.instance.profile)
        return draft.plan()

    def remember(self) -> object:
        """Of kinds only those that a job may still be of: all others are past, and so is what was computed for them."""
        kinds = {number: kind for number, kind in self._kinds.items() if self.beliefs.is_current(kind)}
        return {
            "beliefs": self.beliefs.remember(),
            "kinds": kinds,
            "next_kind": self._next_kind,
            "losses": self._cuts.remember(kinds),
            "looked_at": self._looked_at,
            "reserved": self._reserved,
        }

    def restore(self, memory: Any) -> None:
        self.beliefs.restore(memory["beliefs"])
        self._kinds = {int(number): Alike(*kind) for number, kind in memory["kinds"].items()}
        self._numbers = {kind: number for number, kind in self._kinds.items()}
        self._next_kind = int(memory["next_kind"])
        self._cuts.restore(memory["losses"])
        self._looked_at = {int(gpu): tuple(Seat(*seat) for seat in seats) for gpu, seats in memory["looked_at"].items()}
        self._reserved = {int(gpu): str(job_id) for gpu, job_id in memory["reserved"].items()}

    # ---- who can sit where -------------------------------------------------------------------------------------

    def _sit(self, view: View, job: JobView) -> Sitter:
        alone = next((g for g in job.grants if g.instance is not None and g.share_pct >= 100), None)
        gpu, profile = (alone.gpu, alone.instance.profile) if alone is not None and alone.instance else (NOWHERE, "")
        weight = 4.0 ** (min(max(job.job.priority, -MOST_PRIORITY), MOST_PRIORITY) / 10)
        if self.tuning.size_aware and self._expected_s(view, job) < self.tuning.short_s:
            weight *= self.tuning.short_weight
        return Sitter(self._kind_of(job), weight, gpu, profile)

    def _expected_s(self, view: View, job: JobView) -> float:
        """Its owner's guess; or, since few jobs are long, what it has run so far."""
        if job.job.estimate_s is not None:
            return job.job.estimate_s
        return self._ran_s(view, job)

    def _ran_s(self, view: View, job: JobView) -> float:
        return job.ran_s + (view.now_s - job.since_s if job.phase is Phase.RUNNING else 0.0)

    def _kind_of(self, job: JobView) -> int:
        """Jobs of one kind are interchangeable, as far as is believed now."""
        kind = self.beliefs.kind(job)
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = self._next_kind
            self._next_kind += 1
            self._kinds[number] = kind
        return number

    def _speeds(self, kind: int, model: GpuModel) -> Estimates:
        return self.beliefs.of(self._kinds[kind], model)

    def _seat(self, gpu: int, job_id: str) -> Seat:
        sitter = self._sitters[job_id]
        return Seat(sitter.kind, sitter.weight, sitter.profile if sitter.gpu == gpu else "")

    def _seats(self, draft: Draft, gpu: int, but: str | None = None, plus: str | None = None) -> Seats:
        seats = [self._seat(gpu, job_id) for job_id in draft.jobs[gpu] if job_id != but]
        if plus is not None:
            seats.append(self._seat(gpu, plus))
        return tuple(sorted(seats))

    # ---- placing and migrating ---------------------------------------------------------------------------------

    def _place_waiting(self, view: View, draft: Draft) -> None:
        """The old, the urgent and the short first. Who does not fit is passed over until its patience is at an end."""
        self._reserved = {
            gpu: job_id for gpu, job_id in self._reserved.items() if job_id in view.waiting and not view.gpus[gpu].lost
        }
        for job in sorted(view.waiting.values(), key=self._rank):
            usable = [gpu for gpu in draft.jobs if self._reserved.get(gpu, job.id) == job.id]
            if job.job.kind is Kind.SLICEABLE:
                done = self._place(view, draft, job, usable)
            else:
                done = give_whole(draft, job, usable)
            if done:
                continue
            if not self.tuning.skips_ahead:
                break
            if view.now_s - job.job.submit_s > self.tuning.patience_s:
                self._reserve(view, draft, job)

    def _reserve(self, view: View, draft: Draft, job: JobView) -> None:
        """Of the GPUs that could hold it when empty, those that will be empty first; for none if they are too few."""
        could = [gpu.index for gpu in view.cluster.gpus if self._could_hold(job, gpu.model)]
        if len(could) < job.job.gpus:
            return
        mine = [gpu for gpu, job_id in self._reserved.items() if job_id == job.id]
        free = [gpu for gpu in could if gpu in draft.jobs and gpu not in self._reserved]
        free.sort(key=lambda gpu: (max([self._left_s(view, other) for other in draft.jobs[gpu]], default=0.0), gpu))
        for gpu in free[: max(job.job.gpus - len(mine), 0)]:
            self._reserved[gpu] = job.id

    def _could_hold(self, job: JobView, model: GpuModel) -> bool:
        if job.job.kind is Kind.SLICEABLE:
            return self._cuts.lost_s(model, (self._seat(NOWHERE, job.id),)) is not None
        return model.mem_mib >= (job.job.mem_mib or 0)

    def _left_s(self, view: View, job_id: str) -> float:
        """How long a job is expected to go on: what its owner guesses is left, or as long again as it has run."""
        job = view.jobs[job_id]
        ran_s = self._ran_s(view, job)
        return ran_s if job.job.estimate_s is None else max(job.job.estimate_s - ran_s, 0.1 * job.job.estimate_s)

    def _rank(self, job: JobView) -> float:
        """Smallest first: by the time of arrival, put off by the guessed length and brought forward by priority.

        So a job is only ever overtaken by those that come less than these differences later.
        """
        guess_s = job.job.estimate_s if self.tuning.size_aware else None
        size_s = min(guess_s, self.tuning.patience_s) if guess_s is not None else self.tuning.patience_s
        return job.job.submit_s + size_s - job.job.priority / 10 * self.tuning.priority_s

    def _place(self, view: View, draft: Draft, job: JobView, usable: list[int]) -> bool:
        """Where all jobs together lose the least."""
        costs = []
        for gpu in usable:
            model = view.cluster.gpus[gpu].model
            with_it = self._cuts.lost_s(model, self._seats(draft, gpu, plus=job.id))
            without_it = self._cuts.lost_s(model, self._seats(draft, gpu))
            if with_it is not None and without_it is not None:
                costs.append((with_it - without_it, gpu))
        if not costs:
            return False
        costs.sort(key=None if self.tuning.marginal_placement else lambda cost: (len(draft.jobs[cost[1]]), cost[1]))
        lost_s, gpu = costs[0]
        draft.jobs[gpu].append(job.id)
        others = tuple((f"GPU {other}", cost) for cost, other in costs[1:5])
        why = f"the fewest GPU seconds lost over {self.tuning.horizon_s:.0f} s"
        draft.reasons.append(Reason(job.id, f"GPU {gpu}", why, lost_s, others))
        return True

    def _migrate(self, view: View, draft: Draft, changed: set[int]) -> None:
        """Move jobs between GPUs while that gains more than it costs: the best move first.

        Only moves from or to a GPU that has changed: the others were looked at, and left, before.
        """
        for _ in range(self.tuning.moves):
            best = self._best_move(view, draft, changed)
            if best is None:
                break
            gained_s, job_id, source, target = best
            draft.jobs[source].remove(job_id)
            draft.jobs[target].append(job_id)
            changed |= {source, target}
            why = f"leaves GPU {source}: GPU seconds gained over {self.tuning.horizon_s:.0f} s"
            draft.reasons.append(Reason(job_id, f"GPU {target}", why, gained_s))

    def _best_move(self, view: View, draft: Draft, changed: set[int]) -> tuple[float, str, int, int] | None:
        """(gain, job, from, to)."""
        lost_s, gpus = self._cuts.lost_s, view.cluster.gpus
        sitting = {gpu: self._seats(draft, gpu) for gpu in draft.jobs}
        targets = self._different(view, sitting, changed)
        changed_targets = [gpu for gpu in targets if gpu in changed]
        lost = {gpu: lost_s(gpus[gpu].model, sitting[gpu]) for gpu in sitting}
        best: tuple[float, str, int, int] | None = None
        for source, residents in draft.jobs.items():
            here = lost[source]
            if len(residents) < 2 or here is None:
                continue  # whoever is alone has the whole GPU already
            tried = set[Seat]()
            for job_id in residents:
                seat = self._seat(source, job_id)
                if seat in tried:
                    continue  # a job of the same kind would gain the same
                tried.add(seat)
                rest = lost_s(gpus[source].model, self._seats(draft, source, but=job_id))
                if rest is None:
                    continue
                move_s = self._move_s * seat.weight if view.jobs[job_id].grants else 0.0
                for target in targets if source in changed else changed_targets:
                    before = lost[target]
                    if target == source or before is None:
                        continue
                    joined = [*sitting[target]]
                    insort(joined, self._seat(target, job_id))
                    there = lost_s(gpus[target].model, tuple(joined))
                    if there is None:
                        continue
                    gained_s = here - rest + before - there - move_s
                    if gained_s > 0 and (best is None or gained_s > best[0]):
                        best = (gained_s, job_id, source, target)
        return best

    def _different(self, view: View, sitting: dict[int, Seats], changed: set[int]) -> list[int]:
        """Of GPUs that look alike one stands for all: a changed one if there is, then the lowest. None is reserved."""
        alike: dict[object, int] = {}
        for gpu in sorted(sitting, key=lambda gpu: (gpu not in changed, gpu)):
            if gpu not in self._reserved:
                alike.setdefault((view.cluster.gpus[gpu].model.name, sitting[gpu]), gpu)
        return list(alike.values())

    # ---- cutting and probing -----------------------------------------------------------------------------------

    def _settle(self, view: View, gpu: int, residents: list[str], draft: Draft) -> None:
        """Cut for these, or probe them first. If they sit well as they are, nothing changes."""
        residents.sort(key=lambda job_id: self._seat(gpu, job_id))
        options = self._cuts.seatings(view.cluster.gpus[gpu].model, self._seats(draft, gpu))
        if not options:  # somebody needs more than it said, or than was believed
            residents.sort(key=list(view.jobs).index)
            pause_youngest(view, gpu, residents, draft)
            if residents:
                self._settle(view, gpu, residents, draft)
            return
        best, settled = options[0], is_settled(view, gpu, residents)
        if settled and [self._sitters[job_id].profile for job_id in residents] == [*best.profiles]:
            return
        if not settled and len(residents) > 1 and self._is_worth_a_probe(view, gpu, residents, options):
            what = share_whole(view, gpu, residents, draft)
            draft.probes.append(gpu)
            why = "too little is known to cut: probed under MPS first"
            draft.reasons += [Reason(job_id, what, why) for job_id in residents]
            return
        wanted = dict(zip(residents, best.profiles, strict=True))
        cut_for(view, gpu, wanted, draft)
        others = tuple((show(cut.profiles), cut.lost_s) for cut in options[1:5])
        why = f"GPU seconds that its {len(residents)} jobs lose over {self.tuning.horizon_s:.0f} s, moves included"
        for job_id, profile in wanted.items():
            told = self.beliefs.from_before(view.jobs[job_id], view.cluster.gpus[gpu].model, profile)
            said = why if told is None else f"{why}; its speed there as {told} saw it"
            draft.reasons.append(Reason(job_id, f"GPU {gpu} {profile}", said, best.lost_s, others))

    def _is_worth_a_probe(self, view: View, gpu: int, residents: list[str], options: list[Seating]) -> bool:
        """Could knowing more change the cut, and by more than the probe costs?

        The most that another cut could be better: every unknown job at the far ends of its intervals.
        """
        model, chosen = view.cluster.gpus[gpu].model, options[0]
        if not self.tuning.choosy_probes:
            return not {*residents} <= {*view.gpus[gpu].tenants}
        unknown = [self.beliefs.is_unknown(view.jobs[job_id], model) for job_id in residents]
        if any(
            view.jobs[job_id].job.mem_mib is None for job_id, open_ in zip(residents, unknown, strict=True) if open_
        ):
            return True  # on a slice it could run out of memory
        probe_s = self.tuning.probe_s * len(residents)
        for other in options[1:]:
            swing_s = 0.0
            for job_id, mine, theirs, open_ in zip(residents, chosen.profiles, other.profiles, unknown, strict=True):
                if open_ and mine != theirs:
                    believed = self._speeds(self._sitters[job_id].kind, model)
                    spread = believed[theirs].high - believed[theirs].speed + believed[mine].speed - believed[mine].low
                    swing_s += spread * self.tuning.horizon_s
            if chosen.lost_s - other.lost_s + swing_s > probe_s:
                return True
        return False
