"""Where each replica's larger share is: iGniter's shadow instance, of 10 points more or what is left of the device."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gpuloom.gpus.grant import Device, Grant
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Slot, slot_of

STEP_PCT = 10.0
LEAST_PCT = 2.5
"""Less is not worth a server."""


def left_pct(grants: Iterable[Grant]) -> dict[Device, float]:
    """What the holders of these grants leave of each of their devices."""
    left: defaultdict[Device, float] = defaultdict(lambda: 100.0)
    for grant in grants:
        left[grant.device] -= grant.share_pct
    return dict(left)


def shadow_grants(replicas: Iterable[Replica]) -> dict[Slot, Grant]:
    """On its own device where something is left, else on the emptiest one of the plan that has more than it has now.

    Where there is neither it is the planned grant again: that cannot correct anything, but stands in after a crash.
    Shadows of several replicas may count on the same room: whoever grows looks whether it is still there (`observer`).
    """
    replicas = tuple(replicas)
    left = left_pct(replica.grant for replica in replicas)
    return {slot_of(replica): _shadow(replica.grant, left) for replica in replicas}


def _shadow(grant: Grant, left: Mapping[Device, float]) -> Grant:
    if left[grant.device] >= LEAST_PCT:
        return grant._replace(share_pct=min(100.0, grant.share_pct + min(STEP_PCT, left[grant.device])))
    alike = [device for device in left if _kind(device) == _kind(grant.device)]
    best = max(alike, key=lambda device: (left[device], -device[0]))
    if left[best] < grant.share_pct + LEAST_PCT:
        return grant
    gpu, instance = best
    return grant._replace(gpu=gpu, instance=instance, share_pct=min(grant.share_pct + STEP_PCT, left[best]))


def _kind(device: Device) -> str | None:
    return None if device[1] is None else device[1].profile
