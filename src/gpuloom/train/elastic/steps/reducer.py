"""Adds up the workers' gradients, in buckets, while the backward pass still runs; and squares them for the noise.

Gradients arrive weighted by samples, so their sum is the gradient of the mean over the whole batch, however it was
split. The last bucket carries a few numbers more: a step needs no collective of its own to agree on anything. A
parameter without a gradient counts as having one of zero, whatever the number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

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
        parts = [(torch.zeros_like(one) if one.grad is None else one.grad).reshape(-1) for one in self.parameters]
        return torch.cat(parts)

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
        self.parameters = [one for one in parameters if one.requires_grad]
        self._buckets = _in_buckets(self.parameters)
        self._of = {id(one): bucket for bucket in self._buckets for one in bucket.parameters}
        self._step: Step | None = None
        self._kept: list[torch.Tensor] | None = None
        self._pass_sqr: list[tuple[torch.Tensor, float]] = []
        for one in self.parameters:
            one.register_post_accumulate_grad_hook(self._arrived)

    def last_pass(self, step: Step) -> None:
        """The coming backward pass completes this worker's gradient: buckets may go as soon as they are full."""
        self._step = step
        for bucket in self._buckets:
            bucket.waiting, bucket.flat, bucket.work = len(bucket.parameters), None, None

    def pass_done(self, share: float) -> None:
        """For a lone worker: its passes are the parts that tell the noise, so their gradients are kept apart."""
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in self.parameters]
        if share > 0:
            self._pass_sqr.append((_square(gradients), share))
        if self._kept is None:
            self._kept = gradients
        else:
            torch._foreach_add_(self._kept, gradients)
        for one in self.parameters:
            one.grad = None

    def finish(self) -> Sums | None:
        """Wait for all sums; gradients are then the whole batch's. None if the group has failed."""
        step = self._step
        assert step is not None
        if self._kept is not None:
            for one, gradient in zip(self.parameters, self._kept, strict=True):
                one.grad = gradient
        while step.launched < len(self._buckets):
            self._launch(step)
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
        if step is None or step.group.size == 1:
            return
        bucket = self._of[id(parameter)]
        bucket.waiting -= 1
        while step.launched < len(self._buckets) and self._buckets[step.launched].waiting == 0:
            self._launch(step)

    def _launch(self, step: Step) -> None:
        """In the same order everywhere."""
        bucket = self._buckets[step.launched]
        step.launched += 1
        last = step.launched == len(self._buckets)
        if bucket.parameters:
            bucket.flat = bucket.gather()
            step.parts_sqr.append(bucket.flat.dot(bucket.flat).float())
        if last:
            bucket.flat = self._with_extras(step, bucket.flat)
        assert bucket.flat is not None
        bucket.work = step.group.sum(bucket.flat)

    def _with_extras(self, step: Step, flat: torch.Tensor | None) -> torch.Tensor:
        device = self.parameters[0].device
        dtype = torch.float32 if flat is None else flat.dtype
        mine = torch.stack(step.parts_sqr).sum() / step.share if step.share > 0 else torch.zeros((), device=device)
        counted = torch.tensor([float(step.share > 0), *step.extras], device=device)
        tail = [mine.reshape(1).to(dtype), counted.to(dtype)]
        tail += [figure.reshape(-1).to(dtype) * step.share for figure in step.figures]
        return torch.cat([*([] if flat is None else [flat]), *tail])

    def _sums(self, step: Step) -> Sums:
        last = self._buckets[-1]
        assert last.flat is not None
        at = sum(one.numel() for one in last.parameters)
        parts_sqr, parts, *extras = last.flat[at : at + 2 + len(step.extras)].tolist()
        at += 2 + len(step.extras)
        for figure in step.figures if step.group.size > 1 else ():
            figure.copy_(last.flat[at : at + figure.numel()].view(figure.shape))
            at += figure.numel()
        for bucket in self._buckets:
            bucket.scatter()
        whole = float(_square([one.grad for one in self.parameters]))
        if self._pass_sqr:
            parts = len(self._pass_sqr)
            parts_sqr = sum(float(square) / share for square, share in self._pass_sqr)
        return Sums(extras, parts_sqr, whole, round(parts))


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
