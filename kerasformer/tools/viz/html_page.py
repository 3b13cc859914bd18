"""A picture as one HTML file, which needs neither a server nor a network, and as an element of a notebook."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.files.publishing import replacing

FOLDER = "page"
"""Folder of the scripts and styles within this package."""
_VARIABLES = """const element = document.getElementById("view");
const data = JSON.parse(document.getElementById("data").textContent);"""


def asset(name: str) -> str:
    """Returns the content of a script or a style of this package, such as `attention.js`."""
    return resources.files(__package__ or __name__).joinpath(FOLDER, name).read_text(encoding="utf-8")


def packed(array: np.ndarray, shares: bool = False) -> dict[str, str]:
    """Returns an array for a script: 32-bit floats in base64, or 16-bit integers for numbers from 0 to 1."""
    if shares:
        integers = np.rint(np.clip(array, 0, 1) * 65535).astype("<u2")
        return {"u2": base64.b64encode(integers.tobytes()).decode()}
    return {"f4": base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()}


def as_script_data(data: object) -> str:
    """Returns data as JSON that can stand within a `script` element, whatever its strings contain."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(character, escaped)
    return text.replace("\u2029", "\\u2029")


def page(title: str, note: str, data: Mapping[str, Any], assets: Sequence[str], start: str, above: str = "") -> str:
    """Returns an HTML page.

    Args:
        title: Title and heading.
        note: Line below the heading.
        data: Data of the scripts; its strings may contain anything.
        assets: Names of scripts and styles of this package, `.js` and `.css`.
        start: Script that draws; `data` and `element` are variables.
        above: HTML of a card above what is drawn.
    """
    styles = [asset(name) for name in ("page.css", *assets) if name.endswith(".css")]
    scripts = [asset(name) for name in assets if name.endswith(".js")]
    parts = {
        "title": html.escape(title),
        "note": html.escape(note),
        "above": f'<section class="card">{above}</section>' if above else "",
        "style": "\n".join(styles),
        "data": as_script_data(data),
        "script": "\n".join([*scripts, f"{{\n{_VARIABLES}\n{start}\n}}"]),
    }
    # Split, and not replaced one by one: a value may contain the placeholder of another.
    first, *rest = asset("page.html").split("{{")
    return first + "".join(parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest))


def notebook_element(content: str, height: int) -> str:
    """Returns an HTML page as an element of a notebook, isolated from it.

    Args:
        content: The page.
        height: Height in CSS pixels.
    """
    return (
        f'<iframe srcdoc="{html.escape(content)}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 0; border-radius: 8px"></iframe>'
    )


def write(content: str, path: Path) -> None:
    """Writes a page to a temporary file beside its destination, and then renames it."""
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
