"""Cutting this host's devices: take one, bring it to a layout, leave it as it was found.

What is reported is always read back from the hardware. When a change fails in the middle, the rest is planned again
from what is there and tried once more; if that fails too, what was there before is restored as far as possible. Either
way the answer says which layout is left, so that whoever asked can go on from there.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from gpuloom.gpus.host import mig
from gpuloom.gpus.host.cpu import parse_devices, this_machine
from gpuloom.gpus.host.cpu_driver import cpu_driver
from gpuloom.gpus.host.driver import GpuState, OpenDriver, StepFailed
from gpuloom.gpus.host.nvml import Code
from gpuloom.gpus.host.ownership import Claims, Found, Refused, state_dir
from gpuloom.gpus.layouts import check
from gpuloom.gpus.model import GpuModel, Instance, Layout
from gpuloom.gpus.steps import Destroy, Step, plan_steps

PATIENCE_S, AGAIN_S = 30.0, 0.5
"""So long a GPU may be in use after whoever used it has gone; between two tries."""

Choice = Callable[[GpuState], Layout]
"""A target that depends on what is there, chosen while the GPU is locked."""


@dataclass(frozen=True, slots=True)
class Goal:
    layout: Layout
    mig: bool
    """Off only with an empty layout: then the GPU can be used whole."""


@dataclass(frozen=True, slots=True)
class CutOutcome:
    """What came of a cut."""

    gpu: int
    model: GpuModel
    before: Layout
    """Every instance that was there, half-made ones included."""
    target: Layout
    steps: tuple[Step, ...]
    """The way from one to the other, as planned."""
    layout: Layout | None
    """The usable instances now, read from the hardware; None if it no longer answers."""
    mig: bool | None
    uuids: dict[Instance, str]
    """What to put into CUDA_VISIBLE_DEVICES, for each instance."""
    half_made: Layout
    """Instances that take up room and cannot be used: neither completing nor destroying them worked."""
    reason: str | None
    """Why the target was not reached; None if it was."""
    in_use: bool = False
    """That is because the driver says that it is in use: it does so for a while after a process has gone."""
    remedy: str | None = None
    """What somebody has to do before it can be, as an order; None: nothing that is known."""

    @property
    def reached(self) -> bool:
        return self.reason is None


class Cutter:
    """This host's devices, GPUs unless told. One that was taken stays locked for others until this is closed."""

    def __init__(
        self, open_driver: OpenDriver = mig.nvml_driver, folder: Path | None = None, *, whole: bool = False
    ) -> None:
        """`whole`: GPUs that cannot be cut are taken too, to be used as they are."""
        self._folder, self._open, self._whole = folder or state_dir(), open_driver, whole
        self.notice: Callable[[str], None] = lambda _: None
        """Hears what is waited for."""
        self._stack = ExitStack()
        self._models: dict[int, GpuModel] = {}

    def __enter__(self) -> "Cutter":
        with ExitStack() as stack:
            self.driver = stack.enter_context(self._open())
            self._claims = stack.enter_context(Claims(self._folder))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def count(self) -> int:
        return self.driver.count()

    @property
    def noun(self) -> str:
        """What sentences call its devices, which are all of one kind: GPUs, unless one has answered that it is not."""
        with suppress(StepFailed):
            if not self._models:
                self.look(0)
        return next((model.noun for model in self._models.values()), "GPU")

    def look(self, gpu: int) -> GpuState:
        """The GPU as it is now; StepFailed if the driver does not tell."""
        state = self.driver.look(gpu, self._models.get(gpu))
        if state.told:
            self._models[gpu] = state.model
        return state

    def forget_models(self) -> None:
        """Numbers have changed: what was known of one may be true of another now."""
        self._models.clear()

    def found(self, gpu: int) -> Found | None:
        """How this GPU looked when gpuloom took it; None if it is not ours."""
        return self._claims.found(self.driver.uuid(gpu))

    def managed(self, gpu: int) -> str | None:
        """Why gpuloom does not manage this GPU and could not take it now; None if it does or could."""
        try:
            with self.driver.awake():
                return self._claims.holder(self.driver.uuid(gpu)) or self._not_ours(self.look(gpu))
        except (StepFailed, Refused) as reason:
            return str(reason)

    def take(self, gpu: int) -> GpuState:
        """Make a GPU ours: lock it and write down how it was found. Refused, with the reason, where it is not ours."""
        with self._owned(gpu) as state:
            self._remember(state)
            return state

    @contextmanager
    def _owned(self, gpu: int) -> Iterator[GpuState]:
        """Lock a GPU that is ours or could be, and look at it. If it comes to nothing, a new lock is given back."""
        try:
            uuid = self.driver.uuid(gpu)
        except StepFailed as failure:
            raise Refused(str(failure)) from failure
        held = self._claims.holds(uuid)
        self._claims.lock(uuid)
        try:
            # Looked at only now: what is seen while another one is cutting is a mixture.
            with self.driver.awake():
                state = self.look(gpu)
                reason = self._not_ours(state)
            if reason is not None:
                raise Refused(reason)
            yield state
        except BaseException as error:
            if not held:
                self._claims.unlock(uuid)
            if isinstance(error, StepFailed):
                raise Refused(str(error)) from error
            raise

    def _remember(self, state: GpuState) -> None:
        if self._claims.found(state.uuid) is None:
            reason = self.driver.reserve(state.index)
            if reason is not None:
                raise Refused(reason)
            self._claims.remember(Found(state.uuid, state.mig, state.occupied))

    def _not_ours(self, state: GpuState) -> str | None:
        if not state.model.mig and state.told and not self._whole:
            return f"{state.product} has no MIG, so it cannot be cut"
        other = self.driver.why_not_ours(state.index)
        if other is not None:
            return other
        if state.processes and self._claims.found(state.uuid) is None:
            return f"it is in use by {_listed(state)}, and gpuloom takes only idle {state.model.noun}s"
        return None

    def refusal(self, state: GpuState, target: Layout, mig_on: bool) -> str | None:
        """Why this cut would be wrong to begin, with the GPU as it is; None if nothing speaks against it."""
        noun, reason = state.model.noun, check(state.model, target)
        if reason is not None:
            return f"the layout is impossible on {state.model.name}: {reason}"
        reason = check(state.model, state.occupied)
        if reason is not None:
            return f"what is on the {noun} is not understood: {reason}"
        if state.mig != mig_on and state.processes:
            what = "MIG mode" if noun == "GPU" else "whether it is cut"
            return f"{what} cannot change while the {noun} is in use by {_listed(state)}"
        stop = plan_steps(state.model, state.occupied, target, state.busy).must_stop
        split = {part.instance for part in state.parts if part.uuid is None and not self.driver.mends_in_place}
        victims = [process for process in state.processes if process.instance in {*stop, *split}]
        if victims:
            return "; ".join(f"{process} runs on {process.instance}" for process in victims) + ": stop it first"
        return None

    def apply(
        self, gpu: int, target: Layout | Choice, keep_mig: bool = False, patience_s: float = PATIENCE_S
    ) -> CutOutcome:
        """Bring a GPU to a layout. `()` is a GPU to be used whole, so MIG is switched off, unless `keep_mig`.

        As long as the driver says that it is in use, it is tried again, for `patience_s`.
        """
        with self._owned(gpu) as state:
            layout = target(state) if callable(target) else target
            return self._apply(state, Goal(layout, bool(layout) or keep_mig), patience_s)

    def leave(self, gpu: int, patience_s: float = PATIENCE_S) -> CutOutcome:
        """Bring a GPU back to how it was found and give it up. If that fails it stays ours, to be tried again."""
        with self._owned(gpu) as state:
            found = self._claims.found(state.uuid)
            if found is None:
                raise Refused("gpuloom has not taken it, so there is nothing to restore")
            cut = self._apply(state, Goal(found.layout, found.mig), patience_s)
        if cut.reached:
            self.driver.release(gpu)
            self._claims.forget(found.uuid)
            self._claims.unlock(found.uuid)
        return cut

    def _apply(self, state: GpuState, goal: Goal, patience_s: float) -> CutOutcome:
        reason = self.refusal(state, goal.layout, goal.mig)
        if reason is not None:
            raise Refused(reason)
        self._remember(state)  # before the first change, so that it can be undone whatever happens
        try:
            problem = self._insist(state, goal, patience_s)
        except KeyboardInterrupt:
            self._try(state, Goal(state.occupied, state.mig))
            raise
        # A mode that waits for a reset is left waiting, as it was asked for. Any other is taken back, or it would
        # happen at some later reset, when nobody thinks of it any more.
        if problem is not None and problem.code not in (Code.RESET_REQUIRED, Code.GPU_IS_LOST):
            self._try(state, Goal(state.occupied, state.mig))
        return self._report(state, goal, problem)

    def _insist(self, state: GpuState, goal: Goal, patience_s: float) -> StepFailed | None:
        """Once more after any error, and for as long as there is patience while it is said to be in use."""
        problem, until_s, told = self._try(state, goal), time.monotonic() + patience_s, False
        if problem is not None and problem.worth_repeating:
            problem = self._try(state, goal)
        while self.driver.lingers and _is_in_use(problem) and time.monotonic() < until_s:
            if not told:
                self.notice(f"{state.model.noun} {state.index}: {problem}; waiting for it, {patience_s:g} s at most")
                told = True
            time.sleep(AGAIN_S)
            problem = self._try(state, goal)
        return problem

    def _try(self, state: GpuState, goal: Goal) -> StepFailed | None:
        """Each time with the driver opened anew: what it was told of a GPU that has been reset since is dead."""
        try:
            with self.driver.awake():
                self._reach(state.index, goal)
        except StepFailed as failure:
            return failure
        return None

    def _reach(self, gpu: int, goal: Goal) -> None:
        """From whatever is there to the goal, and look whether it is really so."""
        state = self.look(gpu)
        if goal.mig and not (state.mig and state.mig_pending):
            self.driver.set_mode(state, on=True)
            state = self._same(state)  # the switch may have unbound and reset the device
        for step in plan_steps(state.model, state.occupied, goal.layout, state.busy).steps:
            self._step(state, step)
        after = self.look(gpu)
        for part in after.parts:
            if part.uuid is None:
                self.driver.mend(after, part)
        if not goal.mig:
            self.driver.set_mode(after, on=False)
        after = self._same(state)
        if (after.layout, after.occupied, after.mig) != (goal.layout, goal.layout, goal.mig):
            shown = ", ".join(map(str, after.layout)) or "no instance"
            raise StepFailed(f"read back: the driver reported success, but the {after.model.noun} shows {shown}")
        other = self.driver.why_not_ours(state.index)
        if other is not None:
            raise StepFailed(f"read back: {other}, so it may not stay as it is")

    def _same(self, state: GpuState) -> GpuState:
        after = self.look(state.index)
        if after.uuid != state.uuid:
            raise StepFailed(f"{state.model.noun} {state.index} is another one now: {after.uuid}", Code.GPU_IS_LOST)
        return after

    def _step(self, state: GpuState, step: Step) -> None:
        if isinstance(step, Destroy):
            part = next(part for part in state.parts if part.instance == step.instance)
            self.driver.destroy(state, part)
        else:
            self.driver.create(state, step.instance)

    def _report(self, before: GpuState, goal: Goal, problem: StepFailed | None) -> CutOutcome:
        after = None
        for _ in range(2):  # one bad answer is no reason to give a GPU up
            with suppress(StepFailed):
                after = after or self._same(before)
        steps = plan_steps(before.model, before.occupied, goal.layout, before.busy).steps
        reason = None if problem is None else str(problem)
        if after is None:
            reason = reason or f"{before.model.noun} {before.index} no longer answers"
        elif reason is None and (after.layout, after.mig) != (goal.layout, goal.mig):
            reason = f"it was reached, but somebody has changed the {before.model.noun} since"
        return CutOutcome(
            before.index,
            before.model,
            before.occupied,
            goal.layout,
            steps,
            layout=None if after is None else after.layout,
            mig=None if after is None else after.mig,
            uuids={} if after is None else after.uuids,
            half_made=() if after is None else tuple(sorted(set(after.occupied) - set(after.layout))),
            reason=reason,
            in_use=self.driver.lingers and _is_in_use(problem),
            remedy=None if problem is None else problem.remedy,
        )


def cutter_of(devices: Sequence[str] = (), *, whole: bool = False) -> Cutter:
    """Of the devices that the command line names; without a name, of this host's GPUs."""
    if not devices:
        return Cutter(whole=whole)
    return Cutter(partial(cpu_driver, parse_devices(devices, this_machine()), state_dir()))


def _is_in_use(problem: StepFailed | None) -> bool:
    return problem is not None and problem.code == Code.IN_USE


def _listed(state: GpuState) -> str:
    return ", ".join(map(str, state.processes))
