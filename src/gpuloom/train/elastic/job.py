"""One training on one worker: steps, and between them whatever changes. The user's loop sees samples, and no change.

A step's life: `batches` yields the samples of each pass, `backward` adds its gradient up, and after the last pass applies the
step, if all workers were heard. Between two steps a worker may park: it says how far it is and does what it is told.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gpuloom.train.elastic.batchnorm import Here, differing_figures, running_figures
from gpuloom.train.elastic.group import Group
from gpuloom.train.elastic.noise import estimate, gain
from gpuloom.train.elastic.reducer import Reducer, Step, Sums
from gpuloom.train.elastic.reports import Stopwatch, report_progress
from gpuloom.train.elastic.sampler import Pass, mixed, passes, permutation, step_end
from gpuloom.train.elastic.samples import fetcher
from gpuloom.train.elastic.scaling import Ramp, chosen, factor
from gpuloom.train.elastic.settings import ElasticError, Every
from gpuloom.train.elastic.state import Training, load, receive_state, save, send_state
from gpuloom.train.elastic.wire import Message
from gpuloom.train.job import checkpoint_dir

if TYPE_CHECKING:
    from gpuloom.train.elastic.worker import Worker

NO_STATE = -1


class Leave(BaseException):
    """This worker is not needed any more: unwinds the user's loop."""


