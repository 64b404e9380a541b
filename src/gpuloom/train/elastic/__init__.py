"""Elastic data-parallel training with PyTorch: a job that grows, shrinks and changes its batch without a restart.

    from gpuloom.train import elastic

    def train(worker: elastic.Worker) -> None:
        job = worker.wrap(model, optimiser, dataset)
        for samples in job.batches(epochs=10):
            job.backward(loss_of(model, samples))

    if __name__ == "__main__":
        elastic.run(train, batch=64)

docs/elastic-training.md has the rest. PyTorch is imported with the first name that needs it, so `client` comes without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuloom.train.elastic.job import Job
    from gpuloom.train.elastic.launch import run
    from gpuloom.train.elastic.settings import ElasticError, Every, Scaling
    from gpuloom.train.elastic.steps.batchnorm import SyncBatchNorm, sync_batch_norm
    from gpuloom.train.elastic.worker import Worker

__all__ = ["ElasticError", "Every", "Job", "Scaling", "SyncBatchNorm", "Worker", "run", "sync_batch_norm"]

_HOMES = {
    "SyncBatchNorm": "steps.batchnorm", "sync_batch_norm": "steps.batchnorm", "Job": "job", "run": "launch",
    "ElasticError": "settings", "Every": "settings", "Scaling": "settings", "Worker": "worker",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
