"""From indices to samples on a device, for data sets as PyTorch knows them."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from gpuloom.train.elastic.settings import ElasticError


def length(dataset: Any) -> int:
    """Of a data set that an epoch can be dealt from, by numbers; another is refused by name."""
    if isinstance(dataset, DataLoader):
        raise ElasticError("DataLoader: pass its data set, the job deals the samples itself")
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ElasticError(
            f"{type(dataset).__name__}: a data set with a length and samples by number is needed, not one to iterate"
        )
    if len(dataset) < 1:
        raise ElasticError("the data set is empty")
    return len(dataset)


def fetcher(dataset: Any, device: torch.device) -> Callable[[torch.Tensor], Any]:
    """Tensors are indexed at once; other data sets are asked one by one, or by their own `__getitems__`."""
    many = getattr(dataset, "__getitems__", None)
    if many is None and getattr(type(dataset), "__getitem__", None) is TensorDataset.__getitem__:
        return lambda chosen: to_device([tensor[chosen] for tensor in dataset.tensors], device)

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
        parts = [to_device(one, device) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
