"""The frame of every page: one file that needs no network and no program but a browser.

Nothing in it depends on a clock or on this machine: the same content gives the same bytes.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

from gpuloom.pages.html import Html, join, tag

MARK = Html(
    '<svg viewBox="0 0 18 18" aria-hidden="true"><path d="M3 1v16M9 1v4m0 4v8M15 1v10m0 4v2"/>'
    '<path d="M1 3h4m4 0h8M1 9h16M1 15h10"/></svg>'
)


def page(
    title: str, kind: str, facts: Sequence[str], *content: Html, closing: Html | None = None, script: str = ""
) -> str:
    """`kind` is what sort of page this is; `facts` go below the title; `closing` goes at the end, in small letters."""
    header = tag(
        "header",
        tag("p", MARK, "gpuloom ", tag("span", kind), class_="brand"),
        tag("h1", title),
        *([tag("p", " · ".join(facts), class_="facts")] if facts else []),
    )
    main = tag("main", *content)
    footer = tag("footer", closing) if closing else Html("")
    code = tag("script", Html(script)) if script else Html("")
    body = tag("body", "\n", header, "\n", main, "\n", footer, code, "\n")
    text = join(Html("<!doctype html>\n"), tag("html", _head(title, script), "\n", body, lang="en"), "\n")
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate in a name could not be written


def section(key: str, title: str, *content: Html, note: str = "") -> Html:
    """A part of the page with its heading; `key` is its id there."""
    small = (" ", tag("small", note)) if note else ()
    heading = tag("h2", title, *small, id=key)
    return tag("section", heading, "\n", *content, "\n", aria_labelledby=key)


def wide(about: str, content: Html, style: str = "wide") -> Html:
    """What may be wider than the screen: it scrolls in a box of its own, with the keys too; `about` is its name."""
    return tag("div", content, class_=style, role="region", aria_label=about, tabindex=0)


def notice(words: str) -> Html:
    return tag("p", words, class_="notice")


def remark(words: str) -> Html:
    return tag("p", words, class_="soft")


def listed(words: Sequence[str]) -> Html:
    return tag("ul", *(tag("li", line) for line in words)) if words else Html("")


def _head(title: str, script: str) -> Html:
    style = stylesheet()
    allowed = ["default-src 'none'", "img-src data:", f"style-src {_digest(style)}"]
    allowed += [f"script-src {_digest(script)}"] if script else []
    allowed += ["base-uri 'none'", "form-action 'none'"]
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content="; ".join(allowed)),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Html(style)),
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def stylesheet() -> str:
    return files("gpuloom.pages").joinpath("page.css").read_text(encoding="utf-8")
