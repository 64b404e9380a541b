"""One training on one worker: steps, and between them whatever changes. The user's loop sees samples, and no change.

Between two steps a worker may park: it says how far it is and does what it is told. That is how it joins, goes on
with other workers or another batch, saves, leaves and ends.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from gpuloom.train.elastic.actions import NO_STATE
from gpuloom.train.elastic.checkpoint import UnsavedError, load, save
from gpuloom.train.elastic.reports import report_progress
from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.state import Training, receive_state, send_state
from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.scaling import Ramp
from gpuloom.train.elastic.steps.stepper import Stepper, Told
from gpuloom.train.elastic.wire import Message
from gpuloom.train.elastic.words import tell

if TYPE_CHECKING:
    from gpuloom.train.elastic.worker import Worker


class Leave(BaseException):
    """This worker is not needed any more: unwinds the user's loop."""


class Job:
    """What `Worker.wrap` returns."""

    def __init__(self, worker: "Worker", training: Training, stepper: Stepper, samples: int) -> None:
        self._worker, self._settings, self._control = worker, worker.settings, worker.control
        self._training, self._stepper, self._samples = training, stepper, samples
        self._group: Group | None = None
        self._has_state = False
        self._first_of_round = True
        self._park_due = self._ended = False
        self._told = Told(0.0, None, park=False, finish=False)
        self._saved_at = time.monotonic()
        self._stepped_at = 0.0

    # --- what the user's loop sees

    @property
    def rank(self) -> int:
        return self._group.rank if self._group is not None else 0

    @property
    def workers(self) -> int:
        return self._group.size if self._group is not None else 1

    @property
    def round(self) -> int:
        """Counts the groups that were formed."""
        return self._group.round if self._group is not None else 0

    @property
    def step(self) -> int:
        return self._training.at.step

    @property
    def epoch(self) -> int:
        return self._training.at.epoch

    @property
    def batch(self) -> int:
        return self._training.at.batch

    @property
    def step_samples(self) -> int:
        """Of the step that runs, over all workers: the batch, or what is left of the epoch."""
        return self._stepper.step_samples

    @property
    def counts(self) -> bool:
        """False while this worker computes samples of another, because there are fewer samples than workers."""
        return self._stepper.counts

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`."""
        self._join()
        while True:
            while self._training.at.epoch < count and not self._training.at.finished:
                yield self._training.at.epoch
                self._park_while_due()
            if self._end():
                return

    def batches(self, epochs: int | None = None) -> Iterator[Any]:
        """This worker's samples, pass by pass: of the epoch that runs, or of all that are left of `epochs`."""
        if epochs is not None:
            for _ in self.epochs(epochs):
                yield from self.batches()
            return
        self._join()
        epoch = self._training.at.epoch
        while self._training.at.epoch == epoch and not self._training.at.finished:
            if self._must_park():
                self._park()
            else:
                self._save_now_and_then()
                yield from self._stepper.passes(self._present())

    def backward(self, loss: torch.Tensor, metric: float | None = None) -> bool:
        """After each pass, with the mean of the loss over its samples. True if the step was applied with it."""
        group = self._present()
        self._stepper.wants_to_park = group.rank == 0 and self._control.park_round == group.round
        told = self._stepper.backward(group, loss, metric)
        if told is None:
            return False
        self._told, self._park_due = told, told.park
        self._training.at.finished = self._training.at.finished or told.finish
        if group.rank == 0:
            self._report(group)
        self._first_of_round = False
        return True

    def finish(self) -> None:
        """End training after this step, on all workers, as if it were the last one. Any worker may say so."""
        self._stepper.wants_to_finish = True

    # --- between two steps

    def _present(self) -> Group:
        if self._group is None:
            raise ElasticError("job.backward is called in the loop over job.batches()")
        return self._group

    def _report(self, group: Group) -> None:
        at, stepper = self._training.at, self._stepper
        if self._first_of_round:
            paused_s = max(stepper.begun_at - self._stepped_at, 0.0) if self._stepped_at else 0.0
            self._control.say(say="going", round=group.round, step=at.step, pause_s=paused_s, batch=at.batch)
        if stepper.watch.due():
            self._control.say(say="at", step=at.step)
            report_progress(at, stepper.watch, self._told.loss, self._told.metric, group.size, *self._local())

    def _local(self) -> tuple[int, int]:
        return self._stepper.local_samples, self._stepper.accumulation

    def _must_park(self) -> bool:
        return self._park_due or self._group is None or not self._group.works()

    def _park_while_due(self) -> None:
        while self._must_park() and not self._ended:
            self._park()

    def _join(self) -> None:
        """The first time: warm, wait to be called."""
        if self._group is None:
            self._control.say(say="ready", samples=self._samples, model=self._training.shape())
            self._obey()
            self._park_while_due()

    def _park(self, ended: bool = False) -> None:
        group = self._present()
        self._park_due = False
        failed = group.failed is not None
        if failed:
            group.close()
        step = self._training.at.step if self._has_state else NO_STATE
        self._control.say(say="parked", round=group.round, step=step, failed=failed, ended=ended and not failed)
        self._obey()

    def _obey(self) -> None:
        """Do as told, until it is to train (or has ended)."""
        while True:
            order = self._control.order()
            match order["do"]:
                case "go":
                    self._begin_with(order["batch"])
                    return
                case "form":
                    self._form(order)
                    return
                case "save":
                    if self._save_or_say():
                        self._control.say(say="saved")
                case "finish":
                    self._ended = True
                    return
                case "leave":
                    raise Leave

    def _form(self, order: Message) -> None:
        """Meet the others of the next round; who lacks the state gets it from one who has it."""
        old = self._group
        group = self._group = Group(order["round"], order["rank"], order["size"], self._worker.device)
        self._control.group = group
        if old is not None and old.failed is None:
            old.close()
        address, port = order["store"]
        group.form(address, port, self._settings.timeout_s)
        if order["restore"] and group.rank == order["source"]:
            self._restore(order["begun"])
        if group.rank == order["source"] and order["lacking"]:
            send_state(group, self._training.gather(), order["lacking"])
        elif group.rank in order["lacking"] and group.works():
            state = receive_state(group, order["source"])
            if state is not None:
                self._training.put_back(state)
                self._has_state = True
        if self._has_state and group.works():
            self._begin_with(order["batch"] or self._training.at.batch)

    def _begin_with(self, batch: int) -> None:
        at = self._training.at
        if batch != at.batch:
            at.ramp, at.batch = Ramp(at.factor, at.step), batch
        self._stepped_at, self._first_of_round = at.stepped_at, True
        self._stepper.regrouped()

    def _restore(self, begun: bool) -> None:
        """Nobody has a state: the checkpoint's, or the one that the model was built with. `begun`: somebody had one."""
        at, initial = self._training.at, min(self._settings.batch, self._samples)
        at.batch, at.initial, at.samples = self._settings.allowed(initial), initial, self._samples
        at.seed = self._settings.seed
        state = load(self._settings.checkpoint_dir, self._worker.launch, self._worker.resume, begun)
        if state is not None:
            known = state["at"]["samples"]
            if known != self._samples:
                raise ElasticError(f"the checkpoint is of a data set of {known} samples, not of {self._samples}")
            state["at"].setdefault("seed", self._settings.seed)  # not in checkpoints of before
            self._training.put_back(state)
            at = self._training.at = self._training.at.counted_in(initial)
            at.batch = self._settings.allowed(min(at.batch, self._samples))
            if at.finished:
                tell(f"the training of this checkpoint was finished after step {at.step}: nothing is left to do")
        self._has_state = True

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        save(self._settings.checkpoint_dir, self._training.gather(), self._worker.launch)

    def _save_now_and_then(self) -> None:
        """Between two steps, when the loop has done all that belongs to the last one."""
        if self.rank == 0 and time.monotonic() - self._saved_at > self._settings.checkpoint_s:
            try:
                self._save()
            except UnsavedError as error:
                tell(f"{error} (training goes on; tried again in {self._settings.checkpoint_s:g} s)")

    def _save_or_say(self) -> bool:
        """For good: that it failed is told to the fork server, whose exit code says so."""
        try:
            self._save()
        except UnsavedError as error:
            self._control.say(say="unsaved", why=str(error))
            return False
        return True

    # --- the end

    def _end(self) -> bool:
        """All epochs are done here; True once they are on all workers. Else somebody fell behind, and is helped."""
        if not self._is_over():
            self._park(ended=True)
            self._park_while_due()
            if self._is_over() and self.rank == 0:
                self._save_or_say()
                at, told = self._training.at, self._told
                report_progress(at, self._stepper.watch, told.loss, told.metric, self.workers, *self._local())
        return self._is_over()

    def _is_over(self) -> bool:
        return self._ended

    def returned(self) -> None:
        """The training function is done. If that is before the last epoch, all workers have to agree."""
        if self._group is None:
            raise ElasticError("train() returned without a loop over job.epochs() or job.batches()")
        if self._ended:
            return
        self._training.at.finished = True
        if not self._end() and not self._end():
            raise ElasticError("train() returned on one worker while others go on; job.finish() ends it on all of them")
