"""What the pools tell of requests that were answered, and what follows from it: the share that each replica is to have.

The rule itself is in `correct`; here is what it is asked with, and its verdict noted. Who then serves is `fleet`'s.
"""

import time
from collections.abc import Collection, Iterable

from gpuloom.gpus.grant import Grant
from gpuloom.serve.deployment import Level, slot_of
from gpuloom.serve.fleet.correct import Means, Seen, Verdict, correct
from gpuloom.serve.fleet.journal import Journal
from gpuloom.serve.fleet.place import Place, Tally
from gpuloom.serve.fleet.wish import Wish
from gpuloom.serve.gateway.pool import GAVE_UP, Done
from gpuloom.serve.latencies import Window, percentile


class Observer:
    def __init__(self, places: Collection[Place], wish: Wish, journal: Journal) -> None:
        self.places, self.wish, self.journal = places, wish, journal
        span_s = wish.rules.windows_s[-1]
        self.tallies = {service: Tally(Window(span_s, slo_ms)) for service, slo_ms in wish.slo_ms.items()}
        self._place_of = {server.spec.name: place for place in places for server in place.servers.values()}
        self._began_s = time.monotonic()

    def plan_s(self) -> float:
        """The plan's seconds since the start."""
        return (time.monotonic() - self._began_s) / self.wish.dilate

    def add(self, service: str, done: Done) -> None:
        now_s, latency_ms = self.plan_s(), done.took_s * 1000.0 / self.wish.dilate
        above, gave_up = latency_ms > self.wish.slo_ms[service], done.status == GAVE_UP
        if gave_up and not above:
            return  # whether it would have been answered in time is not known
        tally = self.tallies[service]
        tally.requests += 1
        tally.above += above
        tally.failed += done.status >= 400 and not gave_up
        tally.window.add(now_s, latency_ms)
        place = self._place_of[done.backend.name]
        if done.undisturbed and place.active is not None and place.active.backend is done.backend:
            place.window.add(now_s, latency_ms)

    def review(self, place: Place) -> None:
        """Let the rule decide which share it is to have."""
        rules, grown, settled = self.wish.rules, place.health.level is Level.SHADOW, place.active is place.wanted
        if place.active is None or not (settled or grown):
            return  # a crash has put the larger one in its place
        now_s, slo_ms = self.plan_s(), self.wish.slo_ms[place.replica.service]
        counts = tuple(place.window.counts(now_s, span_s) for span_s in rules.windows_s)
        # Sorting takes a while, and is only asked for when it may shrink.
        seen = Seen(now_s, counts, percentile(place.window.latencies_ms(now_s), 99.0) if grown else None)
        # While the larger one is on its way, or does not start, the planned one is what is seen.
        slower = self.wish.slower[slot_of(place.replica)] if settled else 1.0
        means = Means(slo_ms, slower, self._has_room(place), place.replica.grant.batch or 1)
        place.health, verdict = correct(place.health, seen, means, rules)
        if not settled and verdict is Verdict.STUCK:
            verdict = Verdict.STAY
        if verdict in (Verdict.GROW, Verdict.SHRINK) or (verdict is Verdict.STUCK and place.verdict is not verdict):
            (total, above), *_ = counts
            detail = f"{above} of the last {total} requests took above {slo_ms:g} ms"
            self.journal.note(verdict.value, place.active, detail)
        place.verdict = verdict

    def _has_room(self, place: Place) -> bool:
        shadow, planned = place.servers[Level.SHADOW].spec.grant, place.servers[Level.PLANNED].spec.grant
        others = [grant for other in self.places if other is not place for grant in other.claims]
        return shadow.share_pct > planned.share_pct and fits(shadow, others)


def fits(wanted: Grant, others: Iterable[Grant]) -> bool:
    """Whether there is room for it beside what the others hold now."""
    taken_pct = sum(other.share_pct for other in others if other.device == wanted.device)
    return taken_pct + wanted.share_pct <= 100.0 + 1e-9