class Job:
    """What `Worker.wrap` returns."""

    def __init__(
        self,
        worker: "Worker",
        model: nn.Module,
        optimiser: Any,
        dataset: Any,
        scheduler: Any,
        scheduler_every: Every,
        scaler: Any,
        clip_norm: float | None,
        fetch: Callable[[torch.Tensor], Any] | None,
        measure_noise: bool,
    ) -> None:
        self._worker, self._settings, self._control = worker, worker.settings, worker.control
        self._training = Training(model, optimiser, scheduler, scaler)
        self._samples = len(dataset)
        self._fetch = fetch or fetcher(dataset, worker.device)
        self._every, self._clip_norm, self._measure_noise = scheduler_every, clip_norm, measure_noise
        self._scaling = chosen(self._settings.scaling, type(optimiser).__name__)
        self._reducer = Reducer([one for group in optimiser.param_groups for one in group["params"]])
        self._figures = differing_figures(model)
        self._group: Group | None = None
        self._has_state = False
        self._first_of_round = True
        self._park_due = self._finish_asked = False
        self._pass: Pass | None = None
        self._pass_left = 0
        self._step_samples = 0
        self._loss = self._metric = 0.0
        self._figures_before: list[torch.Tensor] = []
        self._last_gradient: list[torch.Tensor] | None = None
        self._watch = Stopwatch(worker.device)
        self._saved_at = time.monotonic()
        self._ended = False

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
        return self._step_samples

    @property
    def counts(self) -> bool:
        """False while this worker computes samples of another, because there are fewer samples than workers."""
        return self._pass is None or self._pass.counts

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`."""
        self._join()
        while True:
            while self._training.at.epoch < count and not self._training.at.finished:
                yield self._training.at.epoch
                while self._must_park():
                    self._park()
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
                yield from self._passes()

    def backward(self, loss: torch.Tensor, metric: float | None = None) -> bool:
        """After each pass, with the mean of the loss over its samples. True if the step was applied with it."""
        part, group = self._pass, self._group
        if part is None or group is None:
            raise ElasticError("job.backward was called twice for the same samples, or outside job.batches")
        self._pass, share = None, part.samples / self._step_samples
        self._loss += float(loss.detach()) * share
        self._metric += (metric or 0.0) * share
        last = self._pass_left == 0
        if last:
            park = float(group.rank == 0 and self._control.park_round == group.round)
            extras = [self._loss, self._metric, park, float(self._finish_asked)]
            self._reducer.last_pass(Step(group, extras, self._figures, self._local_samples / self._step_samples))
        weighted = loss * share
        (weighted if self._training.scaler is None else self._training.scaler.scale(weighted)).backward()
        if group.size == 1 and self._measure_noise and not (last and self._pass_count == 1):
            self._reducer.pass_done(share)
        return self._apply(group, metric is not None) if last else False

    def finish(self) -> None:
        """End training after this step, on all workers, as if it were the last one. Any worker may say so."""
        self._finish_asked = True

    # --- a step

    def _passes(self) -> Iterator[Any]:
        at, group = self._training.at, self._group
        assert group is not None
        end = step_end(self._samples, at.batch, at.position, self._settings.drop_last)
        if end is None:
            self._next_epoch()
            return
        self._step_samples = end - at.position
        parts = passes(self._step_samples, group.size, group.rank, self._settings.max_local_batch)
        self._pass_count, self._local_samples = len(parts), sum(part.samples for part in parts)
        self._loss = self._metric = 0.0
        self._figures_before = [buffer.clone() for buffer in running_figures(self._training.model)]
        order = permutation(self._samples, self._settings.seed, at.epoch)
        self._watch.begin()
        if self._first_of_round:
            self._pause_s = time.monotonic() - at.stepped_at if at.stepped_at else 0.0
        for number, part in enumerate(parts):
            self._seed(number)
            self._pass, self._pass_left = part, len(parts) - number - 1
            Here.group, Here.counts = group, part.counts
            yield self._fetch(order[at.position + part.start : at.position + part.stop])
            if self._pass is not None:
                raise ElasticError("the loop asked for the next samples without job.backward(loss) for the last ones")
            if group.failed is not None:
                break
        if group.failed is not None:
            self._undo()

    def _seed(self, number: int) -> None:
        """What is random in a pass depends on the step alone, so it may be done again, or resumed."""
        seed = mixed(self._settings.seed, self._training.at.step, number, self.rank)
        torch.default_generator.manual_seed(seed)
        if self._worker.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)

    def _undo(self) -> None:
        """As before the step: only forward passes have left traces."""
        self._reducer.forget()
        self._pass = None
        for buffer, before in zip(running_figures(self._training.model), self._figures_before, strict=True):
            buffer.copy_(before)

    def _apply(self, group: Group, has_metric: bool) -> bool:
        self._watch.computed()
        sums = self._reducer.finish()
        if sums is None:
            return False
        training, at = self._training, self._training.at
        if training.scaler is not None:
            training.scaler.unscale_(training.optimiser)
        self._measure(sums)
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._reducer.parameters, self._clip_norm)
        worth = gain(at.noise, at.batch / self._settings.batch)
        goal = factor(self._scaling, at.batch / self._settings.batch, at.noise)
        at.factor = at.ramp.at(at.step, goal, self._settings.warmup_steps)
        self._optimise(at.factor)
        self._reducer.forget()
        self._advance(worth)
        loss, metric, park, finish = sums.extras
        at.finished = at.finished or finish > 0
        self._park_due = park > 0
        self._watch.end()
        at.stepped_at = time.monotonic()
        if group.rank == 0:
            self._tell(group, loss, metric if has_metric else None)
        self._first_of_round = False
        return True

    def _optimise(self, by: float) -> None:
        """One step of the optimiser with a scaled learning rate; schedulers see the unscaled one."""
        groups = self._training.optimiser.param_groups
        rates = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate * by
        try:
            if self._training.scaler is None:
                self._training.optimiser.step()
            else:
                self._training.scaler.step(self._training.optimiser)
                self._training.scaler.update()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def _measure(self, sums: Sums) -> None:
        """The noise, from workers, from passes, or (a lone worker with one pass) from this step and the last one."""
        if not self._measure_noise:
            return
        at, batch, initial = self._training.at, self._step_samples, self._settings.batch
        scale = 1.0 if self._training.scaler is None else float(self._training.scaler.get_scale()) ** 2
        whole = sum(float(one.grad.square().sum()) for one in self._reducer.parameters) if scale != 1.0 else sums.whole_sqr
        if sums.parts > 1:
            self._last_gradient = None
            seen = estimate(sums.parts_sqr / scale, whole, sums.parts, batch, initial)
        else:
            seen = self._against_last(whole, batch, initial)
        if seen is not None and all(abs(value) < float("inf") for value in seen):
            at.noise = at.noise.seen(*seen)

    def _against_last(self, whole: float, batch: int, initial: int) -> tuple[float, float] | None:
        mine = [one.grad.detach().clone() for one in self._reducer.parameters]
        last, self._last_gradient = self._last_gradient, mine
        if last is None or batch != self._training.at.batch:
            return None
        both = torch._foreach_add(last, mine)
        mean_sqr = float(torch.stack(torch._foreach_norm(both)).square().sum()) / 4
        last_sqr = float(torch.stack(torch._foreach_norm(last)).square().sum())
        return estimate((whole + last_sqr) / 2, mean_sqr, 2, 2 * batch, initial)

    def _advance(self, worth: float) -> None:
        at, scheduler = self._training.at, self._training.scheduler
        before = int(at.progress)
        at.step += 1
        at.position += self._step_samples
        at.visited += self._step_samples
        at.progress += worth
        times = {Every.STEP: 1, Every.PROGRESS: int(at.progress) - before}.get(self._every, 0)
        for _ in range(times if scheduler is not None else 0):
            scheduler.step()
        if step_end(self._samples, at.batch, at.position, self._settings.drop_last) is None:
            self._next_epoch()

    def _next_epoch(self) -> None:
        self._training.at.epoch += 1
        self._training.at.position = 0
        if self._training.scheduler is not None and self._every is Every.EPOCH:
            self._training.scheduler.step()

    def _tell(self, group: Group, loss: float, metric: float | None) -> None:
        at = self._training.at
        if self._first_of_round:
            self._control.say(say="going", round=group.round, step=at.step, pause_s=self._pause_s, batch=at.batch)
        elif self._watch.due():
            self._control.say(say="at", step=at.step)
            report_progress(
                at, self._watch, loss, metric, workers=group.size, local_batch=self._local_samples,
                accumulation=self._pass_count,
            )  # fmt: skip
        if time.monotonic() - self._saved_at > self._settings.checkpoint_s:
            self._save()

    # --- between two steps

    def _must_park(self) -> bool:
        return self._park_due or self._group is None or self._group.failed is not None

    def _join(self) -> None:
        """The first time: warm, wait to be called."""
        if self._group is None:
            self._control.say(say="ready")
            self._obey()

    def _park(self, ended: bool = False) -> None:
        group = self._group
        assert group is not None
        self._park_due = False
        if group.failed is not None:
            group.close()
        step = self._training.at.step if self._has_state else NO_STATE
        failed = group.failed is not None
        self._control.say(say="parked", round=group.round, step=step, failed=failed, ended=ended and not failed)
        self._obey()

    def _obey(self) -> None:
        """Do as told, until it is to train (or has ended)."""
        while True:
            order = self._control.order()
            match order["do"]:
                case "go":
                    self._new_batch(order["batch"])
                    self._first_of_round = True
                    return
                case "form":
                    self._form(order)
                    return
                case "save":
                    self._save()
                    self._control.say(say="saved")
                case "finish":
                    self._ended = True
                    return
                case "leave":
                    raise Leave

    def _form(self, order: Message) -> None:
        old = self._group
        group = self._group = Group(order["round"], order["rank"], order["size"], self._worker.device)
        self._control.group = group
        if old is not None and old.failed is None:
            old.close()
        group.form(*order["store"], timeout_s=self._settings.timeout_s)
        if order["restore"] and group.rank == order["source"]:
            self._restore()
        if group.rank == order["source"] and order["lacking"]:
            send_state(group, self._training.gather(), order["lacking"])
        elif group.rank in order["lacking"] and group.failed is None:
            state = receive_state(group, order["source"])
            if state is not None:
                self._training.put_back(state)
                self._has_state = True
        self._first_of_round, self._last_gradient = True, None
        if self._has_state and group.failed is None:
            self._new_batch(order["batch"] or self._training.at.batch)

    def _restore(self) -> None:
        """Nobody has a state: the checkpoint's, or the one that the model was built with."""
        state = load(checkpoint_dir(), self._worker.launch, self._worker.resume)
        if state is not None:
            if state["at"]["samples"] != self._samples:
                raise ElasticError(
                    f"the checkpoint is of a data set of {state['at']['samples']} samples, not of {self._samples}"
                )
            self._training.put_back(state)
        else:
            self._training.at.batch, self._training.at.samples = self._settings.allowed(self._settings.batch), self._samples
        self._has_state = True

    def _new_batch(self, batch: int) -> None:
        at = self._training.at
        if batch != at.batch:
            at.ramp, at.batch = Ramp(at.factor, at.step), batch

    def _save(self) -> None:
        save(checkpoint_dir(), self._training.gather(), self._worker.launch)
        self._saved_at = time.monotonic()

    # --- the end

    def _end(self) -> bool:
        """All epochs are done here; True once they are on all workers. Else somebody fell behind, and is helped."""
        if self._ended:
            return True
        self._park(ended=True)
        while not self._ended and self._must_park():
            self._park()
        if not self._ended:
            return False
        if self.rank == 0:
            with suppress(OSError):
                self._save()
            report_progress(self._training.at, self._watch, self._loss, None, self.workers, 0, 1)
        return True

    def returned(self) -> None:
        """The training function is done. If that is before the last epoch, all workers have to agree."""
        if self._group is None or self._ended:
            return
        self._training.at.finished = True
        if not self._end() and not self._end():
            raise ElasticError("train() returned on one worker while others go on; job.finish() ends it on all of them")
