"""The colours of the stylesheet, as a browser takes them."""

import re

from gpuloom.pages.page import stylesheet


def _themes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root[^{]*\{([^}]*)\}", stylesheet())
    named = [dict(re.findall(r"--([\w-]+): (#\w{6}|rgba\([^)]*\));", block)) for block in (light, dark)]
    return {"light": named[0], "dark": named[1]}


THEMES = _themes()
"""By theme and name."""
