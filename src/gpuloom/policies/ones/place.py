"""Which GPUs: jobs that keep their number keep their GPUs, the others are packed on as few nodes as possible.

Who does not fit, because what is free is scattered, gets the largest number that does; only who cannot take so few is
spread over more nodes. Nobody is moved for nothing. Nobody is put on a GPU whose memory it does not fit in.
"""

from collections.abc import Container, Mapping, Sequence

from gpuloom.contract.view import JobView, View
from gpuloom.gpus.grant import Grant, Grants

Free = dict[int, list[int]]
"""GPUs that may be given out, by node."""


def place(
    view: View,
    wanted: Mapping[str, int],
    node_size: int,
    given_away: Container[int] = (),
    owed: Container[str] = (),
) -> dict[str, Grants]:
    """New grants for the jobs that get another number of GPUs than they have.

    Who is `owed` something chooses first, then who can least do with less, then the largest. What is `given_away` is
    not for them, even if it is theirs now.
    """
    changed = [job_id for job_id, count in wanted.items() if len(view.jobs[job_id].grants) != count]
    free: Free = {node: list(view.idle.on(node)) for node in view.cluster.nodes}
    for job_id in changed:
        for grant in view.jobs[job_id].grants:
            if grant.gpu not in given_away:
                free[view.cluster.node_of[grant.gpu]].append(grant.gpu)
    grants: dict[str, Grants] = {}
    in_order = sorted(changed, key=lambda name: (name not in owed, -view.jobs[name].job.min_gpus, -wanted[name]))
    for job_id in in_order:
        job = view.jobs[job_id]
        own = [grant.gpu for grant in job.grants]
        # Whether it is to be kept can be told only while nobody else has taken from it.
        intact = bool(own) and all(gpu in free[view.cluster.node_of[gpu]] for gpu in own)
        open_ = _large_enough(view, job, free)
        taken = _find(open_, wanted[job_id], node_size, own)
        if intact and wanted[job_id] > len(own) >= len(taken):
            taken = own
        if len(taken) < job.job.min_gpus:
            taken = _spread(open_, job.job.min_gpus, own) if wanted[job_id] >= job.job.min_gpus else []
        for gpu in taken:
            free[view.cluster.node_of[gpu]].remove(gpu)
        if taken != own:
            grants[job_id] = tuple(map(Grant, taken))
    return grants


def _large_enough(view: View, job: JobView, free: Free) -> Free:
    """Those of the free GPUs that have the memory."""
    needed = job.job.mem_mib
    if not needed:
        return free
    gpus = view.cluster.gpus
    return {node: [gpu for gpu in them if gpus[gpu].model.mem_mib >= needed] for node, them in free.items()}


def _find(free: Free, count: int, node_size: int, own: Sequence[int]) -> list[int]:
    """Whole nodes for those that need more than one; for the others, and a rest, the fullest node that has room."""
    if count > node_size:
        whole = [node for node, gpus in free.items() if len(gpus) == node_size]
        if whole:
            whole.sort(key=lambda node: -_common(free[node], own))  # ties: the first
            nodes = whole[: count // node_size]
            others = {node: gpus for node, gpus in free.items() if node not in nodes}
            rest = count % node_size if len(nodes) == count // node_size else 0
            return [gpu for node in nodes for gpu in _own_first(free[node], own)] + _find(others, rest, node_size, own)
    count = min(count, node_size, max(map(len, free.values()), default=0))
    if not count:
        return []
    room = [node for node, gpus in free.items() if len(gpus) >= count]
    node = min(room, key=lambda node: (-_common(free[node], own), len(free[node])))
    return _own_first(free[node], own)[:count]


def _spread(free: Free, count: int, own: Sequence[int]) -> list[int]:
    """So many from wherever there are any, or none: a slow ring is better than none."""
    nodes = sorted(free, key=lambda node: (-_common(free[node], own), -len(free[node])))
    taken = [gpu for node in nodes for gpu in _own_first(free[node], own)][:count]
    return taken if len(taken) == count else []


def _common(gpus: Sequence[int], own: Sequence[int]) -> int:
    return sum(gpu in own for gpu in gpus)


def _own_first(gpus: Sequence[int], own: Sequence[int]) -> list[int]:
    return sorted(gpus, key=lambda gpu: (gpu not in own, gpu))
