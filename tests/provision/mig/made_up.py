"""A made-up model on MIG instances, and what must hold of every plan of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from gpuloom.gpus.catalogue import find
from gpuloom.gpus.layouts import check
from gpuloom.gpus.model import GpuModel, Instance
from gpuloom.provision.mig.options import Options
from gpuloom.provision.plan import Replica, ServicePlan
from gpuloom.work.measured.mig_services import MigPoint
from gpuloom.work.model import Service
from tests.provision.drawn import EXACT

A100 = find("A100-80GB")
SIZES = (1, 2, 3, 4, 7)


def points(speed: float = 1.0, processes: int = 3) -> tuple[MigPoint, ...]:
    """A floor, work that shrinks with the slices, and processes that share them."""
    made_up = []
    for slices in SIZES:
        for batch in (1, 2, 4, 8, 16):
            for count in range(1, processes + 1):
                latency_ms = (2.0 + 3.0 * batch * max(count, 1.5) / slices) / speed
                made_up.append(MigPoint(slices, batch, count, 1000 * batch / latency_ms, latency_ms))
    return tuple(made_up)


def check_plan(
    plan: ServicePlan, services: Sequence[Service], options: Mapping[str, Options], model: GpuModel = A100
) -> None:
    """No GPU cut or filled as it cannot be, every rate served as promised, the bound below what is used."""
    cuts: defaultdict[int, dict[Instance, list[Replica]]] = defaultdict(dict)
    for replica in plan.replicas:
        assert replica.grant.instance is not None
        cuts[replica.grant.gpu].setdefault(replica.grant.instance, []).append(replica)
    assert set(cuts) == set(range(plan.gpus))
    for instances in cuts.values():
        assert check(model, tuple(sorted(instances))) is None
        for instance, inside in instances.items():
            assert len({replica.service for replica in inside}) == 1
            assert sum(replica.grant.share_pct for replica in inside) == pytest.approx(100.0)
            needed_mib = sum(replica.grant.mem_mib or 0 for replica in inside)
            assert needed_mib <= model.by_name[instance.profile].mem_mib
    for service in services:
        replicas = plan.of(service.id)
        assert sorted(replica.number for replica in replicas) == list(range(len(replicas)))
        assert sum(replica.rate_rps for replica in replicas) == pytest.approx(service.rate_rps)
        for replica in replicas:
            assert replica.grant.instance is not None
            option = options[service.id][model.by_name[replica.grant.instance.profile].slices]
            assert replica.rate_rps <= option.rps / option.processes * (1 + 1e-9)
            assert replica.predicted_p99_ms <= service.slo_p99_ms * EXACT
            assert (replica.grant.mem_mib, replica.grant.batch) == (service.mem_mib, option.batch)
            assert option.batch <= (service.max_batch or option.batch)
    assert plan.lower_bound_gpus is not None
    assert plan.lower_bound_gpus <= plan.gpus
