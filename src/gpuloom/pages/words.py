"""Figures as people read them: numbers that count, how long a time is, how a value compares with another."""


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


UNITS = {"_s": "s", "_ms": "ms", "_mib": "MiB", "_pct": "%"}
CAPITALS = {"gpu": "GPU", "gpus": "GPUs"}


def column_words(name: str) -> tuple[str, str]:
    """A column's name in words, and its unit ("" if it has none): mem_mib → mem, MiB."""
    unit = next((unit for unit in UNITS if name.endswith(unit)), "")
    words = name.removesuffix(unit).split("_")
    return " ".join(CAPITALS.get(word, word) for word in words), UNITS.get(unit, "")


def shown(value: object) -> str:
    """A value with all its figures; what is not known is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
