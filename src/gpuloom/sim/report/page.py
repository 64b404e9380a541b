"""The page itself: template, style and scripts from the files beside this one, filled in and written as one file.

Nothing in it depends on a clock or on this machine: the same runs give the same bytes.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from gpuloom.sim.report.data import RunData
from gpuloom.sim.report.embed import MOST_RUNS, embed
from gpuloom.sim.report.headline import best_of, headline, policy_means
from gpuloom.sim.report.table import Rows, comparison, swatch

SCRIPTS = ("clock.js", "scene.js", "gantt.js", "curves.js", "page.js")
POLICY_COLOURS = 8


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
    colours = {policy: at % POLICY_COLOURS for at, policy in enumerate(policies)}
    means = policy_means(runs, table)
    best = best_of(means)
    selected = next((at for at, run in enumerate(runs[:MOST_RUNS]) if run.policy == best), 0)
    embedded = embed(runs, [colours[run.policy] for run in runs])
    script = '(() => {\n"use strict";\n' + "".join(_asset(name) for name in SCRIPTS) + "})();\n"
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        facts=_facts(runs),
        headline=headline(means, baseline or next(iter(means), None), colours),
        comparison=comparison(table, colours),
        seed=_seed(runs),
        tabs=_tabs(runs, colours, selected),
        legend=_legend(colours),
        left_out=f'<p class="notice">{escape(" ".join(embedded.left_out))}</p>' if embedded.left_out else "",
        notes=f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else "",
        style=_asset("page.css"),
        data=embedded.json,
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _asset(name: str) -> str:
    return files("gpuloom.sim.report").joinpath(name).read_text(encoding="utf-8")


def _facts(runs: Sequence[RunData]) -> str:
    """What was run, in one line."""
    jobs = {jobs for run in runs if (jobs := run.summary.get("jobs")) is not None}
    policies = {run.policy for run in runs}
    facts = [
        ", ".join(dict.fromkeys(run.gpus for run in runs)),
        f"{max(jobs):,} job{'s' * (max(jobs) != 1)}" if len(jobs) == 1 else "",
        f"{len(policies)} policies" if len(policies) > 1 else "",
    ]
    return " · ".join(escape(fact) for fact in facts if fact)


def _seed(runs: Sequence[RunData]) -> str:
    """The seed of the charts if they have one; if they have several, the tabs say which."""
    seeds = {run.seed for run in runs}
    return f"<small>seed {min(seeds)}</small>" if len(seeds) == 1 else ""


def _tabs(runs: Sequence[RunData], colours: Mapping[str, int], selected: int) -> str:
    """One tab for each run."""
    several = len({run.seed for run in runs}) > 1
    tabs = []
    for at, run in enumerate(runs[:MOST_RUNS]):
        state = f'aria-selected="{str(at == selected).lower()}" tabindex="{0 if at == selected else -1}"'
        seed = f" <small>seed {run.seed}</small>" if several else ""
        name = f"{swatch(colours[run.policy])}{escape(run.policy)}{seed}"
        tabs.append(f'<button type="button" role="tab" aria-controls="gantt" {state}>{name}</button>')
    return "".join(tabs)


def _legend(colours: Mapping[str, int]) -> str:
    return "".join(f"<li>{swatch(colour)}{escape(policy)}</li>" for policy, colour in colours.items())
