"""What is counted of the requests that were answered, and that replicas that grow never take what is not there."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.grant import Device, Grant
from gpuloom.gpus.model import Instance
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Level, slot_of
from gpuloom.serve.fleet.correct import Rules, Verdict
from gpuloom.serve.fleet.journal import Journal
from gpuloom.serve.fleet.observer import Observer, fits
from gpuloom.serve.fleet.place import Place
from gpuloom.serve.fleet.shadows import shadow_grants
from gpuloom.serve.fleet.wish import Wish
from gpuloom.serve.gateway.pool import GAVE_UP, Backend, Done
from gpuloom.serve.latencies import Window
from gpuloom.serve.state import State
from gpuloom.serve.triton.server import Server, ServerSpec
from tests.serve.plans import replica

NOWHERE = Path("/nonexistent")
SLO_MS = 40.0
SPAN_S = 1e6
AT_ONCE = Rules(calm_s=0.0, windows_s=(SPAN_S,))
"""Shrinks as soon as there is no need."""


def server(planned: Replica, level: Level, grant: Grant) -> Server:
    """One that is never started."""
    name = f"{planned.service}-{planned.number}-{level.value}"
    return Server(ServerSpec(name, planned.service, "m", level, grant, NOWHERE, NOWHERE, 1.0, standin=True))


def watched(replicas: Sequence[Replica]) -> tuple[Observer, list[Place]]:
    """Places whose planned servers serve; who does so next is for the test to say."""
    shadows, specs, places = shadow_grants(replicas), {}, []
    for planned in replicas:
        slot = slot_of(planned)
        pair = (server(planned, Level.PLANNED, planned.grant), server(planned, Level.SHADOW, shadows[slot]))
        specs[slot] = (pair[0].spec, pair[1].spec)
        servers = {each.spec.level: each for each in pair}
        places.append(Place(planned, servers, Window(SPAN_S, SLO_MS), active=pair[0]))
    wish = Wish(specs, dict.fromkeys(specs, 1.0), {planned.service: SLO_MS for planned in replicas}, rules=AT_ONCE)
    return Observer(places, wish, Journal(State(NOWHERE))), places


def feasible(entries: list[tuple[int, float]]) -> list[Replica]:
    """As many of them as fit: two GPUs, and two slices of one kind."""
    devices = (0, None), (1, None), (2, Instance(0, "3g.20gb")), (2, Instance(4, "3g.20gb"))
    replicas: list[Replica] = []
    for number, (place, share_pct) in enumerate(entries):
        gpu, instance = devices[place]
        wanted = replica("a", number, gpu=gpu, instance=instance, share_pct=share_pct)
        if fits(wanted.grant, [other.grant for other in replicas]):
            replicas.append(wanted)
    return replicas


def most_pct(places: list[Place]) -> float:
    """Of the fullest device, what its places hold and are to have."""
    claimed: defaultdict[Device, float] = defaultdict(float)
    for place in places:
        for grant in place.claims:
            claimed[grant.device] += grant.share_pct
    return max(claimed.values())


PLANS = st.lists(st.tuples(st.integers(0, 3), st.floats(2.5, 60.0)), min_size=1, max_size=10).map(feasible)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["late", "calm", "switch"])), max_size=60)


@settings(deadline=None, max_examples=150)
@given(replicas=PLANS, steps=STEPS)
def test_no_device_is_ever_promised_to_more_than_it_has(replicas: list[Replica], steps: list[tuple[int, str]]) -> None:
    observer, places = watched(replicas)
    for choice, step in steps:
        place = places[choice % len(places)]
        place.window.clear()
        if step == "switch":  # the server that is wanted has become ready
            place.active = place.wanted
        elif step == "late":
            for _ in range(50):
                place.window.add(observer.plan_s(), 2.0 * SLO_MS)
            observer.review(place)
        else:
            observer.review(place)
        assert most_pct(places) <= 100.0 + 1e-6


def test_the_room_that_two_count_on_is_given_back_and_taken() -> None:
    observer, (first, second) = watched([replica("a", share_pct=45.0), replica("b", share_pct=50.0)])

    def late(place: Place) -> Verdict:
        for _ in range(50):
            place.window.add(observer.plan_s(), 2.0 * SLO_MS)
        observer.review(place)
        return place.verdict

    assert late(first) is Verdict.GROW
    assert late(second) is Verdict.STUCK  # from the moment it was decided, not from when the server is there
    first.active = first.wanted
    first.window.clear()
    observer.review(first)
    assert first.verdict is Verdict.SHRINK
    assert late(second) is Verdict.STUCK  # the larger one still serves
    first.active = first.wanted
    assert late(second) is Verdict.GROW


DONE = st.tuples(
    st.sampled_from(list(Level)), st.sampled_from([200, 400, 500, GAVE_UP]), st.floats(0.0, 0.1), st.booleans()
)


@settings(deadline=None, max_examples=100)
@given(requests=st.lists(DONE, max_size=60), dilate=st.sampled_from([1.0, 10.0]))
def test_what_counts_for_the_promise_and_what_for_the_server(
    requests: list[tuple[Level, int, float, bool]], dilate: float
) -> None:
    observer, (place,) = watched([replica("a")])
    observer.wish = Wish({}, {}, {"a": SLO_MS}, dilate=dilate, rules=AT_ONCE)
    for each in place.servers.values():
        each.backend = Backend(each.spec.name, "nowhere", 1)
    counted, of_the_server = [], []
    for level, status, took_s, undisturbed in requests:
        backend = place.servers[level].backend
        assert backend is not None
        observer.add("a", Done(backend, status, took_s, undisturbed))
        latency_ms = took_s * 1000.0 / dilate
        if status == GAVE_UP and latency_ms <= SLO_MS:
            continue  # what would have been is not known
        counted.append((status, latency_ms))
        if undisturbed and level is Level.PLANNED:
            of_the_server.append(latency_ms)
    tally, now_s = observer.tallies["a"], observer.plan_s()
    assert tally.requests == len(counted)
    assert tally.above == sum(latency_ms > SLO_MS for _, latency_ms in counted)
    assert tally.failed == sum(status in (400, 500) for status, _ in counted)
    assert tally.window.latencies_ms(now_s) == sorted(latency_ms for _, latency_ms in counted)
    assert place.window.latencies_ms(now_s) == sorted(of_the_server)
