"""Origin of a model: the card, licence and notices of its checkpoint, which are copied with its weights.

A model whose weights were changed has no licence, data or uses but those that its author states. Its card names the
model that it is based on, with the licence of that one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import keras

from kerasformer.basics.tasks import VARIANTS
from kerasformer.files.readers import read_foreign
from kerasformer.files.reading import JsonObject
from kerasformer.files.sources import is_foreign
from kerasformer.layers.core import layers_with_lora
from kerasformer.models.variables import sampled_values

CARD = "MODEL_CARD.md"
"""Name of the file with the checkpoint's own card in a bundle."""
README = "README.md"
_UNFINISHED = "<!-- Describe the model, its licence, its data and its uses, and remove this line. -->"
"""Line of a card that states nothing but the origin of the weights."""
_LEGAL = re.compile(r"(licen[cs]e|notice|copying|credits|authors|citation|attribution|use_policy)\b.*", re.IGNORECASE)
_MOST_BYTES = 1_000_000
"""Largest file that is copied; larger ones are not text written by a person."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)^---\s*\n", re.DOTALL | re.MULTILINE)
FACTS = {
    "license": "Licence",
    "license_name": "Licence name",
    "license_link": "Licence text",
    "base_model": "Base model",
    "base_model_relation": "Relation to the base model",
    "base_model_license": "Licence of the base model",
    "datasets": "Datasets",
    "language": "Language",
}
"""Entries of the front matter of a card about licence and origin, with their names in a text."""


@dataclass(frozen=True)
class Origin:
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
    def of(cls, source: Path | None, name: str = "") -> Self:
        """Reads the credits from a checkpoint, which may contain none or no longer exist."""
        if source is not None and is_foreign(source):
            return cls(name or source.name, header=read_foreign(source).facts())
        if source is None or not source.is_dir():
            return cls()
        legal = {path.name: content for path in sorted(source.iterdir()) if (content := _content(path, _LEGAL))}
        card = (_content(source / CARD) or _content(source / README)).decode("utf-8", errors="replace")
        origin = cls(name or _name(source), card, legal)
        return cls(origin.name, "", legal, origin._front_matter()) if _UNFINISHED in card else origin

    @classmethod
    def of_model(cls, model: keras.Model) -> Self:
        """Returns the credits of the checkpoint of a model, or those of a model that is based on it."""
        origin = cls.of(model.source)
        if not origin.name or not is_changed(model):
            return origin
        header: JsonObject = {"base_model": origin.name, "base_model_relation": "finetune"}
        licence = origin.facts.get("license_name") or origin.facts.get("license")
        if licence:
            header["base_model_license"] = ", ".join(licence)
        return cls("", "", origin.legal, header)

    @property
    def based_on(self) -> str:
        """Name of the model that was fine-tuned; empty for any other model."""
        facts = self.facts
        return ", ".join(facts.get("base_model", [])) if facts.get("base_model_relation") == ["finetune"] else ""

    @property
    def facts(self) -> dict[str, list[str]]:
        """Entries of the front matter about licence and origin."""
        content = {**self.header, **self._front_matter()}
        facts = {key: _texts(content.get(key)) for key in FACTS}
        return {key: texts for key, texts in facts.items() if texts}

    @property
    def files(self) -> list[str]:
        """Names of the files that whoever distributes the model includes."""
        return [*self.legal, *([CARD] if self.card else [])]

    def write(self, folder: Path) -> None:
        """Writes the card, the licence and the notices into a bundle."""
        for name, content in self.legal.items():
            (folder / name).write_bytes(content)
        if self.card:
            (folder / CARD).write_text(self.card, encoding="utf-8")

    def write_checkpoint(self, folder: Path, model: keras.Model) -> None:
        """Writes the card, the licence and the notices of a checkpoint: those of its source, or a new card."""
        for name, content in self.legal.items():
            (folder / name).write_bytes(content)
        (folder / README).write_text(self.card or self._new_card(model), encoding="utf-8")

    def _new_card(self, model: keras.Model) -> str:
        """Returns a card that states the origin of the weights alone."""
        entries = {"library_name": "transformers", "pipeline_tag": VARIANTS.get(model.task, model.task), **self.header}
        front = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in entries.items()]
        text = [f"# {model.config.model_type} for {model.task}", ""]
        if base := self.based_on:
            text += [f"Fine-tuned from `{base}`, whose licence, data and uses are not those of this model.", ""]
        return "\n".join(["---", *front, "---", "", *text, _UNFINISHED, ""])

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


def is_changed(model: keras.Model) -> bool:
    """Whether the weights of a model are not those of the checkpoint that it was loaded from."""
    if model.new_variables or model.loaded_values is None or layers_with_lora(model):
        return True
    return any(model.loaded_values.get(path) != values for path, values in sampled_values(model).items())


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
