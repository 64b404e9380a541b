"""iGniter's arithmetic of one workload (TPDS'23, section 4): its batch and the least share on a GPU of its own.

Half of the SLO is for filling the batch, the other half (T) for loading, executing and sending back. What `igniter`,
`ffd` and `gslice` start from.
"""

from dataclasses import dataclass
from math import ceil, floor

from gpuloom.gpus.grant import Grant
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.interference import Placed, predict
from gpuloom.provision.offer import Offer
from gpuloom.provision.plan import MOST_REPLICAS, Replica, ServicePlan, Unplaced
from gpuloom.work.model import Service

_EXACT = 1e-9
FULL_PCT = 100.0 + 1e-9
"""A whole GPU; sums of shares are rounded."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One replica of a service, before it is placed."""

    service: Service
    number: int
    rate_rps: float
    batch: int
    lower_pct: float
    """Least share alone; above 100 if none is enough."""

    @property
    def target_ms(self) -> float:
        return self.service.slo_p99_ms / 2.0

    def placed(self, share_pct: float) -> Placed:
        return Placed(self.service.workload, self.batch, share_pct)


def batch_of(service: Service, rate_rps: float, model: IgniterModel) -> int:
    """What arrives while the batch before is served, for T."""
    rate, link = rate_rps / 1000.0, model.hardware.pcie_bytes_per_ms
    load = model.services[service.workload].traits.load_bytes
    batch = ceil(service.slo_p99_ms / 2.0 * rate * link / (link + rate * load) - _EXACT)
    return max(1, min(batch, service.max_batch or batch))


def lower_pct(service: Service, batch: int, model: IgniterModel) -> float:
    """The share that keeps T alone, rounded up to the unit; infinite if no share does."""
    coefficients, hardware = model.services[service.workload], model.hardware
    traits, (k1, k2, k3, k4, k5) = coefficients.traits, coefficients.k
    moved_ms = batch * (traits.load_bytes + traits.feedback_bytes) / hardware.pcie_bytes_per_ms
    left_ms = service.slo_p99_ms / 2.0 - traits.idle_ms - moved_ms - k5
    if left_ms <= 0.0:
        return float("inf")
    share = (k1 * batch**2 + k2 * batch + k3) / left_ms - k4
    return max(1, ceil(share / hardware.share_unit_pct - _EXACT)) * hardware.share_unit_pct


def workloads(services: tuple[Service, ...], model: IgniterModel) -> tuple[list[Workload], list[Unplaced]]:
    """In the order of the input. One that is too large for a GPU is split: whole GPUs first, then the rest."""
    placeable: list[Workload] = []
    unplaced: list[Unplaced] = []
    for service in services:
        parts = _parts(service, model)
        if isinstance(parts, str):
            unplaced.append(Unplaced(service.id, parts))
        else:
            placeable += parts
    return placeable, unplaced


def _parts(service: Service, model: IgniterModel) -> list[Workload] | str:
    """Its replicas, or why there are none."""
    rest, whole = service.rate_rps, None
    parts: list[Workload] = []
    while True:
        batch = batch_of(service, rest, model)
        share = lower_pct(service, batch, model)
        if share <= 100.0:
            return [*parts, Workload(service, len(parts), rest, batch, share)]
        if whole is None:
            whole = _whole(service, model)
            if whole is None:
                return f"no share of a GPU answers within half of {service.slo_p99_ms:g} ms"
            if rest > whole[1] * MOST_REPLICAS:
                return f"{service.rate_rps:g} requests per second need more than {MOST_REPLICAS:,} replicas"
        batch, rate = whole
        for _ in range(max(1, floor(rest / rate))):
            if rest <= rate:
                break
            parts.append(Workload(service, len(parts), rate, batch, 100.0))
            rest -= rate


def _whole(service: Service, model: IgniterModel) -> tuple[int, float] | None:
    """The largest batch that a whole GPU answers in time, and the rate that fills it."""
    batch = 0
    while lower_pct(service, batch + 1, model) <= 100.0 and batch < (service.max_batch or 1024):
        batch += 1
    if not batch:
        return None
    load = model.services[service.workload].traits.load_bytes
    link, target = model.hardware.pcie_bytes_per_ms, service.slo_p99_ms / 2.0
    return batch, 1000.0 * batch / (target - batch * load / link)


Placement = list[list[tuple[Workload, float]]]
"""For each GPU the workloads on it, each with its share."""


def first_fit(gpus: Placement, workload: Workload, share_pct: float) -> None:
    """On the first GPU that has so much left, else on a further one."""
    first = next((gpu for gpu in gpus if sum(taken for _, taken in gpu) + share_pct <= FULL_PCT), None)
    if first is None:
        gpus.append([(workload, share_pct)])
    else:
        first.append((workload, share_pct))


def as_plan(strategy: str, offer: Offer, gpus: Placement, unplaced: list[Unplaced]) -> ServicePlan:
    """As data, with what iGniter's model predicts for a request: filling the batch, as long as its time, and the time.

    Peers prove nothing: they have no lower bound.
    """
    replicas = []
    for gpu, residents in enumerate(gpus):
        predicted = predict(offer.igniter, [workload.placed(share) for workload, share in residents])
        for (workload, share), latency in zip(residents, predicted, strict=True):
            service, p99_ms = workload.service, 2.0 * latency.total_ms
            grant = Grant(gpu, share_pct=share, mem_mib=service.mem_mib, batch=workload.batch)
            replicas.append(Replica(service.id, workload.number, grant, 0.0, workload.rate_rps, p99_ms))
    cost = round(len(gpus) * offer.cost_per_hour, 2)
    return ServicePlan(strategy, offer.name, len(gpus), cost, None, tuple(replicas), tuple(unplaced))
