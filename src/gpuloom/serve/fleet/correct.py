"""When a replica is moved to its larger share, and when back. Pure: what was observed in, a verdict out.

Grow when more requests than the promise allows were too long, and chance alone would hardly do that: the number above
the SLO among those of the last seconds is tested against the share that may be (1 % for a p99). Requests of one batch
are late together, so that it is batches that are counted: without that, services that keep their promise by little were
moved ten times as often (simulated, with Poisson arrivals). A short window sees a jump at once, a longer one a drift.

Shrink when the planned share would do again: what is observed on the larger one, times how much slower the planned
one is, has stayed below a part of the SLO for a while. If that was wrong and the violation comes back soon, the next
wait is twice as long, so that a need that stays does not make it go to and fro. Seconds and milliseconds are the plan's
own: whoever dilates time divides first.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, inf, log, log1p

from gpuloom.serve.deployment import Level


class Verdict(StrEnum):
    STAY = "stay"
    GROW = "grow"
    SHRINK = "shrink"
    STUCK = "stuck"
    """The promise is broken, and there is nothing more to give: somebody has to plan anew."""


@dataclass(frozen=True, slots=True)
class Rules:
    allowed: float = 0.01
    """Share of the requests that may take longer than the SLO."""
    doubt: float = 1e-4
    """What happens by chance less often than this is a violation."""
    least: int = 5
    """Fewer above the SLO are no violation, however few requests there were: a first request may be slow."""
    windows_s: tuple[float, ...] = (1.0, 5.0)
    """Ascending."""
    margin: float = 0.85
    """Part of the SLO for the p99 on the planned share to stay within: queues make it grow faster than the times."""
    calm_s: float = 20.0
    most_calm_s: float = 1280.0
    relapse_s: float = 60.0
    """A violation so soon after shrinking means that it was too early."""


RULES = Rules()


@dataclass(frozen=True, slots=True)
class Health:
    """What is remembered of one replica."""

    level: Level = Level.PLANNED
    calm_s: float = 0.0
    """The wait before the next shrinking; 0: the rules'."""
    quiet_since_s: float | None = None
    shrunk_s: float = -inf


FRESH = Health()


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed since its level last changed."""

    now_s: float
    counts: tuple[tuple[int, int], ...]
    """For each of the rules' windows: requests, and those of them that took longer than the SLO."""
    p99_ms: float | None
    """Over the longest window; None if there was no request. Only asked for on the larger share."""


@dataclass(frozen=True, slots=True)
class Means:
    """What could be done."""

    slo_ms: float
    slower: float
    """Times on the planned share, relative to the larger one."""
    room: bool
    """Whether the larger share is larger, and free."""
    batch: int = 1
    """The max batch."""


def correct(health: Health, seen: Seen, means: Means, rules: Rules = RULES) -> tuple[Health, Verdict]:
    violated = any(is_violation(total, above, means.batch, rules) for total, above in seen.counts)
    if health.level is Level.PLANNED:
        if not violated:
            return health, Verdict.STAY
        if not means.room:
            return health, Verdict.STUCK
        relapse = seen.now_s - health.shrunk_s < rules.relapse_s
        calm_s = min(2.0 * health.calm_s, rules.most_calm_s) if relapse else rules.calm_s
        return Health(Level.SHADOW, calm_s, None, health.shrunk_s), Verdict.GROW
    if violated:
        return replace(health, quiet_since_s=None), Verdict.STUCK
    if seen.p99_ms is not None and seen.p99_ms * means.slower > rules.margin * means.slo_ms:
        return replace(health, quiet_since_s=None), Verdict.STAY
    since_s = seen.now_s if health.quiet_since_s is None else health.quiet_since_s
    if seen.now_s - since_s < health.calm_s:
        return replace(health, quiet_since_s=since_s), Verdict.STAY
    return Health(Level.PLANNED, health.calm_s, None, seen.now_s), Verdict.SHRINK


def is_violation(total: int, above: int, batch: int = 1, rules: Rules = RULES) -> bool:
    """Whether so many above the SLO are more than chance makes of what is allowed."""
    if above < rules.least or above <= rules.allowed * total:
        return False
    batches, late = total // batch, above // batch
    # P(at least `late`) = 1 - P(fewer), term by term; in logarithms, as the first ones are too small for a float.
    odds = rules.allowed / (1.0 - rules.allowed)
    log_term = batches * log1p(-rules.allowed)
    fewer = 0.0
    for k in range(late):
        fewer += exp(log_term)
        log_term += log(odds * (batches - k) / (k + 1))
    return 1.0 - fewer < rules.doubt
