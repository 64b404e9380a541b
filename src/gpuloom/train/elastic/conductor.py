"""Who is in the group, and what comes next: a state machine without input or output of its own.

Events are its methods; each returns the actions that close the difference between what is wanted and what is. There
is one way to change anything: all workers of a round park after the same step (or where a failure leaves them), say
how far they are, and are then told to form the next round, to go on, or to leave. Growth, shrinking, a new batch, a
stop, the end of training and the death of a worker are all that. It knows nothing of processes, sockets and clocks:
`now` is passed in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuloom.train.elastic.actions import NO_STATE, Action, Finish, Fork, Kill, Member, NewStore, Phase, Settled, Tell
from gpuloom.train.elastic.settings import Seat, Settings, Target
from gpuloom.train.elastic.wire import Message

WARM_FAILURES = 3
"""Newcomers that may fail on a device before it is given up for this target."""
SAME_CRASHES = 3
"""Workers that may end with the same exception without any progress in between."""
DEATHS = 12
"""Workers that may be killed, or end with any exception, without any progress in between."""
PATIENCE = 10
"""Times the time-out: for a newcomer to be warm, for a state to be saved, for a round that says nothing at all."""


@dataclass(slots=True)
class Conductor:
    settings: Settings
    target: Target
    members: dict[int, Member] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()
    """The present round's members, the leader first. Who died stays in it until the next round is formed."""
    round: int = 0
    batch: int = 0
    step: int = 0
    pause_s: float | None = None
    error: str | None = None
    samples: int | None = None
    """Of the data set: told by the first who is ready, and no batch is larger."""
    model: int | None = None
    """What the first who is ready says of its model: others must have the same."""
    _next: int = 0
    _asked: bool = False
    _broken: bool = False
    _going: bool = False
    _stopping: bool = False
    _saving: int | None = None
    _saved: bool = False
    _unsaved: str | None = None
    """Why the state could not be saved."""
    _over: bool = False
    _settled: bool = False
    _finished: Finish | None = None
    _failures: dict[str, int] = field(default_factory=dict)
    _given_up: dict[str, str] = field(default_factory=dict)
    _crashes: list[str] = field(default_factory=list)
    _deaths: int = 0
    _furthest: int = 0
    _due: dict[int, float] = field(default_factory=dict)
    _word_due: float | None = None
    """When the round that trains should have said something, at the latest."""
    _formed_by: float | None = None
    """When the round that is formed should have made a step; None once it has, or if that was not the store's fault."""

    # --- events

    def begin(self, now: float) -> list[Action]:
        return self._advance(now)

    def resize(self, target: Target, now: float) -> list[Action]:
        """A newer target replaces whatever was wanted before; an older or equal one changes nothing."""
        if target.generation <= self.target.generation or self._stopping:
            return []
        self.target = target
        if self._over:  # it is answered, since there is nothing left to resize
            return []
        self.error, self._settled = None, False
        self._failures.clear()
        self._given_up.clear()
        return self._advance(now)

    def stop(self, now: float) -> list[Action]:
        """Save and end. Who is in a step, or ends by itself, has the time-out to come out of it."""
        self._stopping = True
        for member in [*self._in(Phase.TRAINING), *self._in(Phase.LEAVING)]:
            self._due.setdefault(member.ident, now + self.settings.timeout_s)
        return self._advance(now)

    def heard(self, ident: int, message: Message, now: float) -> list[Action]:
        """A worker says something."""
        member = self.members.get(ident)
        if member is None:
            return []
        match message["say"]:
            case "ready" if member.phase is Phase.WARMING:
                if (wrong := self._unlike_the_others(message)) is not None:
                    member.crash = wrong
                    return [Kill(ident, wrong)]
                member.phase = Phase.STANDBY
                self._due.pop(ident, None)
            case "parked" if member.phase is Phase.TRAINING:
                self._parked(member, message, now)
            case "going" if message["round"] == self.round and not self._broken:
                self._going, self.pause_s, self.batch = True, message["pause_s"], message["batch"]
                self._formed_by = None
                for one in self._present():
                    one.has_state = True
                    self._failures.pop(one.seat.device, None)
                self._progressed(message["step"], now)
            case "at":
                self._progressed(message["step"], now)
            case "saved":
                self._saved = True
            case "unsaved":
                self._unsaved = message["why"]
            case "crash":
                member.crash = message["traceback"]
                if message["fatal"] and self._finished is None and not self._somebody_has_state():
                    self._finished = Finish(1, member.crash)
        return self._advance(now)

    def died(self, ident: int, how: str, clean: bool, now: float) -> list[Action]:
        """Its process is gone. `clean` is an exit with 0."""
        member = self.members.pop(ident, None)
        self._due.pop(ident, None)
        if member is None:
            return []
        if member.phase is Phase.LEAVING:
            # A newcomer that was sent away before the end may die after it, and is nobody's business.
            if self._over and member.ended and not clean and self._finished is None:
                self._finished = Finish(1, member.crash or f"a worker ended after training: {how}")
        elif member.phase in (Phase.WARMING, Phase.STANDBY):
            self._failed_to_warm(member, how)
        else:
            if member.has_state or not self._somebody_has_state():
                self._fell(member, how)
            else:
                self._failed_to_warm(member, how)
            self._break(now)
        return self._advance(now)

    def tick(self, now: float) -> list[Action]:
        """Time passes: who should have answered by now is killed, and its death is the next event."""
        if self._word_due is not None and self._word_due <= now:
            self._word_due = None
            self._due |= {member.ident: now for member in self._in(Phase.TRAINING)}
        if self._formed_by is not None and self._formed_by <= now and not self._broken:
            # Whoever waits for a store that hangs comes out of it when that is gone; it is not to blame.
            self._formed_by = None
            self._due |= {one.ident: now + self.settings.timeout_s for one in self._present() if one.ident in self._due}
            return [NewStore()]
        late = [ident for ident, due in self._due.items() if due <= now]
        for ident in late:
            del self._due[ident]
        return [Kill(ident) for ident in late]

    # --- what is seen from outside

    def status(self, pids: dict[int, int]) -> Message:
        present = self._present()
        return {
            "op": "status", "generation": self.target.generation, "done": self._settled,
            "workers": [member.seat.device for member in present], "pids": [pids[member.ident] for member in present],
            "batch": self.batch, "step": self.step, "pause_s": self.pause_s, "error": self.error,
            "finished": self._over,
        }  # fmt: skip

    # --- what events change

    def _parked(self, member: Member, message: Message, now: float) -> None:
        member.phase, member.step, member.ended = Phase.PARKED, message["step"], message["ended"]
        member.has_state = member.has_state or member.step != NO_STATE
        self._due.pop(member.ident, None)
        self._progressed(member.step, now)
        if message["failed"] and message["round"] == self.round and not self._broken:
            self._break(now)

    def _progressed(self, step: int, now: float) -> None:
        self.step, self._word_due = max(step, 0), now + PATIENCE * self.settings.timeout_s
        if step > self._furthest:  # not what is only done again after everybody has died
            self._furthest, self._deaths = step, 0
            self._crashes.clear()

    def _break(self, now: float) -> None:
        """The round is broken: whoever is still in it has to notice within the time-out."""
        self._broken, self._going, self._settled, self._saving = True, False, False, None
        for ident in self.ranks:
            if ident in self.members and self.members[ident].phase is Phase.TRAINING:
                self._due.setdefault(ident, now + self.settings.timeout_s)

    def _tell_broken(self) -> list[Action]:
        if not self._broken:
            return []
        told: Message = {"do": "broken", "round": self.round}
        return [Tell(member.ident, told) for member in self._present() if member.phase is Phase.TRAINING]

    def _unlike_the_others(self, message: Message) -> str | None:
        """Why a newcomer would train something else; the first one who is ready is the measure of it."""
        samples, model = message.get("samples"), message.get("model")
        if self.samples is None:
            self.samples, self.model = samples, model
        if samples != self.samples:
            return f"it sees a data set of {samples} samples, the others one of {self.samples}"
        if model != self.model:
            return "its model has other parameters or buffers than that of the others"
        return None

    def _present(self) -> list[Member]:
        """Of the round, those that live."""
        return [self.members[ident] for ident in self.ranks if ident in self.members]

    def _somebody_has_state(self) -> bool:
        """Who could send it to newcomers."""
        sound = (one for one in self._present() if one.crash is None and one.phase is not Phase.LEAVING)
        return any(one.has_state for one in sound)

    def _failed_to_warm(self, member: Member, how: str) -> None:
        device = member.seat.device
        self._failures[device] = self._failures.get(device, 0) + 1
        if self._failures[device] >= WARM_FAILURES:
            self._given_up[device] = member.crash or how
            words = (member.crash or how).strip().splitlines()[-1]
            self.error = f"a worker on {device} failed {WARM_FAILURES} times before it could train: {words}"

    def _fell(self, member: Member, how: str) -> None:
        """Somebody in the group has died. That again and again, without a step in between, is a bug."""
        self._deaths += 1
        if self._deaths >= max(DEATHS, 3 * len(self.target.seats)):
            self._finished = Finish(
                1, f"workers die again and again before step {self._furthest + 1}: {member.crash or how}"
            )
        if member.crash is not None:
            self._crashes.append(member.crash.strip().splitlines()[-1])
            if self._crashes.count(self._crashes[-1]) >= SAME_CRASHES:
                self._finished = Finish(1, member.crash)

    def _leave(self, member: Member, now: float) -> None:
        member.phase = Phase.LEAVING
        self._due[member.ident] = now + self.settings.timeout_s

    # --- closing the difference

    def _advance(self, now: float) -> list[Action]:
        if self._finished is not None:
            return [*(Kill(ident) for ident in self.members), self._finished] if not self._over else self._wind_up()
        if self._over:
            return self._wind_up()
        actions = [*self._tell_broken(), *self._dismiss(now), *self._fork(now)]
        if any(self._in(Phase.TRAINING)):
            actions += self._ask_to_park()
        elif not (parked := list(self._in(Phase.PARKED))):
            actions += self._first_round(now)
        elif self._stopping:
            actions += self._save(parked, now)
        elif all(member.ended for member in parked) and len({member.step for member in parked}) == 1:
            actions += self._end(parked, now)
        else:
            actions += self._regroup(parked, now)
        return [*actions, *self._settle()]

    def _in(self, phase: Phase) -> Iterator[Member]:
        return (member for member in self.members.values() if member.phase is phase)

    def _wanted(self) -> list[Seat]:
        return [seat for seat in self.target.seats if seat.device not in self._given_up]

    def _dismiss(self, now: float) -> list[Action]:
        """Newcomers that nobody wants any more."""
        wanted = set() if self._stopping else {seat.device for seat in self._wanted()}
        actions: list[Action] = []
        for member in [*self._in(Phase.WARMING), *self._in(Phase.STANDBY)]:
            if member.seat.device not in wanted:
                self._leave(member, now)
                actions.append(Kill(member.ident))
        return actions

    def _fork(self, now: float) -> list[Action]:
        taken = {member.seat.device for member in self.members.values()}
        actions: list[Action] = []
        for seat in () if self._stopping else self._wanted():
            if seat.device not in taken:
                self.members[self._next] = Member(self._next, seat)
                self._due[self._next] = now + PATIENCE * self.settings.timeout_s
                actions.append(Fork(self._next, seat))
                self._next += 1
        return actions

    def _ask_to_park(self) -> list[Action]:
        """A change is wanted and everybody who is to join is warm: the leader stops the round after its next step."""
        if self._asked or self._broken or not (self._stopping or self._change_is_due()):
            return []
        self._asked = True
        return [Tell(self.ranks[0], {"do": "park", "round": self.round})]

    def _change_is_due(self) -> bool:
        if not self._going or any(self._in(Phase.WARMING)):
            return False
        wanted = {seat.device for seat in self._wanted()}
        present = {self.members[ident].seat.device for ident in self.ranks}
        return (bool(wanted) and wanted != present) or self._wish() != self.batch

    def _wish(self) -> int:
        wished = self.settings.allowed(self.target.batch or self.batch or self.settings.batch)
        return min(wished, self.samples or wished)

    def _first_round(self, now: float) -> list[Action]:
        """Nobody has a state: at launch, or because all have died. All who can be there are waited for."""
        if self._stopping:
            return [] if self.members else [self._stopped()]
        if any(self._in(Phase.WARMING)) or any(self._in(Phase.LEAVING)):
            return []
        members = list(self._in(Phase.STANDBY))
        if not members:
            reason = next(iter(self._given_up.values()), "no worker is left")
            return [Finish(1, reason)]
        return self._form(members, now)

    def _stopped(self) -> Finish:
        if self._saved or (self._furthest == 0 and self._unsaved is None):
            return Finish(0)
        why = self._unsaved or "no worker was left that had the state"
        return Finish(1, f"stopped at step {self.step} without saving, only an earlier checkpoint may be there: {why}")

    def _save(self, parked: list[Member], now: float) -> list[Action]:
        """The newest state is saved by one who has it; if that one dies, by another. Then all leave."""
        if self._saved or self._unsaved is not None:
            for member in parked:
                self._leave(member, now)
            return [Tell(member.ident, {"do": "leave"}) for member in parked]
        if self._saving is not None:
            return []
        best = max(parked, key=lambda member: member.step)
        self._saving = best.ident
        self._due[best.ident] = now + PATIENCE * self.settings.timeout_s
        return [Tell(best.ident, {"do": "save"})]

    def _regroup(self, parked: list[Member], now: float) -> list[Action]:
        """From where everybody stands to the next round. Who leaves without anybody staying stays for a round."""
        wanted = {seat.device for seat in self._wanted()} or {member.seat.device for member in parked}
        order = {ident: rank for rank, ident in enumerate(self.ranks)}
        parked.sort(key=lambda member: order[member.ident])
        stay = [member for member in parked if member.seat.device in wanted]
        join = list(self._in(Phase.STANDBY))
        newest = max(parked, key=lambda member: member.step)
        if newest not in stay and all(member.step == NO_STATE for member in stay):
            stay.insert(0, newest)
        actions: list[Action] = []
        for member in parked:
            if member not in stay:
                self._leave(member, now)
                actions.append(Tell(member.ident, {"do": "leave"}))
        same = not (join or actions or self._broken) and len({member.step for member in stay}) == 1
        if same and len(stay) == len(self.ranks):
            return self._go_on(stay, now)
        return actions + self._form([*stay, *join], now)

    def _go_on(self, members: list[Member], now: float) -> list[Action]:
        """The same group with another batch."""
        self._word_due = now + PATIENCE * self.settings.timeout_s
        self._asked, self._going, self.batch = False, False, self._wish()
        for member in members:
            member.phase = Phase.TRAINING
        return [Tell(member.ident, {"do": "go", "batch": self.batch}) for member in members]

    def _form(self, members: list[Member], now: float) -> list[Action]:
        # Nobody died, and yet they did not come together: it is the store's fault before it is anybody else's.
        suspect = self._broken and self._formed_by is not None and all(ident in self.members for ident in self.ranks)
        self.round += 1
        self._word_due = now + PATIENCE * self.settings.timeout_s
        self._formed_by = now + self.settings.timeout_s if len(members) > 1 else None
        self._asked = self._broken = self._going = False
        self.ranks = tuple(member.ident for member in members)
        if self.target.batch is not None or self.batch:
            self.batch = self._wish()
        newest = max(member.step for member in members)
        source = next(rank for rank, member in enumerate(members) if member.step == newest)
        stateless = newest == NO_STATE
        lacking = [rank for rank, one in enumerate(members) if rank != source and (stateless or one.step != newest)]
        for member in members:
            member.phase, member.ended = Phase.TRAINING, False
        common: Message = {
            "do": "form", "round": self.round, "size": len(members), "source": source, "lacking": lacking,
            "batch": self.batch or None, "restore": stateless, "begun": self._furthest > 0,
            "devices": [member.seat.device for member in members],
        }  # fmt: skip
        told = [Tell(member.ident, {**common, "rank": rank}) for rank, member in enumerate(members)]
        return [NewStore(), *told] if suspect else [*told]

    def _end(self, parked: list[Member], now: float) -> list[Action]:
        self._over, self._settled, self.error = True, True, None
        for member in parked:
            member.phase = Phase.LEAVING
        killed: list[Action] = []
        for member in [*self._in(Phase.WARMING), *self._in(Phase.STANDBY)]:
            self._leave(member, now)
            killed.append(Kill(member.ident))
            del self.members[member.ident]
        return [*killed, *(Tell(member.ident, {"do": "finish"}) for member in parked)]

    def _wind_up(self) -> list[Action]:
        if self.members:
            return []
        if self._unsaved is not None:
            return [self._finished or Finish(1, f"training is over, but {self._unsaved}")]
        return [self._finished or Finish(0)]

    def _settle(self) -> list[Action]:
        """Told once, when there is nothing left to be done about the target."""
        if self._settled or not self._going or self._asked or any(self._in(Phase.WARMING)) or self._change_is_due():
            return []
        self._settled = True
        return [Settled()]
