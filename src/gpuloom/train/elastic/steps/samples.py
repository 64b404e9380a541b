"""From indices to samples on a device, for data sets as PyTorch knows them."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate


def fetcher(dataset: Any, device: torch.device) -> Callable[[torch.Tensor], Any]:
    """Tensors are indexed at once; other data sets are asked one by one, or by their own `__getitems__`."""
    if isinstance(dataset, TensorDataset):
        return lambda chosen: to_device([tensor[chosen] for tensor in dataset.tensors], device)
    many = getattr(dataset, "__getitems__", None)

    def fetch(chosen: torch.Tensor) -> Any:
        numbers = chosen.tolist()
        found = many(numbers) if many is not None else [dataset[number] for number in numbers]
        return to_device(default_collate(found), device)

    return fetch


def to_device(value: Any, device: torch.device) -> Any:
    """All tensors in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: to_device(one, device) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_device(one, device) for one in value)
    return value
