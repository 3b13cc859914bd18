"""What the makers of a checkpoint say of it: its card, licence and notices go along with every bundle made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerasformer.export.card.quoting import code, markdown, yaml

CARD = "MODEL_CARD.md"
"""The checkpoint's own card in a bundle, as it was."""
_LEGAL = re.compile(r"(licen[cs]e|notice|copying|credits|authors|citation|attribution|use_policy)\b.*", re.IGNORECASE)
_MOST_BYTES = 1_000_000
"""Of a file that is carried along: none that a person wrote is larger."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)^---\s*\n", re.DOTALL | re.MULTILINE)
_FACTS = {
    "license": "Licence",
    "license_name": "Name of the licence",
    "license_link": "Text of the licence",
    "base_model": "Base model",
    "datasets": "Data",
    "language": "Language",
}


@dataclass(frozen=True)
class Credits:
    """What is known of a checkpoint.

    Attributes:
        name: By which it was loaded; empty for a model that was made here.
        card: Its `README.md`, or empty.
        legal: Its licence and notices, by file name.
    """

    name: str = ""
    card: str = ""
    legal: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Path | None, name: str = "") -> Credits:
        """Those of a checkpoint's folder, which may have none, or be gone."""
        if source is None or not source.is_dir():
            return cls()
        legal = {path.name: content for path in sorted(source.iterdir()) if (content := _content(path, _LEGAL))}
        found = _content(source / CARD) or _content(source / "README.md")
        return cls(name or _name(source), found.decode("utf-8", errors="replace"), legal)

    @property
    def facts(self) -> dict[str, list[str]]:
        """Of the front matter, what says whose the model is and what it was made of."""
        content = self._front_matter()
        facts = {key: _texts(content.get(key)) for key in _FACTS}
        return {key: texts for key, texts in facts.items() if texts}

    def write(self, folder: Path) -> None:
        """Puts the card and the legal texts into a bundle."""
        for name, content in self.legal.items():
            (folder / name).write_bytes(content)
        if self.card:
            (folder / CARD).write_text(self.card, encoding="utf-8")

    def front_matter(self, task: str) -> str:
        """The front matter of the bundle's card."""
        lines = ["library_name: kerasformer", f"pipeline_tag: {yaml(task)}"]
        for key, texts in self.facts.items():
            lines += [f"{key}: {yaml(texts[0])}"] if len(texts) == 1 else [f"{key}:", *(f"- {yaml(t)}" for t in texts)]
        return "\n".join(["---", *lines, "---", "", ""])

    def summary(self) -> str:
        """What a reader of the bundle's card has to know first."""
        if not self.name:
            return ""
        facts = "".join(
            f"; {_FACTS[key].lower()}: {', '.join(map(markdown, texts))}" for key, texts in self.facts.items()
        )
        files = [code(name) for name in (*self.legal, *([CARD] if self.card else []))]
        kept = f" Keep {' and '.join(files)} with it when you pass it on." if files else ""
        unknown = "" if "license" in self.facts or self.legal else " It names no licence: ask its makers."
        return f"The weights are those of {code(self.name)}{facts}.{unknown}{kept}\n"

    def section(self) -> str:
        """The checkpoint's own card without its programs, which load the checkpoint: data, limits and accuracy."""
        body = _without_programs(_FRONT_MATTER.sub("", self.card.replace("\r\n", "\n"), count=1)).strip()
        if not body:
            return ""
        return f"## The model\n\nWhat the card of {code(self.name)} says; {code(CARD)} is the whole of it.\n\n{body}\n"

    def _front_matter(self) -> dict[str, Any]:
        found = _FRONT_MATTER.match(self.card.replace("\r\n", "\n"))
        if not found:
            return {}
        from yaml import YAMLError, safe_load

        try:
            content = safe_load(found[1])
        except (YAMLError, RecursionError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


NONE = Credits()
"""Of a model that was made here."""


def _content(path: Path, names: re.Pattern[str] | None = None) -> bytes:
    """A small file, or nothing."""
    try:
        if (names and not names.fullmatch(path.name)) or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def _name(folder: Path) -> str:
    """A preset's or a folder's name, or `owner/name` for a snapshot of the hub."""
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return folder.name


def _texts(value: Any) -> list[str]:
    """A value of a front matter: a text, or a list of texts."""
    values = value if isinstance(value, list) else [value]
    return [str(each) for each in values if isinstance(each, str | int | float) and not isinstance(each, bool)]


def _without_programs(body: str) -> str:
    """Headings two levels deeper, and no fenced block."""
    lines, fence = [], ""
    for line in body.split("\n"):
        mark = re.match(r"\s{0,3}(`{3,}|~{3,})", line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif not line.startswith("# "):
            lines.append(re.sub(r"^(#{2,4}) ", r"\1# ", line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
