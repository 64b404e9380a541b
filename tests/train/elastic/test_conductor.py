"""Who is in the group and what comes next, in a world of workers that only exist here and die when they like."""

import random
from collections import deque

import pytest

from gpuloom.train.elastic.actions import Action, Finish, Fork, Kill, NewStore, Settled, Tell
from gpuloom.train.elastic.conductor import Conductor
from gpuloom.train.elastic.settings import Seat, Settings, Target
from gpuloom.train.elastic.wire import Message


def target(generation: int, names: str, batch: int | None = None) -> Target:
    return Target(generation, tuple(Seat(name) for name in names), batch)


class World:
    """Workers as the conductor's actions make them. A round trains if all its members are there."""

    def __init__(self, names: str, seed: int = 0, samples: int = 1000) -> None:
        self.dice = random.Random(seed)
        self.conductor = Conductor(Settings(16, timeout_s=5.0), target(0, names))
        self.now = 0.0
        self.devices: dict[int, str] = {}
        self.steps: dict[int, int] = {}
        self.inbox: deque[tuple[int, Message]] = deque()
        self.finish: Finish | None = None
        self.settled = 0
        self.rounds: list[Message] = []
        self.parked_for: dict[int, int] = {}
        self.saved = -1
        self.full = False
        """The disk."""
        self.samples = samples
        self.seen: dict[str, int] = {}
        """How many samples there are on a device, where that is another number."""
        self.hangs = False
        """The store: who is to form a round waits for it."""
        self.stores = 1
        self.do(self.conductor.begin(0.0))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Fork(ident, seat):
                    assert seat.device not in self.devices.values(), "two workers on a device"
                    self.devices[ident] = seat.device
                    self.steps[ident] = -1
                    samples = self.seen.get(seat.device, self.samples)
                    self.inbox.append((ident, {"say": "ready", "samples": samples}))
                case Tell(ident, message) if ident in self.devices:
                    self.told(ident, message)
                case Kill(ident):
                    self.die(ident)
                case NewStore():
                    self.stores, self.hangs = self.stores + 1, False
                case Settled():
                    self.settled += 1
                case Finish() if self.finish is None:
                    self.finish = action
                case _:
                    pass

    def told(self, ident: int, message: Message) -> None:
        match message["do"]:
            case "form":
                if message["rank"] == 0:
                    self.rounds.append(message)
                if not self.hangs:
                    self.form(ident, message)
            case "go":
                self.parked_for.pop(ident, None)
                self.going(ident, message["batch"])
            case "park":
                for one in [one for one in self.conductor.ranks if one in self.devices]:
                    self.steps[one] += 1
                    self.park(one, failed=False)
            case "broken":
                self.park(ident, failed=True)
            case "leave":
                self.die(ident, clean=True)
            case "save" if self.full:
                self.inbox.append((ident, {"say": "unsaved", "why": "no space left"}))
            case "save":
                self.saved = self.steps[ident]
                self.inbox.append((ident, {"say": "saved"}))
            case "finish":
                self.die(ident, clean=True)

    def form(self, ident: int, message: Message) -> None:
        source = self.conductor.ranks[message["source"]]
        if source in self.devices and self.steps[source] < 0:
            assert message["restore"]
            self.steps[source] = max(self.saved, 0)
        if message["rank"] in message["lacking"] and source in self.devices:
            self.steps[ident] = self.steps[source]
        if message["rank"] == message["size"] - 1:
            self.going(self.conductor.ranks[0], message["batch"] or 16)

    def going(self, ident: int, batch: int) -> None:
        if ident == self.conductor.ranks[0]:
            self.inbox.append(
                (ident, {"say": "going", "round": self.conductor.round, "step": self.steps.get(ident, 0) + 1,
                         "pause_s": 0.1, "batch": batch})
            )  # fmt: skip

    def park(self, ident: int, failed: bool, ended: bool = False) -> None:
        if self.parked_for.get(ident) != self.conductor.round or not failed:
            self.parked_for[ident] = self.conductor.round
            message = {"say": "parked", "round": self.conductor.round, "step": self.steps[ident], "failed": failed}
            self.inbox.append((ident, {**message, "ended": ended}))

    def die(self, ident: int, clean: bool = False) -> None:
        if self.devices.pop(ident, None) is not None:
            self.inbox.append((ident, {"died": clean}))

    def turn(self) -> bool:
        """One thing that was said or done is noticed."""
        if not self.inbox or self.finish is not None:
            return False
        ident, message = self.inbox.popleft()
        self.now += 0.1
        if "died" in message:
            self.do(self.conductor.died(ident, "killed", message["died"], self.now))
        elif ident in self.devices:
            self.do(self.conductor.heard(ident, message, self.now))
        return True

    def rest(self) -> None:
        for _ in range(10_000):
            if not self.turn():
                return
        raise AssertionError("it never comes to rest")

    def present(self) -> str:
        return "".join(sorted(self.devices[ident] for ident in self.conductor.ranks if ident in self.devices))


