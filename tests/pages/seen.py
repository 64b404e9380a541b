"""What a browser would make of a page, as far as tests ask."""

import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"input", "link", "meta"})

Attributes = dict[str, str | None]


class Seen(HTMLParser):
    """The elements of a page, in order, and the text in each. Fails where one is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[int] = []
        self.elements: list[tuple[str, Attributes]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} says something twice"
        if tag not in VOID:
            self.open.append(len(self.elements))
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]] += data
        else:
            assert not data.strip()

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Which elements, with which attributes: what no name may change."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    def of(self, tag: str, style: str | None = None) -> list[Attributes]:
        """The attributes of all elements of a kind, or of those that have a class."""
        return [
            attributes
            for found, attributes in self.elements
            if found == tag and (style is None or style in (attributes.get("class") or "").split())
        ]

    def said(self, tag: str) -> list[str]:
        """The text directly in each element of a kind."""
        return [text for (found, _), text in zip(self.elements, self.texts, strict=True) if found == tag]

    @property
    def classes(self) -> set[str]:
        return {word for _, attributes in self.elements for word in (attributes.get("class") or "").split()}

    @property
    def policy(self) -> str:
        """What the page may load and run."""
        (policy,) = [meta["content"] for meta in self.of("meta") if "http-equiv" in meta]
        return policy or ""

    @property
    def data(self) -> Any:
        """What the scripts of the page draw."""
        return json.loads(self.said("script")[0])


def asks_for_nothing(text: str) -> bool:
    """Whether a page of harmless names has no address in it but data."""
    seen = Seen(text)
    addresses = {"action", "data", "href", "poster", "src", "srcset", "xlink:href"}
    fetched = [value for _, found in seen.elements for name, value in found.items() if name in addresses]
    return set(fetched) <= {"data:,"} and not re.search(r"https?:|@import|url\((?!data:)", text)
