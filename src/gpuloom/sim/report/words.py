"""What a figure of a run is called, its unit, and whether less of it is better."""

from dataclasses import dataclass

from gpuloom.pages.words import column_words


@dataclass(frozen=True, slots=True)
class Figure:
    """What a figure of a run is called, and which way is better; None where neither is."""

    name: str
    less_is_better: bool | None = None


FIGURES = {
    "avg_jct_s": Figure("mean completion time", True),
    "p50_jct_s": Figure("median completion time", True),
    "p90_jct_s": Figure("p90 completion time", True),
    "p99_jct_s": Figure("p99 completion time", True),
    "max_jct_s": Figure("longest completion time", True),
    "avg_wait_s": Figure("mean wait", True),
    "p99_wait_s": Figure("p99 wait", True),
    "avg_slowdown": Figure("mean slowdown", True),
    "p99_slowdown": Figure("p99 slowdown", True),
    "max_slowdown": Figure("largest slowdown", True),
    "makespan_s": Figure("makespan", True),
    "stp_per_gpu": Figure("throughput per GPU", False),
    "utilisation": Figure("utilisation"),
    "gpu_hours": Figure("GPU hours", True),
    "avg_queue": Figure("mean queue", True),
    "given_up": Figure("given up", True),
    "fragmentation": Figure("fragmentation", True),
}


def figure_of(column: str) -> tuple[str | None, str]:
    """The known figure that a column is about, and what the rest of its name says: `avg_jct_s_ratio` → its ratio."""
    for known in sorted(FIGURES, key=len, reverse=True):
        if column == known or column.startswith(f"{known}_"):
            return known, column[len(known) + 1 :]
    return None, column


def label(column: str) -> tuple[str, str]:
    """A column's name in words, and its unit ("" if it has none)."""
    known, rest = figure_of(column)
    words, unit = column_words(rest) if known is None else column_words(known)
    if known is not None:
        words = FIGURES[known].name + (f": {column_words(rest)[0]}" if rest else "")
        unit = "" if "ratio" in rest else unit
    return words, unit