def test_it_begins_grows_shrinks_and_moves() -> None:
    world = World("AB")
    world.rest()
    assert (world.present(), world.settled, world.conductor.round) == ("AB", 1, 1)
    for generation, names in enumerate(["ABC", "C", "DE"], 1):
        world.do(world.conductor.resize(target(generation, names), world.now))
        world.rest()
        assert world.present() == names
        assert world.settled == generation + 1
    assert len({world.steps[ident] for ident in world.conductor.ranks}) == 1
    assert world.rounds[1]["lacking"] == [2]  # the state goes to the newcomer only
    assert [one["restore"] for one in world.rounds].count(True) == 1


def test_a_batch_changes_without_a_new_group() -> None:
    world = World("AB")
    world.rest()
    world.do(world.conductor.resize(target(1, "AB", 48), world.now))
    world.rest()
    assert (world.conductor.round, world.conductor.batch, world.settled) == (1, 48, 2)


def test_an_older_target_changes_nothing() -> None:
    world = World("AB")
    world.rest()
    assert world.conductor.resize(target(0, "A"), world.now) == []
    assert world.conductor.target == target(0, "AB")


def test_a_stop_saves_the_newest_state_and_ends() -> None:
    world = World("ABC")
    world.rest()
    world.do(world.conductor.stop(world.now))
    world.rest()
    assert world.finish == Finish(0)
    assert world.saved == 1
    assert not world.devices


def test_who_saves_may_die() -> None:
    world = World("AB")
    world.rest()
    world.do(world.conductor.stop(world.now))
    while world.saved < 0:
        world.turn()
    world.inbox.clear()  # the word that it was saved is never said
    world.die(world.conductor.ranks[0])
    world.rest()
    assert world.finish == Finish(0)


def test_a_device_that_never_works_is_given_up() -> None:
    world = World("A")
    world.rest()
    world.do(world.conductor.resize(target(1, "AB"), world.now))
    for _ in range(3):
        (newcomer,) = [ident for ident, device in world.devices.items() if device == "B"]
        world.inbox.clear()
        world.die(newcomer)
        world.turn()
    world.inbox.clear()
    assert (world.present(), world.settled, world.finish) == ("A", 2, None)
    assert "B failed 3 times" in world.conductor.status(dict.fromkeys(world.devices, 1))["error"]


def test_a_newcomer_that_sees_other_data_is_given_up() -> None:
    world = World("AB")
    world.seen["C"] = 1001
    world.rest()
    world.do(world.conductor.resize(target(1, "ABC"), world.now))
    world.rest()
    told = world.conductor.status(dict.fromkeys(world.devices, 1))
    assert (world.present(), told["done"], world.conductor.round) == ("AB", True, 1)  # the others were not disturbed
    assert told["error"].endswith("it sees a data set of 1001 samples, the others one of 1000")


