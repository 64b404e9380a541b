"""The few figures at the top of the page: those of the best policy, against the baseline's."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from gpuloom.pages.cards import Card, cards
from gpuloom.pages.chart import swatch
from gpuloom.pages.html import Html, join
from gpuloom.pages.page import section
from gpuloom.pages.words import against, duration, number
from gpuloom.sim.report.data import RunData
from gpuloom.sim.report.table import Rows
from gpuloom.sim.report.words import FIGURES

HEADLINE = ("avg_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s", "stp_per_gpu")

Means = Mapping[str, Mapping[str, float]]
"""Headline figures by policy, of those that are known."""


def policy_means(runs: Sequence[RunData], table: Rows) -> Means:
    """The headline figures of each policy: those of the table, which may know more runs, or means over these runs."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        of_policy = found.setdefault(run.policy, {})
        for name in HEADLINE:
            if (value := run.summary.get(name)) is not None:
                of_policy.setdefault(name, []).append(value)
    stated = {str(row.get("policy")): row for row in table}
    if all("avg_jct_s" in stated.get(policy, ()) for policy in found):
        return {policy: _numbers(stated[policy]) for policy in found}
    return {policy: {name: fmean(values) for name, values in known.items()} for policy, known in found.items()}


def _numbers(row: Mapping[str, object]) -> dict[str, float]:
    return {name: value for name in HEADLINE if isinstance(value := row.get(name), int | float)}


def best_of(means: Means) -> str | None:
    """The policy with the shortest mean completion time."""
    timed = {policy: known["avg_jct_s"] for policy, known in means.items() if "avg_jct_s" in known}
    return min(timed, key=timed.__getitem__, default=None)


def headline(means: Means, baseline: str | None, colours: Mapping[str, str]) -> Html:
    best = best_of(means)
    if best is None:
        return Html("")
    base = {} if baseline is None or baseline == best else means.get(baseline, {})
    figures = [
        _card(name, means[best][name], base.get(name), str(baseline)) for name in HEADLINE if name in means[best]
    ]
    claim = "Shortest mean completion time: " if len(means) > 1 else ""
    return section("headline", join(claim, swatch(colours[best]), best), cards(figures))


def _card(name: str, value: float, base: float | None, baseline: str) -> Card:
    value_words = duration(value) if name.endswith("_s") else number(float(value))
    words = against(value, base) if base is not None else ""
    better = FIGURES[name].less_is_better == (value < base) if base is not None and value != base else None
    return Card(FIGURES[name].name, value_words, f"{words} {baseline}" if words else "", better)
