"""Parts about MPS: a daemon with limits, two clients, one of them killed. On the whole GPU, and on a slice."""

import os
from contextlib import ExitStack
from typing import Any

from gpuloom.gpus.host.mps.daemon import Limits, MpsError, available, daemon_for, why_unusable
from gpuloom.gpus.host.ownership import state_dir
from gpuloom.gpus.host.selftest.clients import Client, NoCuda, client
from gpuloom.gpus.host.selftest.instances import destroy_when_free
from gpuloom.gpus.host.selftest.recording import Call, RecordedDaemon
from gpuloom.gpus.host.selftest.session import NotHere, Session
from gpuloom.gpus.host.selftest.transcript import Finding, Verdict
from gpuloom.gpus.model import Instance

DAEMON = Limits(60.0, 4096)
CLIENTS = (Limits(50.0, 3072), Limits(25.0, 2048))
"""Each tighter than what the daemon allows, as a client's own limits can only be; and with room for a CUDA context."""
LITTLE_MIB = 1


def on_the_whole_gpu(session: Session) -> Finding:
    state = session.look()
    if state.mig:
        raise NotHere("MIG is on, so the GPU cannot be used whole")
    return _share(session, state.uuid)


def on_a_slice(session: Session) -> Finding:
    largest = max(session.need_mig().model.profiles, key=lambda profile: profile.size)
    instance = Instance(largest.starts[0], largest.name)
    cut = session.cut((instance,))
    if not cut.reached:
        return Finding(Verdict.FAILED, str(cut.reason), {})
    (part,) = session.look().parts
    finding = _share(session, cut.uuids[instance])
    finding.facts.update(destroy_when_free(session, part))
    return finding


def _share(session: Session, device: str) -> Finding:
    folder = state_dir() / "mps"
    reason = why_unusable(folder)
    if reason is not None:
        raise NotHere("MPS is not installed" if available() is None else reason)
    plain = daemon_for(device, folder)
    daemon = RecordedDaemon(plain.device, plain.folder, session.recorder)
    facts: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.callback(_stop, session, daemon, facts)
        assert DAEMON.share_pct is not None
        daemon.start(DAEMON.share_pct, DAEMON.mem_mib, uid=os.geteuid())
        now = daemon.limits()
        facts["daemon"] = {"share_pct": now.share_pct, "mem_mib": now.mem_mib}
        try:
            problem = _two_clients(session, daemon, stack, facts)
        except NoCuda as reason:
            return Finding(Verdict.NOT_HERE, f"{reason}: only the daemon's own limits were tried", facts)
    if facts["idle_after_s"] is None:
        problem = problem or "processes stayed on the GPU after MPS had ended"
    if problem is not None:
        return Finding(Verdict.DIFFERS, problem, facts)
    return Finding(Verdict.OK, "limits as told; one of two clients killed, the other and the server go on", facts)


def _stop(session: Session, daemon: RecordedDaemon, facts: dict[str, Any]) -> None:
    daemon.stop()
    facts["idle_after_s"] = session.wait_until_idle()


def _two_clients(session: Session, daemon: RecordedDaemon, stack: ExitStack, facts: dict[str, Any]) -> str | None:
    """What was otherwise than expected; None if nothing was."""
    begun = [
        stack.enter_context(client(daemon.device, daemon.client_environment(*_told(limits)), session.recorder))
        for limits in CLIENTS
    ]
    one, other = (running for running, _ in begun)
    facts["clients"] = [
        _limits_seen(running, calls, limits) for (running, calls), limits in zip(begun, CLIENTS, strict=True)
    ]
    servers = daemon.servers()
    if len(servers) != 1:
        return f"{len(servers)} servers for two clients of one user"
    (server,) = servers
    facts |= {name: _or_none(daemon, f"{command} {server}") for name, command in QUESTIONS.items()}
    facts["mem_limit"] = _or_none(daemon, f"get_device_pinned_mem_limit {server} 0")
    known = daemon.clients(server)
    facts["listed"] = sorted(known) == sorted((one.pid, other.pid))
    one.kill()
    forgotten_s = session.wait(lambda: len(daemon.clients(server)) == len(known) - 1)
    facts["killed"] = {
        "forgotten": forgotten_s is not None,
        "other_works": _all_fine(other.work(LITTLE_MIB)),
        "status": _or_none(daemon, f"get_server_status {server}"),
    }
    facts["terminated"] = {
        "accepted": _or_none(daemon, f"terminate_client {server} {other.pid}") is not None,
        "work": other.work(LITTLE_MIB)[0].code,
        "status": _or_none(daemon, f"get_server_status {server}"),
    }
    return _problem(facts)


QUESTIONS = {"status": "get_server_status", "share": "get_active_thread_percentage"}


def _told(limits: Limits) -> tuple[float, int | None]:
    return limits.share_pct or 100.0, limits.mem_mib


def _limits_seen(running: Client, calls: list[Call], limits: Limits) -> dict[str, object]:
    """How many multiprocessors it was told it has, and whether it gets as much memory as it may, and no more."""
    assert limits.mem_mib is not None
    return {
        "processors": next((call.answer for call in calls if call.call == "cuDeviceGetAttribute"), None),
        "within": running.work(LITTLE_MIB)[0].code,
        "beyond": running.work(limits.mem_mib + LITTLE_MIB)[0].code,
    }


def _or_none(daemon: RecordedDaemon, command: str) -> str | None:
    """Its answer, with no process ids in it; None where it refuses."""
    try:
        return daemon.recorder.pseudonyms.words(daemon.ask(command))
    except MpsError:
        return None


def _all_fine(calls: list[Call]) -> bool:
    return all(call.code == 0 for call in calls)


def _problem(facts: dict[str, Any]) -> str | None:
    seen = facts["clients"]
    if any(each["within"] for each in seen):
        return "a client could not allocate a little memory"
    if not all(each["beyond"] for each in seen):
        return "a client could allocate more memory than its limit"
    if facts["status"] != "ACTIVE":
        return f"the server's status was {facts['status']}"
    if not facts["listed"]:
        return "the server lists other clients than the two"
    killed = facts["killed"]
    if not killed["other_works"]:
        return "the other client did not survive the kill of one"
    if killed["status"] != "ACTIVE" or not killed["forgotten"]:
        return f"after the kill of one client the server's status was {killed['status']}"
    return None
