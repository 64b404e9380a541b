"""Adds up the workers' gradients, in buckets, while the backward pass still runs; and squares them for the noise.

Gradients arrive weighted by samples, so their sum is the gradient of the mean over the whole batch, however it was
split. The last bucket waits for the end of the pass and carries a few numbers more: a step needs no collective of its
own to agree on anything. A parameter without a gradient counts as having one of zero, whatever the number of workers.

What a backward pass adds to a parameter whose bucket has gone (reentrant activation checkpointing does, pass within
pass) is left over, and is added up after it. Who was surprised so once keeps its buckets until the end from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.steps.group import Group

BUCKET_BYTES = 8 << 20
WIDE = (torch.float32, torch.float64)


@dataclass(slots=True)
class Bucket:
    parameters: list[torch.Tensor]
    waiting: int = 0
    flat: torch.Tensor | None = None
    work: Any = None

    def gather(self) -> torch.Tensor:
        """A copy: what is added to the parameters' gradients from now on is apart from it."""
        flat = torch.cat([_gradient(one).reshape(-1) for one in self.parameters])
        for one in self.parameters:
            one.grad = None
        return flat

    def scatter(self) -> None:
        at = 0
        assert self.flat is not None
        for one in self.parameters:
            one.grad = self.flat[at : at + one.numel()].view(one.shape)
            at += one.numel()


@dataclass(slots=True)
class Sums:
    """Of one step, over all workers."""

    extras: list[float]
    parts_sqr: float
    whole_sqr: float
    parts: int
    """Whose gradients tell the noise; 0 if they were not whole when they were squared."""


@dataclass(slots=True)
class Step:
    """What is known while a step runs."""

    group: Group
    extras: list[float]
    figures: Sequence[torch.Tensor] = ()
    """Tensors that are averaged with the gradients; weighted by `share`."""
    share: float = 1.0
    """This worker's part of the step's samples."""
    launched: int = 0
    parts_sqr: list[torch.Tensor] = field(default_factory=list)


