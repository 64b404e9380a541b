"""What `miso` believes of each workload: a prior, what probes predicted, and what runs on real slices have shown.

What jobs of this run show beats what earlier runs or `gpuloom measure` saw, that beats a prediction, and a prediction
beats the prior. Kept by fingerprint, so that the second job of a kind needs no probe, and by GPU model, since a slice
of one says little about a slice of another. What earlier runs saw is never remembered here: the view has it.
"""

from collections import defaultdict
from collections.abc import Container, Mapping, MutableMapping
from typing import Any, NamedTuple

from gpuloom.contract.view import NOTHING_BEFORE, Estimates, JobView, Phase, SeenBefore, View
from gpuloom.gpus.model import GpuModel
from gpuloom.perf.slices.memory import RunMemory, Seen, corrected, fingerprint, whole_rate
from gpuloom.perf.slices.prior import prior
from gpuloom.perf.speed import Estimate


class Alike(NamedTuple):
    """Jobs of which the same is believed, and that may be given the same."""

    key: str
    version: int
    need_mib: int
    stated_mib: int
    min_speed: float


class Beliefs:
    def __init__(self, *, by_workload: bool = True, telemetry: bool = True) -> None:
        self._by_workload, self._telemetry = by_workload, telemetry
        self._versions: defaultdict[str, int] = defaultdict(int)
        self._predicted: dict[tuple[str, str], Estimates] = {}
        self._learnt: dict[str, Estimates] = {}
        """Of each live job, the estimates that were taken in."""
        self._restored: set[str] = set()
        """Live jobs of which these are equal to those in the view, but not the same object yet."""
        self._memory = RunMemory()
        self._earlier: SeenBefore = NOTHING_BEFORE
        self._small_before_mib: dict[str, int] = {}
        """With so much memory earlier runs or measurements saw such a workload run out of it."""
        self._counted: dict[str, float] = {}
        self._crashes: dict[str, int] = {}
        self._last_slice: dict[str, int] = {}
        """MiB of the slice that each job was last given."""
        self._too_small_mib: dict[str, int] = {}

    def remember(self) -> dict[str, Any]:
        predicted: dict[str, dict[str, Estimates]] = {}
        for (key, model), estimates in self._predicted.items():
            predicted.setdefault(key, {})[model] = estimates
        return {
            "versions": {key: version for key, version in self._versions.items() if version},
            "predicted": predicted,
            "learnt": self._learnt,
            "seen": self._memory.remember(),
            "counted": self._counted,
            "crashes": self._crashes,
            "last_slice": self._last_slice,
            "too_small_mib": self._too_small_mib,
        }

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._versions.update({key: int(version) for key, version in memory["versions"].items()})
        self._predicted = {
            (key, model): _estimates(told)
            for key, models in memory["predicted"].items()
            for model, told in models.items()
        }
        self._learnt = {job_id: _estimates(told) for job_id, told in memory["learnt"].items()}
        self._restored = {*self._learnt}
        self._memory.restore(memory["seen"])
        self._counted = {job_id: float(at_s) for job_id, at_s in memory["counted"].items()}
        self._crashes, self._last_slice, self._too_small_mib = (
            {name: int(number) for name, number in memory[what].items()}
            for what in ("crashes", "last_slice", "too_small_mib")
        )

    def is_current(self, kind: Alike) -> bool:
        """Whether a job may still be of this kind; if more has been learnt since, none ever will."""
        return kind.version == self._versions.get(kind.key, 0)

    def key(self, job: JobView) -> str:
        """Jobs with the same key are believed to be the same work."""
        return (fingerprint(job.job) if self._by_workload else None) or f"job {job.id}"

    def version(self, job: JobView) -> int:
        """Rises with everything that is learnt about its kind of work."""
        return self._versions[self.key(job)]

    def learn(self, view: View) -> None:
        """Take in what the view shows: new predictions, rates of jobs that have a slice for themselves, crashes."""
        if self._by_workload and self._telemetry and view.earlier is not self._earlier:
            self._hear_of_before(view.earlier)
        for known in (self._learnt, self._counted, self._crashes, self._last_slice):
            _forget(known, view.jobs)
        for job in view.jobs.values():
            if job.estimates is not None and job.grants and self._is_news(job, job.estimates):
                self._predict(job, view.cluster.gpus[job.grants[0].gpu].model, job.estimates)
            if len(job.held) == 1 and job.held[0].instance is not None and job.phase is Phase.RUNNING:
                self._watch(job, view.cluster.gpus[job.held[0].gpu].model, job.held[0].instance.profile)
            if job.crashes > self._crashes.get(job.id, 0):
                self._crash(job)

    def _hear_of_before(self, earlier: SeenBefore) -> None:
        self._earlier, self._small_before_mib = earlier, {}
        for (key, _), known in earlier.items():
            if known.too_small_mib is not None:
                self._small_before_mib[key] = max(known.too_small_mib, self._small_before_mib.get(key, 0))

    def _is_news(self, job: JobView, estimates: Estimates) -> bool:
        """Has it been probed since? Two probes may say the same, so the object counts; after a restore its content."""
        known = self._learnt.get(job.id)
        if job.id in self._restored:
            self._restored.discard(job.id)
            if known == estimates:
                self._learnt[job.id] = estimates
                return False
        return known is not estimates

    def _predict(self, job: JobView, model: GpuModel, estimates: Estimates) -> None:
        self._learnt[job.id] = estimates
        key = self.key(job)
        if self._predicted.get((key, model.name)) != estimates:
            self._predicted[key, model.name] = estimates
            self._versions[key] += 1

    def _watch(self, job: JobView, model: GpuModel, profile: str) -> None:
        report = job.report
        if not self._telemetry or report is None or not report.batches_per_s or job.held[0].share_pct < 100:
            return
        if self._counted.get(job.id) != report.at_s and report.at_s >= job.since_s:
            self._counted[job.id] = report.at_s
            key = self.key(job)
            self._versions[key] += self._memory.observe(key, model, profile, report.batches_per_s)

    def given(self, job_id: str, model: GpuModel, profile: str) -> None:
        """It is to run on such a slice. Who crashes with all the memory there is does not lack memory."""
        slice_mib, largest_mib = model.by_name[profile].mem_mib, max(one.mem_mib for one in model.profiles)
        self._last_slice[job_id] = slice_mib if slice_mib < largest_mib else 0

    def _crash(self, job: JobView) -> None:
        """It may have run out of memory, whatever it said."""
        self._crashes[job.id] = job.crashes
        who = self._owner(job)
        small_mib = self._last_slice.pop(job.id, 0)
        if small_mib:
            self._too_small_mib[who] = max(small_mib, self._too_small_mib.get(who, 0))

    def _owner(self, job: JobView) -> str:
        """Of what a crash says about memory: all its kind where none is stated, else this job alone."""
        return self.key(job) if job.job.mem_mib is None else f"job {job.id}"

    def need_mib(self, job: JobView) -> int:
        """Memory that it states, or more if it has crashed, or was once seen to run out of memory, with so much."""
        crashed_mib = self._too_small_mib.get(self._owner(job), -1)
        return max(job.job.mem_mib or 0, crashed_mib + 1, self._small_before_mib.get(self.key(job), -1) + 1)

    def is_unknown(self, job: JobView, model: GpuModel) -> bool:
        """Only the prior speaks of it."""
        key = self.key(job)
        known = (self._memory.recall(key, model), self._seen_before(key, model))
        return (key, model.name) not in self._predicted and max(map(len, known)) < 2

    def _seen_before(self, key: str, model: GpuModel) -> Mapping[str, Seen]:
        known = self._earlier.get((key, model.name))
        return {} if known is None else known.seen

    def from_before(self, job: JobView, model: GpuModel, profile: str) -> str | None:
        """Who told before this run how fast it is believed to be there; None: nobody, or that has been corrected."""
        key = self.key(job)
        before, now = self._seen_before(key, model), self._memory.recall(key, model)
        believed = self._believed(key, model)
        if profile not in before or whole_rate(model, before, believed) is None:
            return None
        is_corrected = profile in now and whole_rate(model, now, corrected(model, before, believed)) is not None
        return None if is_corrected else self._earlier[key, model.name].by_whom

    def kind(self, job: JobView) -> Alike:
        return Alike(self.key(job), self.version(job), self.need_mib(job), job.job.mem_mib or 0, job.job.min_speed or 0)

    def of(self, kind: Alike, model: GpuModel) -> Estimates:
        """Speeds on the profiles that have the memory and keep what such a job was promised."""
        largest_mib = max(profile.mem_mib for profile in model.profiles)
        need_mib = min(kind.need_mib, max(kind.stated_mib, largest_mib))  # a crash never rules the whole GPU out
        before = corrected(model, self._seen_before(kind.key, model), self._believed(kind.key, model))
        speeds = self._memory.correct(kind.key, model, before)
        fits = {profile.name for profile in model.profiles if profile.mem_mib >= need_mib}
        # A floor has to hold at the lower end of the interval: a guess in the middle breaks it every other time.
        return {name: estimate for name, estimate in speeds.items() if name in fits and estimate.low >= kind.min_speed}

    def _believed(self, key: str, model: GpuModel) -> Estimates:
        """Before anybody has seen it run on a slice."""
        most = max(profile.slices for profile in model.profiles)
        predicted = self._predicted.get((key, model.name))
        return predicted or {profile.name: prior(profile.slices / most) for profile in model.profiles}


def _forget(known: MutableMapping[str, Any], live: Container[str]) -> None:
    for job_id in [job_id for job_id in known if job_id not in live]:
        del known[job_id]


def _estimates(told: Mapping[str, Any]) -> Estimates:
    return {profile: Estimate(*map(float, row)) for profile, row in told.items()}
