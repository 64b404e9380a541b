"""What the documents point at is there: files, headings, and the paths and names of Python in their code."""

import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "gpuloom"
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").rglob("*.md"))]
HISTORY = ROOT / "CHANGELOG.md"
"""May name what is no more; its links must still lead somewhere."""

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"\w[\w-]*(?:/[\w.-]+)*/(?:[\w-]+\.(?:py|c|h|md|ya?ml|toml|sh|json))?")
"""A folder, with its slash, or a file of a kind that is kept here: `engine/`, `engine/log.py`."""
DOTTED = re.compile(r"\b(?:gpuloom|tests)(?:\.\w+)+")
IMPORTED = re.compile(r"^from (gpuloom[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def dead_links(page: Path, text: str) -> Iterator[str]:
    for link in LINK.findall(FENCED.sub("", text)):
        path, _, heading = link.partition("#")
        target = page.parent / path
        if "://" in link:
            continue
        if not target.exists():
            yield link
        elif heading:
            there = target.read_text(encoding="utf-8") if path else text
            if heading not in map(anchor, HEADING.findall(FENCED.sub("", there))):
                yield link


def code_of(text: str) -> str:
    return "\n".join([*FENCED.findall(text), *INLINE.findall(FENCED.sub("", text))])


def dead_paths(page: Path, text: str) -> Iterator[str]:
    """Below the package, the repository or the page; `engine/log.py` may be named without what lies above it."""
    ours = {path.parent.name for folder in (ROOT, PACKAGE) for path in folder.glob("[!.]*/*")}
    for word in re.split(r"[\s\"':]+", code_of(text)):
        if word.startswith("gpuloom-"):  # the folders that commands make
            continue
        known = "/" in word and word.partition("/")[0] in ours
        if (known or PATH.fullmatch(word)) and not any((at / word).exists() for at in (PACKAGE, ROOT, page.parent)):
            yield word


def dead_names(text: str) -> Iterator[str]:
    """Modules, and what is said to be in them."""
    code = code_of(text)
    imported = [f"{module}.{name}" for module, names in IMPORTED.findall(code) for name in names.split(", ")]
    for name in [*imported, *DOTTED.findall(code)]:
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            yield name


@pytest.mark.parametrize("page", [*PAGES, HISTORY], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page, page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_in_code_exists(page: Path) -> None:
    assert list(dead_paths(page, page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_in_code_exists(page: Path) -> None:
    assert list(dead_names(page.read_text(encoding="utf-8"))) == []


def test_what_is_stale_is_found() -> None:
    page = ROOT / "docs" / "made-up.md"
    text = """
# One `heading`, and more
[a](layouts.md) [b](layouts.md#no-such-heading) [c](gone.md) [d](#one-heading-and-more) [e](#two) [f](https://x.y/#z)
`engine/log.py` `engine/gone.py` `benchmarks/speed.py --philly FILE` `gone/` `DIR/SERVICE` `/metrics` `a / b`
`gpuloom.work.gone.read()` `gpuloom.work.files.json_schema()` `python -m tests.gone 3` `gpuloom serve`
```console
[g](gone.md) python benchmarks/gone.py examples/jobs.yaml
# not a heading
from gpuloom.errors import InputError, GoneError
```
"""
    assert list(dead_links(page, text)) == ["layouts.md#no-such-heading", "gone.md", "#two"]
    assert sorted(dead_paths(page, text)) == ["benchmarks/gone.py", "engine/gone.py", "gone/"]
    assert list(dead_names(text)) == ["gpuloom.errors.GoneError", "gpuloom.work.gone.read", "tests.gone"]
