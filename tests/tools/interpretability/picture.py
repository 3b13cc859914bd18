"""Takes the screenshot of the explainer for the documentation: precisions on a desktop, attention on a phone.

    python -m tests.tools.interpretability.picture

It exports the preset in int8 and int4, and needs Chromium: see tests/foreign/setup.sh.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from PIL import Image

from kerasformer.tools.interpretability.explainer import write_site
from tests.tools.web.picture import beside
from tests.tools.web.sites import Browser, browser

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "explainer.png"
TEXT = "She opened the letter and"  # int4 writes another word soon


def photograph(page: Browser, file: Path, folder: Path) -> list[Image.Image]:
    """Takes a picture of the last panel in the light theme, and one of the second panel in the dark theme."""
    shots = {"desktop": (1000, 1000, "light", "#panel-7"), "phone": (390, 844, "dark", "#panel-3")}
    for name, (width, height, scheme, panel) in shots.items():
        page.open(file.as_uri(), width, height, scheme=scheme)
        page("until", script="document.documentElement.dataset.ready === '0'")
        page("run", script=f"document.querySelector('{panel}').scrollIntoView({{behavior: 'instant'}})")
        page("picture", path=str(folder / f"{name}.png"), whole=False)
    return [Image.open(folder / f"{name}.png").convert("RGB") for name in shots]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, browser() as opened:
        folder = Path(name)
        file = write_site("story-gpt2", folder, texts=[TEXT])
        beside(photograph(opened, file, folder)).save(PICTURE, optimize=True)
    print(f"{PICTURE}, {PICTURE.stat().st_size:,} bytes")
