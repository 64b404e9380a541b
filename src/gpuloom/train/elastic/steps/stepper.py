"""One step at a time: samples out, gradients in, the optimiser's step once all workers were heard. Knows no changes.

A step that fails leaves no trace: nothing is applied before every gradient has been added up, and what forward passes
left in batch norms is put back. What is random in a pass depends on the seed, the step, the pass and the rank alone.
"""

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpuloom.train.elastic.reports import Stopwatch
from gpuloom.train.elastic.settings import ElasticError, Every, Settings
from gpuloom.train.elastic.state import Training
from gpuloom.train.elastic.steps.batchnorm import Here, differing_figures, running_figures
from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.noise import estimate, gain
from gpuloom.train.elastic.steps.reducer import Reducer, Step, Sums, squared
from gpuloom.train.elastic.steps.sampler import Pass, mixed, passes, permutation, step_end
from gpuloom.train.elastic.steps.scaling import chosen, factor


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose when the model was wrapped."""

    every: Every
    clip_norm: float | None
    measure_noise: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What the workers told each other with the step's gradients."""

    loss: float
    metric: float | None
    park: bool
    finish: bool


class Stepper:
    def __init__(
        self,
        training: Training,
        settings: Settings,
        options: Options,
        samples: int,
        fetch: Callable[[torch.Tensor], Any],
        device: torch.device,
    ) -> None:
        self._training, self._settings, self._options = training, settings, options
        self._samples, self._fetch, self._device = samples, fetch, device
        self._scaling = chosen(settings.scaling, type(training.optimiser).__name__)
        self._reducer = Reducer(training.trained())
        self._figures = differing_figures(training.model)
        self._before: list[torch.Tensor] = []
        self._last_gradient: tuple[int, list[torch.Tensor]] | None = None
        """Of a lone worker: over how many samples, and what it was."""
        self._pass: Pass | None = None
        self._left = 0
        self._loss = self._metric = 0.0
        self.watch = Stopwatch(device)
        self.step_samples = 0
        self.local_samples = 0
        self.accumulation = 1
        self.begun_at = 0.0
        self.wants_to_park = self.wants_to_finish = False
        """What this worker has to say with its next gradient."""

    @property
    def counts(self) -> bool:
        return self._pass is None or self._pass.counts

    def passes(self, group: Group) -> Iterator[Any]:
        """The samples of this worker's passes. `backward` is called between them."""
        at = self._training.at
        end = step_end(self._samples, at.batch, at.position, self._settings.drop_last)
        if end is None:
            self._next_epoch()
            return
        self.step_samples = end - at.position
        parts = passes(self.step_samples, group.size, group.rank, self._settings.max_local_batch)
        self.accumulation, self.local_samples = len(parts), sum(part.samples for part in parts)
        self._loss = self._metric = 0.0
        self._before = [buffer.clone() for buffer in running_figures(self._training.model)]
        order = permutation(self._samples, at.seed, at.epoch)
        step, self.begun_at = at.step, time.monotonic()
        self.watch.begin()
        for number, part in enumerate(parts):
            self._seed(number, group.rank)
            self._pass, self._left = part, len(parts) - number - 1
            Here.group, Here.counts = group, part.counts
            yield self._fetch(order[at.position + part.start : at.position + part.stop])
            if self.waits_for_loss():
                raise ElasticError("the loop asked for the next samples without job.backward(loss) for the last ones")
            if not group.works():
                break
        if at.step == step:  # the group may also have failed after it was applied
            self._undo()

    def waits_for_loss(self) -> bool:
        return self._pass is not None

    def backward(self, group: Group, loss: torch.Tensor, metric: float | None) -> Told | None:
        """Of one pass; what was told once the step is applied, else None."""
        part = self._pass
        if part is None:
            raise ElasticError("job.backward was called twice for the same samples, or outside job.batches")
        if loss.numel() != 1:
            raise ElasticError(
                f"job.backward takes the mean of the loss, one number; this has the shape {tuple(loss.shape)}"
            )
        self._pass, share = None, part.samples / self.step_samples
        self._loss += float(loss.detach()) * share
        self._metric += (metric or 0.0) * share
        last = self._left == 0
        self._reducer.follow(self._training.trained())
        if last:
            extras = [self._loss, self._metric, float(self.wants_to_park), float(self.wants_to_finish)]
            self._reducer.last_pass(Step(group, extras, self._figures, self.local_samples / self.step_samples))
        weighted = loss * share
        (weighted if self._training.scaler is None else self._training.scaler.scale(weighted)).backward()
        if group.size == 1 and self._options.measure_noise and self.accumulation > 1:
            self._reducer.pass_done(share)
        if not last:
            return None
        self.watch.computed()
        sums = self._reducer.finish()
        if sums is None:
            return None
        self._apply(sums)
        mean_loss, mean_metric, park, finish = sums.extras
        return Told(mean_loss, None if metric is None else mean_metric, park > 0, finish > 0)

    def regrouped(self) -> None:
        """Others compute now: the last gradient says nothing about the next one's noise."""
        self._last_gradient = None

    def _seed(self, number: int, rank: int) -> None:
        seed = mixed(self._training.at.seed, self._training.at.step, number, rank)
        torch.default_generator.manual_seed(seed)
        if self._device.type == "cuda":
            torch.cuda.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)

    def _undo(self) -> None:
        """As before the step: only forward passes have left traces."""
        self._reducer.forget()
        self._pass = None
        for buffer, before in zip(running_figures(self._training.model), self._before, strict=True):
            buffer.copy_(before)

    def _apply(self, sums: Sums) -> None:
        training, at = self._training, self._training.at
        squared_scale = 1.0
        if training.scaler is not None:
            squared_scale = float(training.scaler.get_scale()) ** 2
            training.scaler.unscale_(training.optimiser)
        if self._options.measure_noise:
            self._measure(sums, squared_scale)
        if self._options.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._reducer.parameters, self._options.clip_norm)
        scale = at.batch / at.initial
        goal = factor(self._scaling, scale, at.noise)
        at.factor = at.ramp.at(at.step, goal, self._settings.warmup_steps)
        self._optimise(at.factor)
        self._reducer.forget()
        self._advance(gain(at.noise, scale))
        self.watch.end()
        at.stepped_at = time.monotonic()

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

    def _measure(self, sums: Sums, squared_scale: float) -> None:
        """The noise, from workers, from passes, or (a lone worker with one pass) from this step and the last one."""
        at, batch = self._training.at, self.step_samples
        parts, whole = sums.parts_sqr / squared_scale, sums.whole_sqr / squared_scale
        seen = None
        if sums.parts > 1:
            seen = estimate(parts, whole, sums.parts, batch, at.initial)
        elif sums.parts == 1:
            seen = self._against_last(whole, batch, at.initial)
        if seen is not None and all(abs(value) < float("inf") for value in seen):
            at.noise = at.noise.seen(*seen)

    def _against_last(self, whole: float, batch: int, initial: int) -> tuple[float, float] | None:
        """Two gradients in a row, each weighted by its samples: the last step of an epoch may have had fewer."""
        mine = [one.grad.detach().clone() for one in self._reducer.parameters]
        before, self._last_gradient = self._last_gradient, (batch, mine)
        if before is None or len(before[1]) != len(mine):
            return None
        last_batch, last = before
        share = batch / (batch + last_batch)
        mean = torch._foreach_lerp(last, mine, share)
        parts_sqr = share * whole + (1 - share) * squared(last)
        return estimate(parts_sqr, squared(mean), 2, batch + last_batch, initial)

    def _advance(self, worth: float) -> None:
        at, scheduler = self._training.at, self._training.scheduler
        before = int(at.progress)
        at.step += 1
        at.position += self.step_samples
        at.visited += self.step_samples
        at.progress += worth
        times = {Every.STEP: 1, Every.PROGRESS: int(at.progress) - before}.get(self._options.every, 0)
        for _ in range(times if scheduler is not None else 0):
            self._schedule()
        if step_end(self._samples, at.batch, at.position, self._settings.drop_last) is None:
            self._next_epoch()

    def _next_epoch(self) -> None:
        self._training.at.epoch += 1
        self._training.at.position = 0
        if self._training.scheduler is not None and self._options.every is Every.EPOCH:
            self._schedule()

    def _schedule(self) -> None:
        """A scheduler that knows its last step (as OneCycleLR) stays there: batches decide how many there are."""
        scheduler = self._training.scheduler
        if getattr(scheduler, "last_epoch", 0) + 1 < getattr(scheduler, "total_steps", math.inf):
            scheduler.step()
