"""The stylesheet: both themes are whole, text can be read in both, and colours can be told apart by all."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuloom
from gpuloom.pages.chart import COLOURS, colour
from gpuloom.pages.page import stylesheet
from tests.pages.examples import PAGES
from tests.pages.seen import Seen
from tests.pages.themes import THEMES

Floats = NDArray[np.float64]

ROOT = Path(gpuloom.__file__).parent
WRITERS = (
    *(ROOT / "pages").glob("*.py"), *(ROOT / "sim" / "report").glob("*.*"), ROOT / "provision" / "report.py",
    ROOT / "kernels" / "timeline.py", *(ROOT / "live" / "report").glob("*.py"),
    *(ROOT / "measure" / "page").glob("*.py"),
)  # fmt: skip
SCRIPTS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sim" / "report").glob("*.js"))
LINES = 8
"""So many colours are also used for thin lines."""

SEES = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue cones": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""What linear light becomes in the eye: Machado, Oliveira and Fernandes 2009, severity 1."""
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""From linear light to a space in which distances are what eyes see."""

in_both = pytest.mark.parametrize("theme", THEMES)


def linear(colour: str) -> Floats:
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2: from 1, the same, to 21, black on white."""
    bright, dim = sorted((float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def oklab(light: Floats) -> Floats:
    lab: Floats = TO_OKLAB @ np.cbrt(TO_CONES @ np.clip(light, 0, 1))
    return lab


def test_the_scale_of_contrast_is_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_both_themes_name_the_same_colours() -> None:
    assert set(THEMES["light"]) == set(THEMES["dark"])
    assert THEMES["light"] != THEMES["dark"]


def test_the_dark_theme_is_for_screens_only() -> None:
    before, dark, _ = re.split(r"(@media screen and \(prefers-color-scheme: dark\))", stylesheet(), maxsplit=1)
    assert dark
    assert "prefers-color-scheme" not in before


@in_both
@pytest.mark.parametrize("behind", ["paper", "surface", "lane"])
@pytest.mark.parametrize("text", ["ink", "soft", "good", "bad"])
def test_text_can_be_read(theme: str, text: str, behind: str) -> None:
    assert contrast(THEMES[theme][text], THEMES[theme][behind]) >= 4.5


@in_both
@pytest.mark.parametrize("number", range(COLOURS))
def test_text_on_a_colour_can_be_read(theme: str, number: int) -> None:
    assert contrast(THEMES[theme][f"on-{number}"], THEMES[theme][colour(number)]) >= 4.5


@in_both
@pytest.mark.parametrize("name", [*map(colour, range(LINES)), "focus", "over", "batch"])
def test_lines_and_marks_stand_out(theme: str, name: str) -> None:
    assert contrast(THEMES[theme][name], THEMES[theme]["surface"]) >= 3


@in_both
@pytest.mark.parametrize("eyes", SEES)
def test_colours_can_be_told_apart_with_any_eyes(theme: str, eyes: str) -> None:
    seen = [oklab(SEES[eyes] @ linear(THEMES[theme][colour(number)])) for number in range(COLOURS)]
    nearest = min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))
    assert nearest >= 0.06  # three times what an eye can just see


def test_every_colour_that_is_used_is_named_in_both_themes() -> None:
    painted = set(re.findall(r'paint\("([\w-]+)"\)', SCRIPTS))
    prefixes = set(re.findall(r"paint\(`([\w-]+)\$", SCRIPTS))
    assert painted
    assert prefixes == {"c", "on-"}
    painted |= {f"{prefix}{number}" for prefix in prefixes for number in range(COLOURS)}
    used = set(re.findall(r"var\(--([\w-]+)", stylesheet())) - {"colour", "on"}
    assert painted | used <= set(THEMES["light"])
    assert set(THEMES["light"]) <= painted | used


def test_no_colour_is_written_outside_the_themes() -> None:
    rest = re.sub(r":root[^{]*\{[^}]*\}", "", stylesheet())
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![^{}]*\{)", rest)
    assert not re.search(r"#[0-9a-fA-F]{6}", "".join(path.read_text(encoding="utf-8") for path in WRITERS))


def test_classes_are_styled_and_styles_are_used() -> None:
    styled = {
        name for names in re.findall(r"([^{}]*)\{", stylesheet()) for name in re.findall(r"\.([a-z][\w-]*)", names)
    }
    written = "".join(path.read_text(encoding="utf-8") for path in WRITERS)
    words = set(re.findall(r"[\w-]+", written)) | {colour(number) for number in range(COLOURS)}
    assert styled <= words
    used = set().union(*(Seen(page(str)).classes for page in PAGES.values()))
    assert used <= styled
