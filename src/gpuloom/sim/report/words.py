"""Names and figures as people read them: what a column means, whether less of it is better, how long a time is."""

from dataclasses import dataclass


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

_UNITS = {"_s": "s", "_ms": "ms", "_mib": "MiB", "_pct": "%"}


def figure_of(column: str) -> tuple[str | None, str]:
    """The known figure that a column is about, and what the rest of its name says: `avg_jct_s_ratio` → its ratio."""
    for known in sorted(FIGURES, key=len, reverse=True):
        if column == known or column.startswith(f"{known}_"):
            return known, column[len(known) + 1 :]
    return None, column


def label(column: str) -> tuple[str, str]:
    """A column's name in words, and its unit ("" if it has none)."""
    known, rest = figure_of(column)
    words, unit = _words(rest) if known is None else _words(known)
    if known is not None:
        words = FIGURES[known].name + (f": {_words(rest)[0]}" if rest else "")
        unit = "" if "ratio" in rest else unit
    return words, unit


def _words(name: str) -> tuple[str, str]:
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return name.removesuffix(unit).replace("_", " "), _UNITS.get(unit, "")


def number(value: float, like: float | None = None) -> str:
    """Three figures that count, with thousands apart; with `like`, as many decimals as that value has."""
    size = abs(value if like is None else like)
    if isinstance(value, int) or size >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"


def duration(seconds: float) -> str:
    """The two largest units, rounded: 2 d 4 h, 16 m 36 s, 8.5 s."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    for size_s, unit, part_s, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        parts = round(seconds / part_s)
        if parts * part_s >= size_s * (2 if unit == "d" else 1):
            whole, left = divmod(parts, size_s // part_s)
            return f"{whole:,} {unit} {left} {part}" if left else f"{whole:,} {unit}"
    return "1 m"


def against(value: float, base: float) -> str:
    """How a value compares with another: `58 % less than`, `2.4 times`; nothing where that has no meaning."""
    if base <= 0 or value < 0:
        return ""
    ratio = value / base
    if ratio >= 2:
        return f"{ratio:,.{1 if ratio < 10 else 0}f} times"
    percent = abs(1 - ratio) * 100
    if percent < 0.05:
        return "the same as"
    digits = 0 if 10 <= percent < 98.5 else 1
    return f"{percent:.{digits}f} % {'less' if ratio < 1 else 'more'} than"
