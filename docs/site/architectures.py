"""A page for each architecture of the zoo."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from docs.site.staging import ROOT, code_block
from docs.site.tables import contents, listed, table
from kerasformer.bundle.architectures import BRANCHES, Architecture, architectures
from kerasformer.bundle.tested import checkpoints, formats, runtimes
from kerasformer.models.registry import architecture

_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "hidden size": ("hidden_size", "n_embd", "d_model", "emb_dim", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "vocabulary": ("vocab_size", "n_words"),
}
"""Names of the sizes in configurations of different architectures."""


def pages() -> dict[str, str]:
    """Returns the pages of all architectures and their index, by name."""
    known, published = architectures(), _published()
    parts = [
        "# Architectures\n\nWhat each one is, its heads, and what was tested. "
        "The tree is on the page [Models](../docs/zoo.md).\n"
    ]
    for branch in BRANCHES:
        rows = [
            (f"[{each.name}]({each.model_type}.md)", f"`{each.model_type}`", str(each.year), each.summary)
            for each in sorted(known.values(), key=lambda each: (each.year, each.name))
            if each.branch == branch
        ]
        parts.append(f"## {branch.capitalize()}s\n\n" + table(["name", "`model_type`", "year", "what it is"], rows))
    written = {f"models/{name}": _page(each, known, published) for name, each in known.items()}
    return {"models/index": "\n".join(parts) + contents(sorted(known)), **written}


def source(model_type: str) -> Path:
    """Returns the file of an architecture."""
    return ROOT / "zoo" / f"{model_type.replace('-', '_')}.py"


def _published() -> dict[str, dict[str, Any]]:
    """Returns the published configurations that tests load, by checkpoint."""
    rows = json.loads((ROOT / "tests" / "core" / "zoo" / "checkpoints.json").read_text(encoding="utf-8"))
    return {row["checkpoint"]: row for row in rows}


def _page(about: Architecture, known: dict[str, Architecture], published: dict[str, dict[str, Any]]) -> str:
    module, name = architecture(about.model_type), about.model_type
    parent = known.get(about.derived_from or "")
    children = [each for each in known.values() if each.derived_from == name]
    facts = [
        ("kind", about.branch),
        ("derived from", f"[{parent.name}]({parent.model_type}.md)" if parent else "the Transformer"),
        ("derived from it", ", ".join(f"[{each.name}]({each.model_type}.md)" for each in children)),
        ("year", str(about.year)),
        ("paper", _ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", about.paper)),
        ("source", f"[`zoo/{source(name).name}`](#source)"),
    ]
    heads = [(f"`{task}`", f"`kerasformer.zoo.{kind.__name__}`") for task, kind in module.MODELS.items()]
    tested = checkpoints().get(name, [])
    rows = [
        (f"`{checkpoint}`", *_sizes(published[checkpoint]["config"]))
        for checkpoint in tested
        if checkpoint in published
    ]
    parts = [
        f"# {about.name}\n\n{about.summary[0].upper()}{about.summary[1:]}.\n",
        table(["", ""], [row for row in facts if row[1]]),
        "```python\nimport kerasformer as kf\n\n"
        f'model = kf.load("{tested[0] if tested else "path or hub id"}")\n'
        'model.export("out", format="litert", quantize="int8")\n```\n',
        "## Heads\n\n" + table(["task", "class"], heads),
    ]
    if rows:
        parts.append(
            "## Published configurations\n\nA small model with the `config.json` of each of these checkpoints has the "
            "outputs of `transformers`.\n\n" + table(["checkpoint", *_SIZES], rows)
        )
    parts += [_formats(name), _runtimes(name), _configuration(module, name), _source(name)]
    return "\n".join(part for part in parts if part)


def _sizes(config: dict[str, Any]) -> list[str]:
    values = [next((config[name] for name in names if name in config), None) for names in _SIZES.values()]
    return [f"{value:,}" if isinstance(value, int) else "" for value in values]


def _formats(name: str) -> str:
    """Returns the table of the bundles that were compared with Keras."""
    found = formats()
    tasks = [task for task in dict.fromkeys(task for bundles in found.values() for task in bundles)]
    rows = [
        (
            f"`{task}`",
            *(", ".join(bundles.get(task, {}).get(name, ())).replace("none", "float32") for bundles in found.values()),
        )
        for task in tasks
        if any(name in bundles.get(task, {}) for bundles in found.values())
    ]
    if not rows:
        return ""
    return "## Tested bundles\n\nRecipes with which a bundle was compared with Keras, by format.\n\n" + table(
        ["task", *found], rows
    )


def _runtimes(name: str) -> str:
    """Returns the table of the runtimes, and of what they refuse."""
    rows, refused = [], []
    for runtime in runtimes().values():
        title = f"[{runtime.name}](../targets/{runtime.name}.md)" if runtime.is_target else runtime.name
        if runtime.tasks_of(name):
            rows.append((title, listed(runtime.tasks_of(name))))
        refused += [(title, listed(tasks), why) for why, tasks in runtime.refusals_of(name).items()]
    text = "## Tested runtimes\n\n" + table(["runtime", "tasks"], rows) if rows else ""
    return text + ("\nRefused at export:\n\n" + table(["runtime", "tasks", "reason"], refused) if refused else "")


def _configuration(module: Any, name: str) -> str:
    """Returns the table of the fields of the configuration."""
    kind = next(iter(module.MODELS.values())).backbone_type.config_type
    rows = [
        (f"`{field.name}`", listed(field.metadata["hf"]), f"`{_default(field)}`")
        for field in dataclasses.fields(kind)
        if "hf" in field.metadata
    ]
    about = f"Fields of `{kind.__name__}`, which a `config.json` sets and `save_pretrained` writes."
    return f"## Configuration\n\n{about}\n\n" + table(["field", "key in `config.json`", "default"], rows)


def _source(name: str) -> str:
    """Returns the section with the whole file of the architecture."""
    return f"## Source\n\n{code_block(source(name))}"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return str(field.default_factory())
    return repr(field.default)
