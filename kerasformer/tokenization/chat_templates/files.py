"""Reading of chat templates from the files of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kerasformer.errors import ChatTemplateError, SourceError
from kerasformer.files import sources
from kerasformer.files.reading import JsonMapping, read_text

ChatTemplates = str | dict[str, str] | None
"""A template, several templates by name, or none."""

DEFAULT = "default"
"""Name of the template that is used if none is requested."""

_FILE, _FOLDER, _OLD_FILE = "chat_template.jinja", "additional_chat_templates", "chat_template.json"
_MAX_BYTES = 1_000_000


def read_templates(folder: Path, settings: JsonMapping) -> ChatTemplates:
    """Reads the chat templates of a folder.

    `chat_template.jinja` and the files of `additional_chat_templates/` have precedence over `chat_template` in
    `tokenizer_config.json`, and that over `chat_template.json`.

    Args:
        folder: Folder of the tokenizer.
        settings: Content of `tokenizer_config.json`.
    Raises:
        ChatTemplateError: a file cannot be read, or contains something other than templates.
    """
    templates = {}
    if (folder / _FILE).exists():
        templates[DEFAULT] = _read(folder, _FILE)
    for path in sorted((folder / _FOLDER).glob("*.jinja")):
        templates[path.stem] = _read(folder, f"{_FOLDER}/{path.name}")
    if templates:
        return templates[DEFAULT] if list(templates) == [DEFAULT] else templates
    where = f"chat_template of {folder / 'tokenizer_config.json'}"
    value = settings.get("chat_template")
    if value is None and (folder / _OLD_FILE).exists():
        where = f"chat_template of {folder / _OLD_FILE}"
        try:
            value = sources.read_json(sources.inside(folder, _OLD_FILE)).get("chat_template")
        except SourceError as error:
            raise ChatTemplateError(str(error)) from error
    return _checked(value, where)


def listed(templates: ChatTemplates) -> str | list[dict[str, str]] | None:
    """Returns the templates in the form that transformers, transformers.js and onnxruntime-genai read in a file."""
    if isinstance(templates, dict):
        return [{"name": name, "template": text} for name, text in templates.items()]
    return templates


def pair_template(templates: ChatTemplates) -> str | None:
    """Returns the default template if it names the roles `query` and `document` of a reranker; otherwise `None`."""
    template = templates.get(DEFAULT) if isinstance(templates, dict) else templates
    named = [any(f"{mark}{role}{mark}" in (template or "") for mark in "'\"") for role in ("query", "document")]
    return template if all(named) else None


def _read(folder: Path, name: str) -> str:
    try:
        text = read_text(sources.inside(folder, name))
    except SourceError as error:
        raise ChatTemplateError(str(error)) from error
    return _short(text, str(folder / name))


def _checked(value: object, where: str) -> ChatTemplates:
    """Returns the value of `chat_template`: a template, or a list of names and templates."""
    if value is None:
        return None
    if isinstance(value, str):
        return _short(value, where)
    named = value
    if isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
        named = {entry.get("name"): entry.get("template") for entry in value}
    if not isinstance(named, dict) or not named or not all(isinstance(x, str) for pair in named.items() for x in pair):
        raise ChatTemplateError(
            f'{where} must be a template, or a list of {{"name": …, "template": …}}. Received: {str(value)[:80]}'
        )
    return {name: _short(template, where) for name, template in named.items()}


def _short(text: str, where: str) -> str:
    if len(text) > _MAX_BYTES:
        raise ChatTemplateError(f"{where} must have at most {_MAX_BYTES:,} characters. Received: {len(text):,}")
    return text
