"""Card, licence and notices of a checkpoint, which are copied into every bundle made from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from kerasformer.export.card.quoting import code, markdown, yaml
from kerasformer.files.reading import JsonObject
from kerasformer.files.sources import is_gguf
from kerasformer.gguf import GgufCheckpoint

CARD = "MODEL_CARD.md"
"""Name of the file with the checkpoint's own card in a bundle."""
_LEGAL = re.compile(r"(licen[cs]e|notice|copying|credits|authors|citation|attribution|use_policy)\b.*", re.IGNORECASE)
_MOST_BYTES = 1_000_000
"""Largest file that is copied; larger ones are not text written by a person."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)^---\s*\n", re.DOTALL | re.MULTILINE)
_FACTS = {
    "license": "Licence",
    "license_name": "Licence name",
    "license_link": "Licence text",
    "base_model": "Base model",
    "datasets": "Datasets",
    "language": "Language",
}


@dataclass(frozen=True)
class Credits:
    """Origin of a model.

    Attributes:
        name: Name by which the checkpoint was loaded; empty for a model that was not loaded from one.
        card: Content of its `README.md`; empty if it has none.
        legal: Contents of its licence and notices, by file name.
        header: Facts that a checkpoint without a card states in its header, by the names of the front matter of a card.
    """

    name: str = ""
    card: str = ""
    legal: dict[str, bytes] = field(default_factory=dict)
    header: JsonObject = field(default_factory=dict)

    @classmethod
    def of(cls, source: Path | None, name: str = "") -> Credits:
        """Reads the credits from a checkpoint, which may contain none or no longer exist."""
        if source is not None and is_gguf(source):
            return cls(name or source.name, header=GgufCheckpoint(source).facts())
        if source is None or not source.is_dir():
            return cls()
        legal = {path.name: content for path in sorted(source.iterdir()) if (content := _content(path, _LEGAL))}
        card = _content(source / CARD) or _content(source / "README.md")
        return cls(name or _name(source), card.decode("utf-8", errors="replace"), legal)

    @property
    def facts(self) -> dict[str, list[str]]:
        """Entries of the front matter about licence and origin."""
        content = {**self.header, **self._front_matter()}
        facts = {key: _texts(content.get(key)) for key in _FACTS}
        return {key: texts for key, texts in facts.items() if texts}

    @property
    def files(self) -> list[str]:
        """Names of the files that whoever distributes the bundle includes."""
        return [*self.legal, *([CARD] if self.card else [])]

    def write(self, folder: Path) -> None:
        """Writes the card, the licence and the notices into a bundle."""
        for name, content in self.legal.items():
            (folder / name).write_bytes(content)
        if self.card:
            (folder / CARD).write_text(self.card, encoding="utf-8")

    def front_matter(self, task: str) -> str:
        """Returns the front matter of the bundle's card."""
        lines = ["library_name: kerasformer", f"pipeline_tag: {yaml(task)}"]
        for key, texts in self.facts.items():
            lines += [f"{key}: {yaml(texts[0])}"] if len(texts) == 1 else [f"{key}:", *(f"- {yaml(t)}" for t in texts)]
        return "\n".join(["---", *lines, "---", "", ""])

    def summary(self) -> str:
        """Returns a summary of origin and licence for the beginning of the bundle's card."""
        if not self.name:
            return ""
        facts = "".join(
            f"; {_FACTS[key].lower()}: {', '.join(map(markdown, texts))}" for key, texts in self.facts.items()
        )
        files = [code(name) for name in self.files]
        about = f" [{CARD}]({CARD}) describes the model, its uses and its limits." if self.card else ""
        notice = f" If you distribute this bundle, include {' and '.join(files)}." if files else ""
        unknown = "" if "license" in self.facts or self.legal else " It does not specify a licence: ask its authors."
        return f"The weights are from {code(self.name)}{facts}.{unknown}{about}{notice}\n"

    def _front_matter(self) -> JsonObject:
        match = _FRONT_MATTER.match(self.card.replace("\r\n", "\n"))
        if not match:
            return {}
        from yaml import YAMLError, safe_load

        try:
            content = safe_load(match[1])
        except (YAMLError, RecursionError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


NONE = Credits()
"""Credits of a model that was not loaded from a checkpoint."""


def _content(path: Path, names: re.Pattern[str] | None = None) -> bytes:
    """Returns the content of a small file, or nothing if it is too large, unreadable or not among the names."""
    try:
        if (names and not names.fullmatch(path.name)) or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def _name(folder: Path) -> str:
    """Returns the name of a preset or folder, or `owner/name` for a snapshot of the hub."""
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return folder.name


def _texts(value: object) -> list[str]:
    """Converts a value of a front matter, a text or a list of texts, to a list of texts."""
    values = value if isinstance(value, list) else [value]
    return [str(text) for text in values if isinstance(text, str | int | float) and not isinstance(text, bool)]
