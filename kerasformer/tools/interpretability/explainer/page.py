"""The page: its parts, which become one file that opens without a server."""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.basics.progress import StageProgress
from kerasformer.errors import InputError
from kerasformer.files.publishing import replacing
from kerasformer.files.reading import JsonObject, local_path
from kerasformer.tools.interpretability.explainer.packing import script_json
from kerasformer.tools.interpretability.explainer.precision import RECIPES
from kerasformer.tools.interpretability.explainer.readings import Text
from kerasformer.tools.interpretability.explainer.recording import record

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel

NAME = "index.html"
MAX_BYTES = 5_000_000
"""Size that a page with short texts stays below, whatever the model."""

_MARK = '<meta name="generator" content="kerasformer explain">'
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|function|class)", re.MULTILINE)


def write_site(
    source: str | os.PathLike[str] | PretrainedModel,
    folder: str | os.PathLike[str],
    *,
    texts: Sequence[Text] | None = None,
    recipes: Sequence[str] = RECIPES,
    bundles: Mapping[str, str | os.PathLike[str]] | None = None,
    format: str = "litert",
    progress: StageProgress | None = None,
) -> Path:
    """Writes one page that explains a model: tokens, attention, layers, probabilities, beams and precisions.

        write_site("story-gpt2", "site", texts=["The old man looked at the sea and"])

    Args:
        source: Keras model, checkpoint folder, preset, hub id or bundle.
        folder: Folder in which `index.html` is written; or a file whose name ends in `.html`.
        texts: Texts or pairs of texts (a question and its context); by default sample texts of the model's task.
        recipes: Recipes of the bundles that are exported to a temporary folder for the comparison. A bundle is
            compared with those of the same model that lie beside it.
        bundles: Bundles of the same model to compare instead of these, by the names that the page shows.
        format: Format of the exported bundles.
        progress: Called with each stage.

    Returns:
        The file.

    Raises:
        CapacityError: a text has more tokens than the model reads, or than a page shows.
        ExportError: a recipe is unknown.
        InputError: another file would be replaced, the format is unknown, a text is no text, or a bundle is of another
            model.
        MissingExtraError: a runtime or a converter is not installed.
        SourceError: the source was not found.
        TokenizerError: the model has no tokenizer, or one without the mask token that it needs.
    """
    path = local_path(folder, InputError)
    file = path if path.suffix.lower() == ".html" else path / NAME
    parent = next(each for each in file.absolute().parents if each.exists())
    if file.is_dir() or not parent.is_dir():
        raise InputError(
            f"A new folder, or a file that ends in .html, was expected. Received: {path}, "
            + ("which is a folder" if file.is_dir() else f"where {parent} is a file")
        )
    if file.exists() and _MARK not in file.read_text(encoding="utf-8", errors="replace")[:2000]:
        raise InputError(f"A page of this command, or none, was expected there. Received: {file}. Choose another name")
    recorded = record(source, texts, recipes=recipes, bundles=bundles, format=format, progress=progress)
    content = rendered(recorded)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return file


def rendered(recorded: JsonObject) -> str:
    """Returns the page for what `record` returned."""
    own = resources.files("kerasformer.tools.interpretability.explainer") / "page"
    views = resources.files("kerasformer.tools.viz") / "page"
    web = (resources.files("kerasformer.tools.web") / "page" / "style.css").read_text(encoding="utf-8")
    variables = web[: web.index("\n* {")]
    style = "\n".join([variables, _read(views, "attention.css"), _read(own, "style.css")])
    modules = {entry.name: entry.read_text(encoding="utf-8") for entry in own.iterdir() if entry.name.endswith(".js")}
    script = f"{_read(views, 'attention.js')}\n(() => {{\n{bundled(modules)}\n}})();\n"
    parts = {
        "title": html.escape(f"{recorded['model']['title']} explained"),
        "style": style,
        "style-hash": _hash(style),
        "script": script,
        "script-hash": _hash(script),
        "record": script_json(recorded),
    }
    return re.sub(r"\{\{([\w-]+)\}\}", lambda match: parts[match[1]], _read(own, "index.html"))


def bundled(modules: Mapping[str, str]) -> str:
    """Returns modules as one script: each after those that it imports, without the imports and exports.

    All names at the top of the modules are then in one scope, so that each is used once.
    """
    imports = {name: set(_IMPORT.findall(text)) for name, text in modules.items()}
    ordered = TopologicalSorter(imports).static_order()
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", modules[name])) for name in ordered)


def _read(folder: Traversable, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """Returns the hash of an inline element for the policy of the page."""
    return f"'sha256-{base64.b64encode(sha256(content.encode()).digest()).decode()}'"
