"""Parts that switch MIG: off, on, and at the end back to how the GPU was found."""

import time

from gpuloom.gpus.host.cutter import CutOutcome
from gpuloom.gpus.host.ownership import Refused
from gpuloom.gpus.host.selftest.session import LINGERS_AT_MOST_S, LOOK_AGAIN_S, Session
from gpuloom.gpus.host.selftest.transcript import Finding, Verdict


def switch_off(session: Session) -> Finding:
    return _switch(session, on=False)


def switch_on(session: Session) -> Finding:
    return _switch(session, on=True)


def _switch(session: Session, *, on: bool) -> Finding:
    word, state = "on" if on else "off", session.see_mig()
    was, begun_s = state.mig, time.monotonic()
    cut = session.cut((), mig=on)
    facts: dict[str, object] = {"was": was, "is": cut.mig, "seconds": round(time.monotonic() - begun_s, 3)}
    if cut.reached:
        facts["waits_for_reset"] = None if was == on else False
        return Finding(Verdict.OK, f"MIG was {word} already" if was == on else f"MIG is {word}", facts)
    if not _waits_for_reset(session, on=on):
        return Finding(Verdict.FAILED, _why(cut), facts)
    facts["waits_for_reset"] = True
    session.cut((), mig=was)  # or it would happen at some later reset, when nobody thinks of it any more
    switch = f"nvidia-smi -i {session.gpu} -mig {int(on)}"
    advice = f"to test the rest, run `{switch}`, then {cut.remedy}, then the self-test again"
    return Finding(Verdict.NOT_HERE, f"MIG is {word} only after a reset of this GPU; {advice}", facts)


def _waits_for_reset(session: Session, *, on: bool) -> bool:
    state = session.look()
    return state.mig != on and state.mig_pending == on


def restore(session: Session) -> Finding:
    """As it was found, and no longer ours. What ran there a moment ago may be listed, or in use, for some time yet."""
    begun_s, facts = time.monotonic(), dict[str, object]()
    while True:
        since, problem = session.recorder.count, _left(session)
        facts["seconds"] = round(time.monotonic() - begun_s, 3)
        if problem is None:
            return Finding(Verdict.OK, "the GPU is as it was found", facts)
        if time.monotonic() - begun_s > LINGERS_AT_MOST_S:
            again = f"`gpuloom layout apply --gpu {session.gpu} --as-found` tries again"
            return Finding(Verdict.FAILED, f"{problem}; {again}", facts)
        time.sleep(LOOK_AGAIN_S)
        session.recorder.will_repeat(since)


def _left(session: Session) -> str | None:
    """Why the GPU is not yet as it was found; None if it is."""
    try:
        cut = session.cutter.leave(session.gpu, patience_s=0)
    except Refused as reason:
        return str(reason)
    return None if cut.reached else _why(cut)


def _why(cut: CutOutcome) -> str:
    return cut.reason or "the GPU does not show what was asked for"
