"""Colours of the page of `kerasformer web`, which the site and its pictures share."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "kerasformer/tools/web/page"


def colours() -> dict[str, dict[str, str]]:
    """Returns the custom properties of the page's style sheet, by their names, for the themes `light` and `dark`."""
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+): ([^;]+);", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    )
    return {"light": light, "dark": {**light, **dark}}
