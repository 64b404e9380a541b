"""Putting whole GPUs into a plan: shared by the policies that decide on numbers of GPUs and place them simply."""

from collections.abc import Iterable, Mapping

from gpuloom.contract.view import View
from gpuloom.gpus.grant import Grant, Grants


def usable_gpus(view: View) -> int:
    """GPUs that are not lost: those that nobody is planned on and those that somebody is."""
    return view.idle.total + len({grant.gpu for job in view.jobs.values() for grant in job.grants})


def place_fullest_first(view: View, wanted: Mapping[str, int], order: Iterable[str]) -> dict[str, Grants]:
    """New grants for the jobs that are to hold another number of GPUs; who keeps its number keeps its GPUs.

    In the given order each takes from the node with the most idle GPUs first (ties: the lowest), as many as it has.
    """
    idle, node_of = view.idle.copy(), view.cluster.node_of
    changed = [job_id for job_id in order if len(view.jobs[job_id].grants) != wanted[job_id]]
    for job_id in changed:
        for grant in view.jobs[job_id].grants:
            idle.add(node_of[grant.gpu], grant.gpu)
    grants: dict[str, Grants] = {}
    for job_id in changed:
        taken = idle.take(wanted[job_id])
        assert taken is not None, "the policy gave out more GPUs than there are"
        grants[job_id] = tuple(map(Grant, taken))
    return grants


def describe(before: int, after: int) -> str:
    """What becomes of a job that held so many GPUs, in a few words."""
    if not after:
        return "pause" if before else "wait"
    gpus = f"{after} GPU{'s' * (after > 1)}"
    return f"{before} → {gpus}" if before else gpus
