"""How long a batch takes on a replica's share among its neighbours: what the stand-in for the model sleeps.

From the plan's own table where it has one, else from the shipped model of shared GPUs. A share that the plan has no
table for (a shadow's) is taken from its planned share's, by the model's ratio of the two; without the model, in inverse
proportion to the share, which promises more than a GPU keeps.
"""

from collections.abc import Callable, Sequence

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.perf.sharing.interference import WHOLE, Capacity, InterferenceModel, Placed, predict
from gpuloom.perf.sharing.model import SharingModel
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Deployment, slot_of
from gpuloom.work.measured.service_figures import SHIPPED, load_service_figures

BatchMs = Callable[[Replica], Sequence[float]]
"""Milliseconds for a batch of 1, 2, … up to the replica's max batch, undilated."""


def shipped_times(deployment: Deployment) -> BatchMs:
    """With the shipped model of the plan's type of GPU, if there is one."""
    kind = deployment.plan.gpu_type.partition("-")[0]
    model = SharingModel.from_figures(load_service_figures(kind)) if kind in SHIPPED else None
    return batch_times(deployment, model)


def batch_times(deployment: Deployment, model: InterferenceModel | None) -> BatchMs:
    """Times of any replica of the plan, with its own grant or another; `model` is for the plan's type of GPU."""
    planned = {slot_of(replica): replica for replica in deployment.plan.replicas}

    def known(replica: Replica) -> bool:
        return model is not None and deployment.promises[replica.service].workload in model.names

    def modelled(replica: Replica) -> list[float]:
        assert model is not None
        return _modelled(deployment, model, replica)

    def batch_ms(replica: Replica) -> Sequence[float]:
        slot, size = slot_of(replica), replica.grant.batch or 1
        table = deployment.batch_ms.get(slot)
        if table is None:
            if not known(replica):
                workload = deployment.promises[replica.service].workload
                raise InputError(
                    f"service {replica.service}: the plan has no batch_ms for it and there is no profile of"
                    f" {'its workload, which it does not name' if workload is None else repr(workload)}:"
                    " add batch_ms to its rows, or name its workload with --services"
                )
            return modelled(replica)
        before = planned[slot]
        if replica.grant == before.grant:
            return table[:size]
        if known(replica):
            pairs = zip(modelled(replica), modelled(before), strict=False)
            return [ms * now / then for ms, (now, then) in zip(table, pairs, strict=False)]
        return [ms * before.grant.share_pct / replica.grant.share_pct for ms in table[:size]]

    return batch_ms


def _modelled(deployment: Deployment, model: InterferenceModel, replica: Replica) -> list[float]:
    grant, workload_here = replica.grant, deployment.promises[replica.service].workload
    assert workload_here is not None
    beside = [
        Placed(workload, float(other.grant.batch or 1), other.grant.share_pct)
        for other in deployment.plan.replicas
        if other.grant.device == grant.device and slot_of(other) != slot_of(replica)
        if (workload := deployment.promises[other.service].workload) in model.names and workload is not None
    ]
    device = _device(deployment.plan.gpu_type, replica)
    sizes = range(1, (grant.batch or 1) + 1)
    mixes = ([Placed(workload_here, float(size), grant.share_pct), *beside] for size in sizes)
    return [predict(model, mix, device)[0].total_ms for mix in mixes]


def _device(gpu_type: str, replica: Replica) -> Capacity:
    instance = replica.grant.instance
    if instance is None:
        return WHOLE
    gpu = find(gpu_type)
    profile = gpu.by_name.get(instance.profile)
    if profile is None:
        raise InputError(f"service {replica.service}: a {gpu.name} has no {instance.profile}")
    return Capacity(compute=profile.sms / gpu.sms, memory=profile.size / gpu.units)
