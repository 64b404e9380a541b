"""Markup as a type of its own: any text that is not of it is escaped when it becomes part of a page.

Knows how HTML is written and nothing of what a page shows.
"""

import json
from html import escape

VOID = frozenset({"link", "meta"})
"""Elements that have no content and no end."""


class Html(str):
    """Text that a browser may read as markup. Only what is written in the code may be called so, never a name."""

    __slots__ = ()


def join(*content: str) -> Html:
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in content))


def tag(name: str, /, *content: str, **attributes: str | int | None) -> Html:
    """An element. `class_` is the attribute class, `aria_label` is aria-label; one that is None is left out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{words}>" if name in VOID else f"<{name}{words}>{join(*content)}</{name}>")


def json_data(key: str, value: object) -> Html:
    """Data for a script, under an id. Names in it may hold `</script>` or `<!--`: JSON can write them as escapes."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    inert = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return tag("script", Html(inert), type="application/json", id=key)
