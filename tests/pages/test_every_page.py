"""What every page keeps, whatever it shows: whole, safe with any name, self-contained, the same for the same input."""

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pages.examples import PAGES, Naming
from tests.pages.seen import Seen, asks_for_nothing

HOSTILE = (
    "</script><script>alert(1)</script>", "</script bogus", "<!--", "-->", "]]>",
    '"><img src=x onerror=alert(1)>', "' onload='alert(1)",
    "</title>", "</style><b>", "&lt;i&gt;", "&#60;b&#62;", "$data ${tabs}", "\\u003c", "\u2028", "{{x}}", "</svg>",
)  # fmt: skip
hostile = st.lists(st.sampled_from(HOSTILE) | st.text("<>&\"'/=!?-; ab\n", min_size=1), min_size=1).map("".join)

every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
Page = Callable[[Naming], str]


def plain(name: str) -> str:
    return name


@every_page
@settings(deadline=None, max_examples=25)
@given(end=hostile)
def test_no_name_becomes_markup(page: Page, end: str) -> None:
    seen, harmless = Seen(page(lambda name: f"{name}{end}")), Seen(page(plain))
    assert seen.shape == harmless.shape
    read = "".join([*seen.texts, *(value or "" for _, attributes in seen.elements for value in attributes.values())])
    names = {
        name for name in ("title", "service-0", "kernel-2", "program", "training-0") if name in "".join(harmless.texts)
    }
    assert names
    assert all(f"{name}{end}" in read for name in names)


@every_page
def test_a_name_that_is_no_text_at_all_makes_a_page_that_can_be_written(page: Page) -> None:
    text = page(lambda name: f"{name}\ud800\x00")
    assert text.encode()
    assert Seen(text).shape == Seen(page(plain)).shape


@every_page
def test_the_same_input_gives_the_same_bytes(page: Page) -> None:
    assert page(plain) == page(plain)


@every_page
def test_a_page_asks_for_nothing(page: Page) -> None:
    assert asks_for_nothing(page(plain))


@every_page
def test_only_our_style_and_our_script_hold(page: Page) -> None:
    seen = Seen(page(plain))
    (style,) = seen.said("style")
    code = [text for text, found in zip(seen.said("script"), seen.of("script"), strict=True) if "type" not in found]
    assert "default-src 'none'" in seen.policy
    assert "unsafe" not in seen.policy
    for name, texts in (("style-src", [style]), ("script-src", code)):
        allowed = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert re.findall(rf"{name} ([^;]*)", seen.policy) == allowed
    assert not [name for _, found in seen.elements for name in found if name == "style" or name.startswith("on")]


@every_page
def test_a_page_can_be_read_without_seeing_it(page: Page) -> None:
    seen = Seen(page(plain))
    assert seen.of("html") == [{"lang": "en"}]
    assert any(meta.get("name") == "viewport" for meta in seen.of("meta"))
    levels = [int(tag[1]) for tag, _ in seen.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(head["scope"] in ("col", "row") for head in seen.of("th"))
    ids = [found["id"] for _, found in seen.elements if "id" in found]
    assert len(set(ids)) == len(ids)
    pointed = [
        found[name] for _, found in seen.elements for name in ("aria-labelledby", "aria-controls") if name in found
    ]
    assert set(pointed) <= set(ids)
    assert all(found.get("aria-label") for found in (*seen.of("div", "wide"), *seen.of("canvas")))


@every_page
def test_every_picture_is_told_in_words(page: Page) -> None:
    seen = Seen(page(plain))
    images = [at for at, (_, found) in enumerate(seen.elements) if found.get("role") == "img"]
    assert images
    for at in images:
        titled = seen.elements[at + 1][0] == "title" and seen.texts[at + 1]
        assert seen.elements[at][1].get("aria-label") or titled