def test_only_who_has_the_state_can_end_a_job_that_has_one() -> None:
    """A newcomer that is refused, before or after it was called, is one that failed to warm."""
    world = World("AB")
    world.rest()
    world.do(world.conductor.resize(target(1, "ABC"), world.now))
    for _ in range(3):
        while len(world.conductor.ranks) < 3:
            world.turn()
        (newcomer,) = [ident for ident, device in world.devices.items() if device == "C"]
        world.inbox.clear()  # it was called, and no step was made
        crash(world, newcomer, "another model", fatal=True)
        while len(world.conductor.ranks) == 3 and world.inbox:
            world.turn()
    world.rest()
    assert (world.present(), world.finish) == ("AB", None)
    assert "C failed 3 times" in world.conductor.status(dict.fromkeys(world.devices, 1))["error"]
    first, second = world.conductor.ranks
    crash(world, first, "a wrong loss", fatal=True)
    assert (world.present(), world.finish) == ("B", None)  # who has it too
    crash(world, second, "a wrong loss", fatal=True)
    assert world.finish is not None
    assert world.finish.sentence is not None


def test_a_store_that_hangs_is_suspected_before_any_worker() -> None:
    world = World("AB")
    world.rest()
    world.hangs = True
    world.do(world.conductor.resize(target(1, "ABC"), world.now))
    world.rest()
    before = set(world.devices)
    world.do(world.conductor.stop(world.now))
    actions = world.conductor.tick(world.now + 5.0)
    assert actions == [NewStore()]
    assert world.conductor.tick(world.now + 9.9) == []  # nobody is killed: they have to come out of it
    world.do(actions)
    for ident in world.conductor.ranks:
        world.park(ident, failed=True)
    assert set(world.devices) == before
    world.rest()
    assert (world.finish, world.saved) == (Finish(0), 2)


def test_a_round_that_fails_without_a_death_gets_another_store() -> None:
    world = World("AB")
    world.rest()
    world.hangs = True
    world.do(world.conductor.resize(target(1, "ABC"), world.now))
    world.rest()
    for ident in world.conductor.ranks:
        world.park(ident, failed=True)  # by the time-out of a store that was reached
    world.rest()
    assert (world.stores, world.present(), world.settled) == (2, "ABC", 2)


def test_what_comes_after_the_end_is_answered() -> None:
    world = World("AB")
    world.rest()
    assert not world.conductor.status(dict.fromkeys(world.devices, 1))["finished"]
    for ident in world.conductor.ranks:
        world.park(ident, failed=False, ended=True)
    world.rest()
    assert world.finish == Finish(0)
    assert world.conductor.resize(target(7, "ABC"), world.now) == []
    told = world.conductor.status({})
    assert (told["generation"], told["done"], told["finished"], told["error"]) == (7, True, True, None)
    assert told["workers"] == told["pids"] == []


def crash(world: World, ident: int, text: str, fatal: bool = False) -> None:
    message = {"say": "crash", "traceback": f"Traceback\nRuntimeError: {text}", "fatal": fatal}
    world.do(world.conductor.heard(ident, message, world.now))
    world.die(ident)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_bug_ends_the_job_with_its_traceback(at_once: bool) -> None:
    world = World("AB")
    world.rest()
    for _ in range(9):
        for ident in list(world.conductor.ranks)[: None if at_once else 1]:
            if world.finish is None and ident in world.devices:
                crash(world, ident, "a bug")
        world.inbox = deque(one for one in world.inbox if one[1].get("say") != "going")  # no step is ever done
        while world.finish is None and world.inbox and world.inbox[0][1].get("say") != "going":
            world.turn()
    assert world.finish is not None
    assert (world.finish.code, world.finish.sentence) == (1, "Traceback\nRuntimeError: a bug")