class Reducer:
    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters: list[torch.Tensor] = []
        self._buckets: list[Bucket] = []
        self._of: dict[int, Bucket] = {}
        self._hooks: dict[int, Any] = {}
        self._early = True
        """Whether a bucket goes as soon as it is full."""
        self._step: Step | None = None
        self._kept: dict[torch.Tensor, torch.Tensor] | None = None
        self._pass_sqr: list[tuple[torch.Tensor, float]] = []
        self.follow(parameters)

    def follow(self, parameters: Sequence[torch.Tensor]) -> None:
        """The optimiser's parameters as they are now: some may have been added, frozen or unfrozen since."""
        wanted = [one for one in parameters if one.requires_grad]
        if [id(one) for one in wanted] == [id(one) for one in self.parameters] and self._buckets:
            return
        if not wanted:
            raise ElasticError("the optimiser has no parameter that wants a gradient")
        for number in self._hooks.keys() - {id(one) for one in wanted}:
            self._hooks.pop(number).remove()
        for one in wanted:
            if id(one) not in self._hooks:
                one.grad = None  # of before: nobody's business in this step
                self._hooks[id(one)] = one.register_post_accumulate_grad_hook(self._arrived)
        self.parameters, self._buckets = wanted, _in_buckets(wanted)
        self._of = {id(one): bucket for bucket in self._buckets for one in bucket.parameters}

    def last_pass(self, step: Step) -> None:
        """The coming backward pass completes this worker's gradient: buckets may go as soon as they are full."""
        self._step = step
        for bucket in self._buckets:
            bucket.waiting, bucket.flat, bucket.work = len(bucket.parameters), None, None

    def pass_done(self, share: float) -> None:
        """For a lone worker: its passes are the parts that tell the noise, so their gradients are kept apart."""
        gradients = [_gradient(one) for one in self.parameters]
        if share > 0:
            self._pass_sqr.append((_square(gradients), share))
        kept = self._kept = self._kept or {}
        for one, gradient in zip(self.parameters, gradients, strict=True):
            kept[one] = gradient if one not in kept else kept[one].add_(gradient)
            one.grad = None

    def finish(self) -> Sums | None:
        """Wait for all sums; gradients are then the whole batch's. None if the group has failed."""
        step = self._step
        assert step is not None
        if self._kept is not None:
            for one in self.parameters:
                one.grad = self._kept.get(one)
        late = any(one.grad is not None for bucket in self._buckets[: step.launched] for one in bucket.parameters)
        while step.launched < len(self._buckets):
            self._launch(step, late)
        self._step = None
        if not all(step.group.wait(bucket.work) for bucket in self._buckets):
            return None
        return self._sums(step)

    def forget(self) -> None:
        """The step is over, or is to be done again."""
        self._step, self._kept = None, None
        self._pass_sqr.clear()
        for one in self.parameters:
            one.grad = None

    def _arrived(self, parameter: torch.Tensor) -> None:
        step = self._step
        if step is None or step.group.size == 1 or not self._early:
            return
        self._of[id(parameter)].waiting -= 1
        while step.launched < len(self._buckets) - 1 and self._buckets[step.launched].waiting <= 0:
            self._launch(step)

    def _launch(self, step: Step, late: bool = False) -> None:
        """In the same order everywhere."""
        bucket = self._buckets[step.launched]
        step.launched += 1
        last = step.launched == len(self._buckets)
        if bucket.parameters:
            bucket.flat = bucket.gather()
            step.parts_sqr.append(_square([bucket.flat]))
        if last:
            bucket.flat = self._with_extras(step, bucket.flat, late)
        assert bucket.flat is not None
        bucket.work = step.group.sum(bucket.flat)

    def _with_extras(self, step: Step, flat: torch.Tensor | None, late: bool) -> torch.Tensor:
        device = self.parameters[0].device
        dtype = torch.float32 if flat is None else flat.dtype
        mine = torch.stack(step.parts_sqr).sum() / step.share if step.share > 0 else torch.zeros((), device=device)
        counted = torch.tensor([float(step.share > 0), float(late), *step.extras], device=device)
        tail = [mine.reshape(1).to(dtype), counted.to(dtype)]
        tail += [figure.reshape(-1).to(dtype) * step.share for figure in step.figures]
        return torch.cat([*([] if flat is None else [flat]), *tail])

    def _sums(self, step: Step) -> Sums | None:
        last = self._buckets[-1]
        assert last.flat is not None
        at = sum(one.numel() for one in last.parameters)
        parts_sqr, parts, late, *extras = last.flat[at : at + 3 + len(step.extras)].tolist()
        at += 3 + len(step.extras)
        if late and not self._add_up_the_late(step):
            return None
        for figure in step.figures if step.group.size > 1 else ():
            figure.copy_(last.flat[at : at + figure.numel()].view(figure.shape))
            at += figure.numel()
        for bucket in self._buckets:
            bucket.scatter()
        whole = squared([one.grad for one in self.parameters])
        if self._pass_sqr:
            parts = len(self._pass_sqr)
            parts_sqr = sum(float(square) / share for square, share in self._pass_sqr)
        return Sums(extras, parts_sqr, whole, 0 if late else round(parts))

    def _add_up_the_late(self, step: Step) -> bool:
        """Somebody has something left over, so all add up what they have of it. False if the group has failed."""
        self._early = False
        rest = [bucket.gather() for bucket in self._buckets if bucket.parameters]
        under_way = [step.group.sum(flat) for flat in rest]
        if not all(step.group.wait(work) for work in under_way):
            return False
        for bucket, flat in zip((one for one in self._buckets if one.parameters), rest, strict=True):
            assert bucket.flat is not None
            bucket.flat[: len(flat)] += flat
        return True


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    if parameter.grad.layout is not torch.strided:
        raise ElasticError("a gradient is sparse, as of an embedding with sparse=True; only dense ones are added up")
    return parameter.grad


def squared(tensors: Sequence[torch.Tensor]) -> float:
    """The square norm of all of them together."""
    return float(_square(tensors))


def _square(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(torch._foreach_norm(tensors)).float().square().sum()


def _in_buckets(parameters: Sequence[torch.Tensor]) -> list[Bucket]:
    """In about the order in which gradients arrive, which is backwards. The last one is wide enough for the extras."""
    buckets: list[Bucket] = []
    room = 0
    for one in reversed(parameters):
        size = one.numel() * one.element_size()
        new = not buckets or buckets[-1].parameters[0].dtype != one.dtype or size > room
        if new:
            buckets.append(Bucket([]))
            room = BUCKET_BYTES
        buckets[-1].parameters.append(one)
        room -= size
    if buckets and buckets[-1].parameters[0].dtype not in WIDE:
        buckets.append(Bucket([]))
    return buckets
