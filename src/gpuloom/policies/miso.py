"""MISO, ours: probe only what is worth knowing, place where it costs least, cut only what has to change.

What it does beyond the paper: all legal layouts; placement and migration by marginal gain over all GPUs; no probe for
a workload that is known, or where no answer could change the cut; instances that stay keep running; nobody is held up
by a job that does not fit, for a bounded time; priorities; speed floors.
"""

from dataclasses import dataclass
from typing import NamedTuple

from gpuloom.gpus.cluster import Cluster
from gpuloom.gpus.model import GpuModel
from gpuloom.policies.contract import ON_EVENTS, Estimates, JobView, Plan, Reason, View
from gpuloom.policies.miso_beliefs import Beliefs, workload_of
from gpuloom.policies.miso_cuts import Cut, Seat, best_cuts
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


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants, chosen on seeds that no benchmark reports (101-120 of MISO's experiment)."""

    horizon_s: float = 600.0
    """How long a cut is expected to last."""
    move_s: float = 15.0
    """What a job loses when it is moved: a cut and a restart."""
    probe_s: float = 60.0
    """What everybody on a GPU loses to a probe: two moves and half of the time measured."""
    patience_s: float = 900.0
    """A job that has waited so long gets a GPU reserved: nobody else is placed there until it fits."""
    moves: int = 4
    """Migrations in one decision at most."""
    probing: bool = True
    migrating: bool = True


class Sitter(NamedTuple):
    """A live job as placement sees it."""

    kind: int
    weight: float
    gpu: int
    """Where it has a slice for itself; -1 if nowhere."""
    profile: str


class Miso:
    """Ours: marginal-gain placement and migration, all layouts, probes only where the answer could matter."""

    told: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster, seed: int = 0, arg: str = "", tuning: Tuning | None = None) -> None:  # noqa: ARG002
        self.when = ON_EVENTS
        self.tuning = tuning or Tuning()
        require_mig(cluster)
        self.beliefs = Beliefs()
        self._cuts: dict[tuple[object, ...], list[Cut]] = {}
        self._speeds: dict[tuple[int, str], Estimates] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._sitters: dict[str, Sitter] = {}
        """Of each live job, as it is at the moment of a decision."""
        self._looked_at: dict[int, list[str]] = {}
        """Who was on each GPU when migrations were last considered."""
        self._version = 0

    def decide(self, view: View) -> Plan:
        self.beliefs.learn(view.jobs)
        if self.beliefs.version != self._version or len(self._cuts) > 50_000:
            self._version = self.beliefs.version
            self._cuts.clear()
            self._speeds.clear()
        self._sitters = {job_id: self._sit(job) for job_id, job in view.jobs.items()}
        draft = draft_of(view)
        self._place_waiting(view, draft)
        if self.tuning.migrating:
            self._migrate(view, draft)
        for gpu, residents in draft.jobs.items():
            if residents and not is_settled(view, gpu, residents):
                self._settle(view, gpu, residents, draft)
        return draft.plan()

    # ---- who can sit where -------------------------------------------------------------------------------------

    def _believed(self, job: JobView, model: GpuModel) -> Estimates:
        key = (self._kind_of(job), model.name)
        if key not in self._speeds:
            self._speeds[key] = self.beliefs.of(job, model)
        return self._speeds[key]

    def _kind_of(self, job: JobView) -> int:
        """Jobs of one kind are interchangeable; a number, because it is hashed so often."""
        return self._kinds.setdefault((workload_of(job), job.job.mem_mib, job.job.min_speed), len(self._kinds))

    def _sit(self, job: JobView) -> Sitter:
        alone = next((g for g in job.grants if g.instance is not None and g.share_pct >= 100), None)
        gpu, profile = (alone.gpu, alone.instance.profile) if alone is not None and alone.instance else (-1, "")
        return Sitter(self._kind_of(job), 4.0 ** (job.job.priority / 10), gpu, profile)

    def _key(self, gpu: int, job_id: str) -> tuple[int, float, str]:
        """All that a cut of this GPU has to know of the job: its kind, its weight, and the slice it has there now."""
        sitter = self._sitters[job_id]
        return (sitter.kind, sitter.weight, sitter.profile if sitter.gpu == gpu else "")

    def _options(self, view: View, gpu: int, residents: list[str]) -> list[Cut]:
        """Ways to cut the GPU for these jobs, the best first. Remembered by kinds of jobs, not by their names."""
        model = view.cluster.gpus[gpu].model
        key = (model.name, *[self._key(gpu, job_id) for job_id in residents])
        found = self._cuts.get(key)
        if found is None:
            seats = [self._seat(model, gpu, view.jobs[job_id]) for job_id in residents]
            found = self._cuts[key] = best_cuts(model, seats, self.tuning.horizon_s)
        return found

    def _seat(self, model: GpuModel, gpu: int, job: JobView) -> Seat:
        speeds = tuple((name, estimate.speed) for name, estimate in self._believed(job, model).items())
        _, weight, now = self._key(gpu, job.id)
        return Seat(speeds, now, weight, self.tuning.move_s)

    def _lost_s(self, view: View, gpu: int, residents: list[str]) -> float | None:
        """What these jobs lose on this GPU over the horizon; None if they do not all fit."""
        if not residents:
            return 0.0
        options = self._options(view, gpu, residents)
        return options[0].lost_s if options else None

    # ---- placing and migrating ---------------------------------------------------------------------------------

    def _place_waiting(self, view: View, draft: Draft) -> None:
        """Urgent jobs first, then the oldest. Who does not fit is passed over until its patience is at an end."""
        reserved: set[int] = set()
        for job in sorted(view.waiting.values(), key=lambda job: (-job.job.priority, job.job.submit_s)):
            usable = [gpu for gpu in draft.jobs if gpu not in reserved]
            if job.job.kind is Kind.SLICEABLE:
                done = self._place(view, draft, job, usable)
            else:
                done = give_whole(draft, job, usable)
            if not done and view.now_s - job.job.submit_s > self.tuning.patience_s:
                emptiest = sorted(usable, key=lambda gpu: (len(draft.jobs[gpu]), gpu))
                reserved.update(emptiest[: max(job.job.gpus, 1)])

    def _place(self, view: View, draft: Draft, job: JobView, usable: list[int]) -> bool:
        """Where all jobs together lose the least."""
        costs = []
        for gpu in usable:
            with_it, without = (
                self._lost_s(view, gpu, [*draft.jobs[gpu], job.id]),
                self._lost_s(view, gpu, draft.jobs[gpu]),
            )
            if with_it is not None and without is not None:
                costs.append((with_it - without, gpu))
        if not costs:
            return False
        costs.sort()
        lost_s, gpu = costs[0]
        draft.jobs[gpu].append(job.id)
        others = tuple((f"GPU {other}", cost) for cost, other in costs[1:5])
        why = f"the fewest GPU seconds lost over {self.tuning.horizon_s:.0f} s"
        draft.reasons.append(Reason(job.id, f"GPU {gpu}", why, lost_s, others))
        return True

    def _migrate(self, view: View, draft: Draft) -> None:
        """Move jobs between GPUs while that gains more than it costs: the best move first.

        Only moves from or to a GPU whose jobs have changed: the others were looked at, and left, before.
        """
        changed = {gpu for gpu, residents in draft.jobs.items() if self._looked_at.get(gpu) != residents}
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
        self._looked_at = {gpu: [*residents] for gpu, residents in draft.jobs.items()}

    def _best_move(self, view: View, draft: Draft, changed: set[int]) -> tuple[float, str, int, int] | None:
        """(gain, job, from, to)."""
        targets = self._different(view, draft, changed)
        changed_targets = [gpu for gpu in targets if gpu in changed]
        best: tuple[float, str, int, int] | None = None
        for source, residents in draft.jobs.items():
            here = self._lost_s(view, source, residents)
            if len(residents) < 2 or here is None:
                continue  # whoever is alone has the whole GPU already
            for job_id in residents:
                rest = self._lost_s(view, source, [other for other in residents if other != job_id])
                if rest is None:
                    continue
                move_s = self.tuning.move_s * self._sitters[job_id].weight if view.jobs[job_id].grants else 0.0
                for target in targets if source in changed else changed_targets:
                    there = self._lost_s(view, target, [*draft.jobs[target], job_id]) if target != source else None
                    if there is None:
                        continue
                    gained_s = here - rest + (self._lost_s(view, target, draft.jobs[target]) or 0.0) - there - move_s
                    if gained_s > 0 and (best is None or gained_s > best[0]):
                        best = (gained_s, job_id, source, target)
        return best

    def _different(self, view: View, draft: Draft, changed: set[int]) -> list[int]:
        """Of GPUs that look alike one stands for all: a changed one if there is, then the lowest."""
        alike: dict[object, int] = {}
        for gpu in sorted(draft.jobs, key=lambda gpu: (gpu not in changed, gpu)):
            seats = sorted(self._key(gpu, job_id) for job_id in draft.jobs[gpu])
            alike.setdefault((view.cluster.gpus[gpu].model.name, *seats), gpu)
        return list(alike.values())

    # ---- cutting and probing -----------------------------------------------------------------------------------

    def _settle(self, view: View, gpu: int, residents: list[str], draft: Draft) -> None:
        options = self._options(view, gpu, residents)
        if not options:  # a probe has shown that somebody needs more than it said
            pause_youngest(view, gpu, residents, draft)
            if residents:
                self._settle(view, gpu, residents, draft)
            return
        if self.tuning.probing and len(residents) > 1 and self._is_worth_a_probe(view, gpu, residents, options):
            what = share_whole(view, gpu, residents, draft)
            draft.probes.append(gpu)
            why = "too little is known to cut: probed under MPS first"
            draft.reasons += [Reason(job_id, what, why) for job_id in residents]
            return
        best = options[0]
        cut_for(view, gpu, dict(zip(residents, best.profiles, strict=True)), draft)
        others = tuple((show(cut.profiles), cut.lost_s) for cut in options[1:5])
        why = f"GPU seconds that its {len(residents)} jobs lose over {self.tuning.horizon_s:.0f} s, moves included"
        draft.reasons += [
            Reason(job_id, f"GPU {gpu} {profile}", why, best.lost_s, others)
            for job_id, profile in zip(residents, best.profiles, strict=True)
        ]

    def _is_worth_a_probe(self, view: View, gpu: int, residents: list[str], options: list[Cut]) -> bool:
        """Could knowing more change the cut, and by more than the probe costs?

        The most that another cut could be better: every unknown job at the far ends of its intervals.
        """
        model, chosen = view.cluster.gpus[gpu].model, options[0]
        unknown = [self.beliefs.is_unknown(view.jobs[job_id]) for job_id in residents]
        if not any(unknown):
            return False
        if any(
            view.jobs[job_id].job.mem_mib is None for job_id, open_ in zip(residents, unknown, strict=True) if open_
        ):
            return True  # on a slice it could run out of memory
        probe_s = self.tuning.probe_s * len(residents)
        for other in options[1:]:
            swing_s = 0.0
            for job_id, mine, theirs, open_ in zip(residents, chosen.profiles, other.profiles, unknown, strict=True):
                if open_ and mine != theirs:
                    believed = self._believed(view.jobs[job_id], model)
                    spread = (believed[theirs].high - believed[theirs].speed) + (
                        believed[mine].speed - believed[mine].low
                    )
                    swing_s += spread * self.tuning.horizon_s
            if chosen.lost_s - other.lost_s + swing_s > probe_s:
                return True
        return False
