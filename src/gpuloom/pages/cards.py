"""Figures by name: the few that matter, large; many of one thing, as a list."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuloom.pages.html import Html, tag


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    value: str
    against: str = ""
    """How it compares with something, in words."""
    better: bool | None = None
    """Whether that is good; None where it is neither."""


def cards(figures: Iterable[Card]) -> Html:
    return tag("dl", *map(_card, figures), class_="cards")


def _card(card: Card) -> Html:
    mood = {True: "against better", False: "against worse", None: "against"}[card.better]
    note = (tag("dd", card.against, class_=mood),) if card.against else ()
    return tag("div", tag("dt", card.name), tag("dd", card.value), *note)


def figure_list(figures: Iterable[tuple[str, str]]) -> Html:
    """Names and values of one thing, which has nothing to be compared with."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in figures), class_="figures")