def test_who_does_not_answer_is_killed() -> None:
    world = World("AB")
    world.rest()
    first, second = world.conductor.ranks
    message = {"say": "parked", "round": 1, "step": 1, "failed": True, "ended": False}
    actions = world.conductor.heard(first, message, 10.0)
    assert Tell(second, {"do": "broken", "round": 1}) in actions
    assert world.conductor.tick(14.0) == []
    assert world.conductor.tick(15.5) == [Kill(second)]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_it_comes_to_what_is_wanted(seed: int) -> None:
    """Workers die at random moments, also in changes; targets replace each other. In the end all is as last wanted."""
    world = World("ABC", seed)
    names = "ABC"
    for generation in range(1, 12):
        for _ in range(world.dice.randrange(12)):
            world.turn()
        if world.dice.random() < 0.6:
            names = "".join(world.dice.sample("ABCDEF", world.dice.randint(1, 5)))
            world.do(world.conductor.resize(target(generation, names, world.dice.choice([None, 8, 64])), world.now))
        elif world.devices and world.conductor._deaths < 8:
            world.die(world.dice.choice(list(world.devices)))
    world.do(world.conductor.resize(target(99, names), world.now))
    world.rest()
    assert world.finish is None
    assert world.present() == "".join(sorted(names))
    assert world.conductor.status(dict.fromkeys(world.devices, 1))["done"]
    assert {world.steps[ident] >= 0 for ident in world.conductor.ranks} == {True}


def test_a_bug_that_never_says_the_same_ends_the_job_too() -> None:
    world = World("A")
    for number in range(100):
        while world.finish is None and world.inbox and world.inbox[0][1].get("say") != "going":
            world.turn()
        world.inbox.clear()  # no step is ever done
        if world.finish is not None:
            break
        crash(world, world.conductor.ranks[0], f"at {number}")
    assert world.finish is not None
    assert world.finish.code == 1
    assert "RuntimeError: at " in (world.finish.sentence or "")


def test_a_lone_worker_that_says_nothing_is_killed_and_replaced() -> None:
    world = World("A")
    world.rest()
    (alone,) = world.conductor.ranks
    world.do(world.conductor.heard(alone, {"say": "at", "step": 7}, 40.0))
    assert world.conductor.tick(89.0) == []
    world.do(world.conductor.tick(91.0))
    world.rest()
    assert world.conductor.ranks != (alone,)
    assert world.present() == "A"


@pytest.mark.parametrize("names", ["A", "AB"])
def test_who_hangs_cannot_keep_the_job_from_stopping(names: str) -> None:
    world = World(names)
    world.rest()
    world.conductor.stop(world.now)  # who was told to park does not
    hung = list(world.conductor.ranks)
    world.inbox.clear()
    assert world.conductor.tick(world.now + 4.9) == []
    world.do(world.conductor.tick(world.now + 5.1))
    assert not set(hung) & set(world.devices)
    world.rest()
    assert world.finish is not None
    assert (world.finish.code, "without saving" in (world.finish.sentence or "")) == (1, True)


def test_a_state_that_cannot_be_saved_is_told_by_the_exit_code() -> None:
    world = World("AB")
    world.rest()
    world.full = True
    world.do(world.conductor.stop(world.now))
    world.rest()
    assert world.finish is not None
    assert world.finish.code == 1
    assert "no space left" in (world.finish.sentence or "")
    assert not world.devices


def test_a_stop_before_the_first_step_has_nothing_to_save() -> None:
    world = World("AB")
    world.do(world.conductor.stop(world.now))
    world.rest()
    assert world.finish == Finish(0)


def test_no_batch_is_larger_than_the_data_set() -> None:
    world = World("A", samples=40)
    world.rest()
    world.do(world.conductor.resize(target(1, "AB", 64), world.now))
    world.rest()
    told = world.conductor.status(dict.fromkeys(world.devices, 1))
    assert (told["batch"], told["done"], world.present()) == (40, True, "AB")


def test_a_newcomer_that_was_sent_away_does_not_spoil_the_end() -> None:
    conductor = Conductor(Settings(16), target(0, "A"))
    conductor.begin(0.0)
    conductor.heard(0, {"say": "ready", "samples": 100}, 0.0)
    conductor.heard(0, {"say": "going", "round": 1, "step": 1, "pause_s": 0.0, "batch": 16}, 0.0)
    conductor.resize(target(1, "AB"), 0.0)
    assert Kill(1) in conductor.resize(target(2, "A"), 0.0)
    conductor.heard(0, {"say": "parked", "round": 1, "step": 9, "failed": False, "ended": True}, 0.0)
    assert conductor.died(1, "killed by SIGKILL", clean=False, now=0.0) == []
    assert conductor.died(0, "exit code 0", clean=True, now=0.0) == [Finish(0)]
