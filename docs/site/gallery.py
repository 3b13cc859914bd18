"""The pictures of all pages, each with a link to where it is explained."""

from __future__ import annotations

import re
from pathlib import Path

from docs.site.staging import ROOT

_PICTURE = re.compile(
    r'!\[([^\]]+)\]\((?:docs/)?pictures/([^)]+)\)|<img src="(?:docs/)?pictures/([^"]+)"[^>]*alt="([^"]+)"'
)


def pages(source: Path) -> dict[str, str]:
    """Returns the page with the pictures that the pages of `docs/` and the README show.

    Args:
        source: Folder with the staged pages, whose pictures were copied.
    """
    shown: dict[str, tuple[str, str]] = {}
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for match in _PICTURE.finditer(text):
            file, alt = (match[2], match[1]) if match[2] else (match[3], match[4])
            name = "index.md" if page.name == "README.md" else f"docs/{page.name}"
            shown.setdefault(file, (" ".join(alt.split()), f"[{_title(text)}]({name})"))
    parts = [
        f"```{{figure}} docs/pictures/{file}\n:alt: {alt}\n\n{alt}. From the page {link}.\n```\n"
        for file, (alt, link) in sorted(shown.items())
        if (source / "docs" / "pictures" / file).is_file()
    ]
    return {"gallery": "# Gallery\n\nPictures of this documentation.\n\n" + "\n".join(parts)}


def _title(text: str) -> str:
    match = re.search(r"^# (.+)$", text, re.MULTILINE)
    return match[1] if match else "kerasformer"
