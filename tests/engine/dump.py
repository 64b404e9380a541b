"""An engine's state as bytes, to hold two states against each other."""

import json
from dataclasses import asdict
from typing import Any

from gpuloom.engine.state import State
from gpuloom.work.model import NO_HOST_NEEDS, Job


def dump(state: State) -> bytes:
    """The whole state as canonical JSON: equal states give equal bytes."""
    content: dict[str, Any] = {
        "now_s": state.now_s,
        "jobs": [job if job.rescales else job[:-1] for job in state.jobs.values()],
        "waiting": list(state.waiting),
        "gpus": list(state.gpus.values()),
        "idle": [gpu for node in state.cluster.nodes for gpu in state.idle.on(node)],
        "held": sorted([str(device), sorted(shares.items())] for device, shares in state.held.items()),
        **({"rescaling": state.rescaling} if state.rescaling else {}),
        **({"earlier": [asdict(one) for one in state.earlier.values()]} if state.earlier else {}),
        **({"frozen": sorted(state.frozen)} if state.frozen else {}),
        "cancelled": sorted(state.cancelled),
        "order": state.order,
        "wake": [state.next_wake_s, state.last_tick_s, state.changed],
        "counts": [state.arrivals, state.completed, state.given_up, state.plans_accepted, state.plans_rejected],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=_fields).encode()


def _fields(value: Any) -> dict[str, Any]:
    """Without what is newer than old digests, where there is none, as the log has it: they stay good."""
    fields = asdict(value)
    if isinstance(value, Job) and value.host == NO_HOST_NEEDS:
        del fields["host"]
    if isinstance(value, Job) and not value.in_place:
        del fields["in_place"]
    if isinstance(value, Job) and value.max_local_batch is None:
        del fields["max_local_batch"]
    return fields
