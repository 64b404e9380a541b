"""The report's page: figures as text, and charts that scripts draw from the data in it.

The frame and the looks are those of all pages; the scripts are the files beside this one.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from gpuloom.pages import page as frame
from gpuloom.pages.chart import colour, legend, swatch
from gpuloom.pages.html import Html, join, json_data, tag
from gpuloom.sim.report.data import RunData
from gpuloom.sim.report.embed import MOST_RUNS, embed
from gpuloom.sim.report.headline import best_of, headline, policy_means
from gpuloom.sim.report.table import Rows, comparison

SCRIPTS = ("clock.js", "scene.js", "gantt.js", "curves.js", "page.js")
POLICY_COLOURS = 8
"""The first of them can be told apart as thin lines."""


def write_report(
    path: Path,
    title: str,
    runs: Sequence[RunData],
    table: Sequence[Mapping[str, object]],
    notes: Sequence[str] = (),
    baseline: str | None = None,
) -> None:
    """Write one self-contained page. `baseline` is whom the headline compares with; None: the first run's policy."""
    path.write_text(page(title, runs, table, notes, baseline), encoding="utf-8", newline="\n")


def page(
    title: str, runs: Sequence[RunData], table: Rows, notes: Sequence[str] = (), baseline: str | None = None
) -> str:
    policies = dict.fromkeys(run.policy for run in runs)
    colours = {policy: colour(at % POLICY_COLOURS) for at, policy in enumerate(policies)}
    means = policy_means(runs, table)
    best = best_of(means)
    selected = next((at for at, run in enumerate(runs[:MOST_RUNS]) if run.policy == best), 0)
    embedded = embed(runs, [colours[run.policy] for run in runs])
    charts = Template(_asset("charts.html")).substitute(
        seed=_seed(runs),
        tabs=_tabs(runs, colours, selected),
        legend=legend("Policies", [(style, policy) for policy, style in colours.items()]),
        left_out=frame.notice(" ".join(embedded.left_out)) if embedded.left_out else "",
    )
    why = join("Times are of the simulated clock. Why a job is where it is: ", tag("code", "gpuloom explain LOG JOB"))
    return frame.page(
        title,
        "simulation",
        _facts(runs),
        headline(means, baseline or next(iter(means), None), colours),
        comparison(table, colours),
        Html(charts),
        json_data("data", embedded.data),
        closing=join(frame.listed(notes), tag("p", why)),
        script='(() => {\n"use strict";\n' + "".join(_asset(name) for name in SCRIPTS) + "})();\n",
    )


def _asset(name: str) -> str:
    return files("gpuloom.sim.report").joinpath(name).read_text(encoding="utf-8")


def _facts(runs: Sequence[RunData]) -> list[str]:
    """What was run."""
    jobs = {jobs for run in runs if (jobs := run.summary.get("jobs")) is not None}
    policies = {run.policy for run in runs}
    facts = [
        ", ".join(dict.fromkeys(run.gpus for run in runs)),
        f"{max(jobs):,} job{'s' * (max(jobs) != 1)}" if len(jobs) == 1 else "",
        f"{len(policies)} policies" if len(policies) > 1 else "",
    ]
    return [fact for fact in facts if fact]


def _seed(runs: Sequence[RunData]) -> Html:
    """The seed of the charts if they have one; if they have several, the tabs say which."""
    seeds = {run.seed for run in runs}
    return join(" ", tag("small", f"seed {min(seeds)}")) if len(seeds) == 1 else Html("")


def _tabs(runs: Sequence[RunData], colours: Mapping[str, str], selected: int) -> Html:
    """One tab for each run."""
    several = len({run.seed for run in runs}) > 1
    tabs = []
    for at, run in enumerate(runs[:MOST_RUNS]):
        state = (
            {"aria_selected": "true", "tabindex": "0"}
            if at == selected
            else {"aria_selected": "false", "tabindex": "-1"}
        )
        seed = (" ", tag("small", f"seed {run.seed}")) if several else ()
        name = join(swatch(colours[run.policy]), run.policy, *seed)
        tabs.append(tag("button", name, type="button", role="tab", aria_controls="gantt", **state))
    return join(*tabs)
