"""Parts that make instances and remove them: each profile at its places, and one under a process that lives."""

import time
from typing import Any

from gpuloom.gpus.host.driver import Part
from gpuloom.gpus.host.mig_read import compute_instances, compute_profiles
from gpuloom.gpus.host.mps.daemon import daemon_for
from gpuloom.gpus.host.nvml import Code
from gpuloom.gpus.host.ownership import Refused, state_dir
from gpuloom.gpus.host.selftest.clients import Client, client
from gpuloom.gpus.host.selftest.recording import answer_or_code
from gpuloom.gpus.host.selftest.session import LINGERS_AT_MOST_S, Session
from gpuloom.gpus.host.selftest.transcript import Finding, Verdict
from gpuloom.gpus.model import Instance, Profile

EVERY_PLACE_WITHIN_S = 120.0
"""All profiles at all their places, if that is cheap here; past this only their first and last."""


def each_profile(session: Session) -> Finding:
    state, begun_s = session.need_mig(), time.monotonic()
    rows = []
    for profile in state.model.profiles:
        rest = profile.starts[1:-1] if time.monotonic() - begun_s < EVERY_PLACE_WITHIN_S else ()
        rows.append(_profile(session, profile, (profile.starts[0], *rest, profile.starts[-1])))
    session.cut(())
    facts: dict[str, object] = {"profiles": rows}
    failed = [f"{row['profile']}: {row['reason']}" for row in rows if row["reason"]]
    if failed:
        return Finding(Verdict.FAILED, "; ".join(failed), facts)
    places = f"{len(rows)} profiles at {sum(len(row['made_at']) for row in rows)} places"
    moved = [str(row["profile"]) for row in rows if not row["same_uuid"]]
    if moved:
        return Finding(Verdict.DIFFERS, f"{places}; made again, {', '.join(moved)} had another UUID", facts)
    return Finding(Verdict.OK, f"{places}, made again with the same UUID", facts)


def _profile(session: Session, profile: Profile, starts: tuple[int, ...]) -> dict[str, Any]:
    """One instance after the other, and the first once more. Each takes the place of the one before."""
    made, first, reason, inside = list[int](), set[str](), None, dict[str, object]()
    for start in (*dict.fromkeys(starts), starts[0]):
        instance = Instance(start, profile.name)
        if made == [starts[0]] and start == starts[0]:  # the only place: it would stay as it is
            session.cut(())
        cut = session.cut((instance,))
        reason = cut.reason
        if reason is not None:
            break
        if start == starts[0]:
            first.add(cut.uuids[instance])
        if not made:
            inside = _inside(session)
        made.append(start)
    told = None if reason is None else session.recorder.pseudonyms.sentence(reason)
    made_at, same = sorted(set(made)), len(first) == 1
    return {"profile": profile.name, "made_at": made_at, "same_uuid": same, "reason": told, **inside}


def _inside(session: Session) -> dict[str, object]:
    """With the only instance there: what room it leaves, and how it could be split."""
    state = session.look()
    with session.asking() as (nvml, device):
        question = "nvmlDeviceGetGpuInstanceRemainingCapacity"
        room = {each.name: answer_or_code(nvml, question, device, each.nvml_id)[0] for each in state.model.profiles}
        instance = nvml.nvmlDeviceGetGpuInstanceById(device, state.parts[0].gi_id)
        shared, computes = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, list[dict[str, int]]()
        for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            question = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
            info, _ = answer_or_code(nvml, question, instance, number, shared)
            if info is not None:
                computes.append({"id": info.id, "slices": info.sliceCount, "limit": info.instanceCount})
    return {"gi_id": state.parts[0].gi_id, "room": room, "computes": computes}


def destroy_under_a_process(session: Session) -> Finding:
    """What a process that lives, and then one that has just gone, does to the driver's answers."""
    smallest = min(session.need_mig().model.profiles, key=lambda profile: (profile.slices, profile.size))
    instance = Instance(smallest.starts[0], smallest.name)
    cut = session.cut((instance,))
    if not cut.reached:
        return Finding(Verdict.FAILED, str(cut.reason), {})
    state = session.look()
    alone = {"CUDA_MPS_PIPE_DIRECTORY": str(daemon_for(state.uuid, state_dir() / "mps").pipe_dir)}  # where no daemon is
    with client(cut.uuids[instance], alone, session.recorder) as (running, _):
        facts = {"profile": smallest.name, **_while_it_lives(session, running, instance)}
        return _once_it_has_gone(session, running, state.parts[0], facts)


def _while_it_lives(session: Session, running: Client, instance: Instance) -> dict[str, Any]:
    state = session.look()
    listed = [process.instance == instance for process in state.processes if process.pid == running.pid]
    try:
        refused = not session.try_to_cut(()).reached  # gpuloom never destroys under a process that it sees
    except Refused:
        refused = True
    return {"listed": bool(listed), "listed_on_its_instance": any(listed), "gpuloom_refuses": refused}


def _once_it_has_gone(session: Session, running: Client, part: Part, facts: dict[str, Any]) -> Finding:
    with session.asking() as (nvml, device):
        instance, code = answer_or_code(nvml, "nvmlDeviceGetGpuInstanceById", device, part.gi_id)
        if code:
            return Finding(Verdict.DIFFERS, "the instance was destroyed under a process that lives", facts)
        (compute,) = _computes(nvml, instance)
        _, facts["code_while_it_lives"] = answer_or_code(nvml, "nvmlComputeInstanceDestroy", compute)
        if not facts["code_while_it_lives"]:
            return Finding(Verdict.DIFFERS, "the driver destroyed an instance under a process that lives", facts)
    running.kill()
    return _judged(session, facts | destroy_when_free(session, part))


def destroy_when_free(session: Session, part: Part) -> dict[str, float | None]:
    """Seconds until the driver did it, for the compute instance and then for the GPU instance; None: it never did."""
    with session.asking() as (nvml, device):
        instance = nvml.nvmlDeviceGetGpuInstanceById(device, part.gi_id)
        (compute,) = _computes(nvml, instance)
        in_use_s = session.wait(lambda: answer_or_code(nvml, "nvmlComputeInstanceDestroy", compute)[1] == 0)
        if in_use_s is None:
            return {"in_use_s": None, "then_in_use_s": None}
        then_s = session.wait(lambda: answer_or_code(nvml, "nvmlGpuInstanceDestroy", instance)[1] == 0)
    return {"in_use_s": in_use_s, "then_in_use_s": then_s}


def _computes(nvml: Any, instance: Any) -> list[Any]:
    return [each for info in compute_profiles(nvml, instance) for each in compute_instances(nvml, instance, info)]


def _judged(session: Session, facts: dict[str, Any]) -> Finding:
    code, lingers_s = facts["code_while_it_lives"], facts["in_use_s"]
    session.cut(())
    if lingers_s is None:
        return Finding(Verdict.FAILED, f"still in use {LINGERS_AT_MOST_S:g} s after the process had gone", facts)
    if code != Code.IN_USE:
        return Finding(Verdict.DIFFERS, f"under a process that lives the driver answers {code}, not IN_USE", facts)
    if not (facts["listed_on_its_instance"] and facts["gpuloom_refuses"]):
        return Finding(Verdict.DIFFERS, "the driver does not list the process on its instance", facts)
    return Finding(Verdict.OK, f"IN_USE while it lives, and for {lingers_s:g} s after it has gone", facts)
