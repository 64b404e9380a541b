"""The pages in a real browser: nothing is refused, nothing is wider than its window, paper is white."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.browser import Browser, find_browser
from tests.pages.examples import PAGES
from tests.pages.themes import THEMES

LONG = "-a-name-that-goes-on" * 6 + "X" * 80
SIZES = {"phone": (390, 844), "laptop": (1280, 800), "wall": (3840, 2160)}
WIDTH = "document.scrollingElement.scrollWidth"
OUTSIDE = """[...document.querySelectorAll("main *")].filter((element) =>
  !element.closest(".wide, svg, #tip, [hidden]") && element.getBoundingClientRect().right > innerWidth + 1
).map((element) => element.outerHTML.slice(0, 90))"""

REDRAWN = """new Promise((done) => {
  let looks = 1000;
  const look = () => {
    const widths = [...document.querySelectorAll("canvas")].map((canvas) => canvas.width);
    if (Math.max(...widths) < 900 || !looks--) done(widths);
    else requestAnimationFrame(look);
  };
  look();
})"""
"""The widths of all charts once they are narrower than the window, or after a thousand frames."""

pytestmark = pytest.mark.xdist_group("browser")
every_page = pytest.mark.parametrize("name", PAGES)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("needs a browser: none of chromium, chromium-browser, google-chrome, chrome is installed")
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page, with names that are too long."""
    folder = tmp_path_factory.mktemp("pages")
    for name, page in PAGES.items():
        (folder / f"{name}.html").write_text(page(lambda word: f"{word}{LONG}"), encoding="utf-8")
    return folder


@every_page
@pytest.mark.parametrize("size", SIZES)
def test_no_page_is_wider_than_its_window(browser: Browser, folder: Path, name: str, size: str) -> None:
    width, height = SIZES[size]
    browser.show(folder / f"{name}.html", width, height)
    assert browser.ask(WIDTH) <= width
    assert browser.ask(OUTSIDE) == []


@every_page
def test_nothing_is_refused_and_no_script_fails(browser: Browser, folder: Path, name: str) -> None:
    browser.show(folder / f"{name}.html", 1280, 800, dark=True)
    assert browser.complaints == []
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == rgb(THEMES["dark"]["paper"])


@every_page
def test_on_paper_ink_is_dark_and_nothing_is_cut_off(browser: Browser, folder: Path, name: str) -> None:
    browser.show(folder / f"{name}.html", 720, 1000, dark=True, paper=True)
    assert browser.ask("getComputedStyle(document.body).color") == rgb(THEMES["light"]["ink"])
    assert browser.ask(WIDTH) <= 720
    boxes = "[...document.querySelectorAll('.wide, #scroller')].map((box) => getComputedStyle(box).overflow)"
    assert set(browser.ask(boxes)) == {"visible"}


def test_charts_are_drawn_anew_for_paper(browser: Browser, folder: Path) -> None:
    browser.show(folder / "simulation.html", 1280, 800, dark=True)
    drawn = browser.ask("document.getElementById('gantt').toDataURL()")
    browser.ask("dispatchEvent(new Event('beforeprint'))")
    assert browser.ask("document.getElementById('gantt').width") == 3 * 720
    assert browser.ask("getComputedStyle(document.body).color") == rgb(THEMES["light"]["ink"])
    browser.ask("dispatchEvent(new Event('afterprint'))")
    assert browser.ask("document.getElementById('gantt').toDataURL()") == drawn


def test_charts_follow_the_window(browser: Browser, folder: Path) -> None:
    browser.show(folder / "simulation.html", 3840, 2160)
    wide = browser.ask("[...document.querySelectorAll('canvas')].map((canvas) => canvas.width)")
    browser.send("Emulation.setDeviceMetricsOverride", width=900, height=800, deviceScaleFactor=1, mobile=False)
    narrow = browser.ask(REDRAWN)
    assert len(wide) == 4
    assert max(narrow) < 900 < min(wide)
    assert browser.ask(WIDTH) <= 900


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"
