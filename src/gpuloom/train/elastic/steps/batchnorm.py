"""Batch norm over the whole step's samples, wherever they are computed: the same with any number of workers.

PyTorch's SyncBatchNorm wants GPU inputs and a process group that lives as long as the model. This one works on any
device, with the group of the present round, and leaves out passes that count for nothing. Plain batch norm's running
figures are averaged over workers at every step instead (see docs/elastic-training.md).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.reducer import WIDE


class Here:
    """What the layers have to know of the pass that runs: set by the job."""

    group: Group | None = None
    counts: bool = True


class _AddUp(torch.autograd.Function):  # type: ignore[misc]
    """The sum over all workers, differentiable: the gradient of a sum's parts is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 (nothing is kept)
        return _summed(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return _summed(gradient)


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone()
    if Here.group is not None:
        Here.group.wait(Here.group.sum(total))
    return total


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):  # type: ignore[misc]
    """As torch.nn.BatchNorm1d, 2d and 3d, but over the samples of all workers in this pass."""

    def _check_input_dim(self, inputs: torch.Tensor) -> None:
        if inputs.dim() < 2:
            raise ValueError(f"at least 2 dimensions are needed, not {inputs.dim()}")

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(inputs)
        self._check_input_dim(inputs)
        with torch.autocast(inputs.device.type, enabled=False):  # sums and counts want more bits than half a number has
            return self._normalised(inputs if inputs.dtype in WIDE else inputs.float()).to(inputs.dtype)

    def _normalised(self, inputs: torch.Tensor) -> torch.Tensor:
        over = [axis for axis in range(inputs.dim()) if axis != 1]
        values = inputs if Here.counts else inputs * 0
        count = inputs.new_tensor([inputs.numel() / inputs.shape[1] if Here.counts else 0.0])
        first = _AddUp.apply(torch.cat([values.sum(over), count]))
        number, mean = first[-1].detach().clamp(min=1), first[:-1] / first[-1].detach().clamp(min=1)
        shape = [1, -1, *[1] * (inputs.dim() - 2)]
        centred = inputs - mean.view(shape)
        variance = _AddUp.apply((centred if Here.counts else centred * 0).square().sum(over)) / number
        self._remember(mean.detach(), variance.detach(), number)
        result = centred * torch.rsqrt(variance + self.eps).view(shape)
        return result if self.weight is None else result * self.weight.view(shape) + self.bias.view(shape)

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, number: torch.Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * number / (number - 1).clamp(min=1)
        for kept, seen in ((self.running_mean, mean), (self.running_var, unbiased)):
            wide = torch.promote_types(kept.dtype, seen.dtype)
            kept.copy_(kept.to(wide).lerp(seen.to(wide), share))


def sync_batch_norm(model: nn.Module) -> nn.Module:
    """The same model with every plain batch norm replaced. Weights and running figures are the same tensors."""
    if isinstance(model, nn.modules.batchnorm._BatchNorm) and not isinstance(model, SyncBatchNorm):
        made = SyncBatchNorm(model.num_features, model.eps, model.momentum, model.affine, model.track_running_stats)
        for name, one in [*model.named_parameters(recurse=False), *model.named_buffers(recurse=False)]:
            setattr(made, name, one)
        return made.train(model.training)
    for name, child in model.named_children():
        setattr(model, name, sync_batch_norm(child))
    return model


def running_figures(model: nn.Module) -> Iterator[torch.Tensor]:
    """Of all batch norms, plain and synchronised: floating and counted."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase):
            yield from (buffer for buffer in module.buffers(recurse=False))


def differing_figures(model: nn.Module) -> list[torch.Tensor]:
    """What plain batch norms have seen, which differs from worker to worker until it is averaged."""
    return [
        buffer
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and not isinstance(module, SyncBatchNorm)
        for buffer in module.buffers(recurse=False)
        if buffer.is_floating_point()
    ]
