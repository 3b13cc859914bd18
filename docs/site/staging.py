"""Copies the pages of the repository to a folder that Sphinx reads, with all that their links lead to.

The folder mirrors the repository, so that relative links stay as they are. A link to a file of code leads to a page
with that file, and a link to a folder to a list of its files: the site needs no address of the repository.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = "files"
"""Folder of the site with the pages that show files of code."""

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_IMAGE = re.compile(r'<img src="([^"]+)"')
_PICTURE = re.compile(r"<picture>\s*((?:<source [^>]*>\s*)*)(<img [^>]*>)\s*</picture>")
_SOURCE = re.compile(r'<source media="([^"]+)" srcset="([^"]+)">')
_MEDIA = {"(prefers-color-scheme: dark)": "only-dark", "(max-width: 600px)": "only-narrow"}
"""Classes for the media of a picture's further sources: the site's theme can be another one than the system's."""
_CODE = re.compile(r"(^```.*?^```$|^~~~.*?^~~~$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {
    ".cpp": "cpp", ".hpp": "cpp", ".js": "javascript", ".mjs": "javascript", ".kt": "kotlin", ".py": "python",
    ".sh": "bash", ".swift": "swift", ".toml": "toml", ".ts": "typescript", ".json": "json", ".tsx": "typescript",
    ".dart": "dart", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip


def stage(source: Path) -> list[str]:
    """Copies the pages, and returns their names without suffix, in the order in which they were reached.

    Pages are the README, the changelog, those of `docs/`, the notebooks, and all Markdown files that these link to.

    Args:
        source: Folder to write; it must not exist.
    """
    source.mkdir(parents=True)
    waiting = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CHANGELOG.md", *notebooks()]
    pages: list[str] = []
    while waiting:
        path = waiting.pop(0)
        if name(path) in pages:
            continue
        pages.append(name(path))
        text, reached = _staged(path, source)
        target = source / f"{name(path)}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        waiting += reached
    return pages


def notebooks() -> list[Path]:
    """Returns the notebooks of the examples, in the order of their names."""
    return [*sorted((ROOT / "examples").glob("*.ipynb")), *sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))]


def name(path: Path) -> str:
    """Returns the name of the page about a file or a folder, relative to the site and without suffix."""
    inside = path.relative_to(ROOT)
    if inside == Path("README.md"):
        return "index"
    if path.suffix in (".md", ".ipynb"):
        return inside.with_suffix("").as_posix()
    return f"{FILES}/{inside.as_posix()}/index" if path.is_dir() else f"{FILES}/{inside.as_posix()}"


def file_page(path: Path) -> str:
    """Returns a page with the text of a file."""
    return f"# `{path.relative_to(ROOT).as_posix()}`\n\n{code_block(path)}"


def code_block(path: Path) -> str:
    """Returns the text of a file as a block of code."""
    text = path.read_text(encoding="utf-8")
    fence = "`" * (3 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
    return f"{fence}{_LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"


def _staged(path: Path, source: Path) -> tuple[str, list[Path]]:
    """Returns the text of a page, and the files that its links lead to."""
    if path.is_dir():
        return _folder_page(path)
    if path.suffix == ".ipynb":
        text = _notebook(path, source)
    elif path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    else:
        return file_page(path), []
    reached: list[Path] = []
    parts = _CODE.split(text)
    for index in range(0, len(parts), 2):  # between pieces of code
        parts[index] = _rewritten(parts[index], path, source, reached)
    return "".join(parts), reached


def _rewritten(text: str, path: Path, source: Path, reached: list[Path]) -> str:
    """Returns text with links to the pages of the site, and copies the pictures that it shows."""

    def address(target: str) -> str:
        file, _, section = target.partition("#")
        if "://" in target or target.startswith(("mailto:", "data:")) or not file:
            return target
        linked = (path.parent / file).resolve()
        if linked.suffix in (".png", ".svg", ".gif", ".jpg", ".webp"):
            copy = source / linked.relative_to(ROOT)
            if not copy.exists():  # pictures in a notebook have been written
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, copy)
            return target
        reached.append(linked)
        here = (source / name(path)).parent
        there = os.path.relpath(source / f"{name(linked)}.md", here).replace(os.sep, "/")
        return f"{there}#{section}" if section else there

    def for_all_media(match: re.Match[str]) -> str:
        """Returns an image for each theme and width, of which the style sheet shows one."""
        sources = [(set(media.split(" and ")), file) for media, file in _SOURCE.findall(match[1])]
        images = []
        for theme, width in product(("only-light", "only-dark"), ("only-wide", "only-narrow")):
            here = {medium for medium, shown in _MEDIA.items() if shown in (theme, width)}
            file = next((file for needed, file in sources if needed <= here), None)
            image = match[2] if file is None else re.sub(r'src="[^"]+"', f'src="{file}"', match[2])
            images.append(image.replace("<img ", f'<img class="{theme} {width}" '))
        return "".join(images)

    text = _PICTURE.sub(for_all_media, text)
    text = re.sub(r'<img (class="[\w -]+") src="([^"]+)"', r'<img src="\2" \1', text)
    text = _IMAGE.sub(lambda match: f'<img src="{address(match[1])}"', text)
    return _LINK.sub(lambda match: match[1] + address(match[2]) + match[3], text)


def _folder_page(path: Path) -> tuple[str, list[Path]]:
    """Returns a page that lists the files of a folder, and those files."""
    files = [each for each in sorted(path.iterdir()) if each.suffix in {".md", *_LANGUAGES}]
    here = Path(name(path)).parent
    rows = [f"- [{each.name}]({os.path.relpath(f'{name(each)}.md', here)})" for each in files]
    return f"# `{path.relative_to(ROOT).as_posix()}/`\n\n" + "\n".join(rows) + "\n", files


def _notebook(path: Path, source: Path) -> str:
    """Returns the cells of a notebook with their outputs: texts and pictures."""
    written = 0

    def picture(data: str, suffix: str, decode: Callable[[str], bytes]) -> str:
        nonlocal written
        written += 1
        file = source / f"{name(path)}-{written}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(decode(data))
        return f"![Output of the cell above]({file.name})"

    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"]).strip("\n")
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts += [f"```python\n{text}\n```"] if text else []
        printed: list[str] = []
        pictures: list[str] = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                pictures.append(picture("".join(data["image/png"]), "png", base64.b64decode))
            elif "image/svg+xml" in data:
                pictures.append(picture("".join(data["image/svg+xml"]), "svg", str.encode))
            else:
                printed.append("".join(output.get("text", data.get("text/plain", ()))).rstrip())
        shown = "\n".join(text for text in printed if text)
        parts += [f"````text\n{shown}\n````"] if shown else []
        parts += pictures
    return "\n\n".join(parts) + "\n"
