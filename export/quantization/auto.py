"""`quantize="auto"`: chooses a storage type for each part of a model within limits of size, latency and fidelity.

Each group of matrices is simulated alone with each storage type, in Keras. From the results follow mixes of all sizes:
each step makes the change with the lowest divergence per byte saved. The fidelity of a whole mix is then measured in
Keras, and its size, latency and fidelity with real files in their runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from kerasformer.basics.progress import StageProgress
from kerasformer.bundle import Fidelity
from kerasformer.bundle.recipes import BITS, RECIPES, Recipe, Storage
from kerasformer.errors import ExportError
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.layouts import Layout, num_bytes
from kerasformer.export.quantization.model_matrices import Group, groups, matrices, mixed
from kerasformer.export.quantization.sample_inputs import shortest, single_pass_references
from kerasformer.export.quantization.search import Auto, FileBuilder, Search, Tried
from kerasformer.export.quantization.sensitivity import Sensitivity, Simulation, sensitivities
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.models.pretrained import PretrainedModel

NAME = "auto"

_TRIAL_ANSWERS = 16  # answers for each text when groups are tried
_TRIAL_TOKENS = 400  # tokens in total when groups are tried

Mix = Mapping[str, Storage]
"""Storage type by name of the group."""


@dataclass(frozen=True)
class ChosenMix:
    """Result of a search.

    Attributes:
        recipe: The chosen mix, whose files are the current ones.
        fidelity: Fidelity of these files in their runtime.
        budget: Limits of the search.
        tried: The measured mixes, from the most faithful to the smallest.
        sensitivities: Sensitivities of the groups.
    """

    recipe: Recipe
    fidelity: Fidelity
    budget: Auto
    tried: tuple[Tried, ...]
    sensitivities: tuple[Sensitivity, ...]

    def to_dict(self) -> JsonObject:
        """Returns all fields except recipe and fidelity, for the manifest."""
        return {
            "budget": asdict(self.budget),
            "tried": [asdict(mix) for mix in self.tried],
            "sensitivities": [asdict(sensitivity) for sensitivity in self.sensitivities],
        }


COLUMNS = ("parts", "MB", "agreement in Keras", "in the runtime", "ms", "")


def search_rows(record: JsonMapping) -> list[list[str]]:
    """Returns the rows of a table of the mixes that were tried, the largest first, with the columns `COLUMNS`.

    Args:
        record: Result of `ChosenMix.to_dict`.
    """
    return [
        [
            ", ".join(f"{count} {storage}" for storage, count in tried["parts"].items()),
            f"{tried['megabytes']:.2f}",
            _share(tried["agreement"]),
            _share(tried["verified"]),
            "" if tried["latency"] is None else f"{tried['latency']:.2f}",
            "chosen" if tried["chosen"] else "refused" if tried["refused"] else "",
        ]
        for tried in record["tried"]
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def choose(
    model: PretrainedModel,
    references: Mapping[str, np.ndarray],
    layout: Layout,
    budget: Auto,
    builder: FileBuilder,
    progress: StageProgress,
    calibration: Calibration | None = None,
) -> ChosenMix:
    """Searches for the best mix within a budget and writes its files.

    Without a limit of size or latency, that is the smallest mix that satisfies `min_agreement`; with one, the most
    faithful mix within the limits, which must satisfy `min_agreement` too.

    Args:
        model: A model of the zoo.
        references: Result of `references.record`.
        layout: Layout of the files.
        budget: Limits of the search.
        builder: Writes and runs model files.
        progress: Called with each stage.
        calibration: Ranges of activations with which the builder writes; optional.

    Raises:
        ExportError: No mix satisfies the budget; the message has the best possible figures.
    """
    parts = matrices(model, calibration)
    members = groups(parts)
    if not members:
        raise ExportError("No matrix of this model is large enough to be quantized. Use quantize='none'")
    simulation = Simulation(model, parts, layout)
    trial = shortest(single_pass_references(model, references, _TRIAL_ANSWERS), _TRIAL_TOKENS)
    measured = sensitivities(
        simulation,
        members,
        lambda group: ("int8", "int4") if layout.four_bit_tables or not group.table else ("int8",),
        trial,
        progress=lambda done, total: progress("try each part", done, total),
    )
    search = Search(
        budget,
        [_recipe(mix, members, budget) for mix in frontier(members, measured, layout)],
        builder,
        progress,
        size=lambda recipe: num_bytes(model, parts, recipe, layout),
        simulate=lambda recipe: simulation.fidelity(recipe, single_pass_references(model, references)),
        count=lambda recipe: _storage_counts(recipe, members),
    )
    recipe, fidelity = search.run()
    return ChosenMix(recipe, fidelity, budget, search.measured(), tuple(measured))


def frontier(parts: Sequence[Group], measured: Sequence[Sensitivity], layout: Layout) -> list[Mix]:
    """Returns mixes from all float32 to the smallest, each with one group stored smaller than in the mix before.

    The divergences of single groups nearly add up, so each mix is nearly the most faithful one of its size. Changes are
    ordered by divergence per byte saved, and a storage type with a worse ratio than a smaller one is skipped (the
    convex hull of a group's storage types; Everett 1963). float16 counts as free: its rounding error is a tenth of that
    of int8, and divergence grows with the square of the error.

    Args:
        parts: The groups.
        measured: Their sensitivities.
        layout: Layout of the files, for the sizes.
    """
    steps: list[tuple[float, str, Storage]] = []
    for group in parts:
        options: dict[Storage, tuple[int, float]] = {
            storage: (_group_bytes(group, storage, layout), 0.0) for storage in ("float32", "float16")
        }
        options |= {item.storage: (item.num_bytes, item.divergence) for item in measured if item.group == group.name}
        steps += [(slope, group.name, storage) for slope, storage in _hull(options)]
    mix: dict[str, Storage] = dict.fromkeys((group.name for group in parts), "float32")
    mixes: list[Mix] = [dict(mix)]
    for _, name, storage in sorted(steps, key=lambda step: step[0]):  # stable, so that each group's order is kept
        mix[name] = storage
        mixes.append(dict(mix))
    return mixes


def _hull(options: Mapping[Storage, tuple[int, float]]) -> list[tuple[float, Storage]]:
    """Returns the storage types to step through from float32, each with its divergence per byte saved, ascending."""
    steps: list[tuple[float, Storage]] = []
    current = options["float32"]
    while smaller := {name: option for name, option in options.items() if option[0] < current[0]}:
        slopes = {
            name: max(divergence - current[1], 0.0) / (current[0] - size)
            for name, (size, divergence) in smaller.items()
        }
        best = min(slopes, key=lambda name: (slopes[name], -smaller[name][0]))
        steps.append((slopes[best], best))
        current = (smaller[best][0], max(smaller[best][1], current[1]))
    return steps


def _group_bytes(group: Group, storage: Storage, layout: Layout) -> int:
    recipe = Recipe("trial", storage, storage, "dynamic", tolerance=1.0, min_agreement=0.0)
    return sum(layout.num_bytes(part, recipe) for part in group.parts)


def _recipe(mix: Mix, parts: Sequence[Group], budget: Auto) -> Recipe:
    """Returns the recipe of a mix, with the tolerance of its coarsest storage type."""
    coarsest = min(mix.values(), key=BITS.__getitem__)
    uniform = {"float32": "none", "float16": "fp16", "int8": "int8", "int4": "int4"}[coarsest]
    return mixed(
        NAME,
        mix,
        parts,
        activations="dynamic",
        tolerance=RECIPES[uniform].tolerance,
        min_agreement=budget.min_agreement,
        min_cosine=RECIPES[uniform].min_cosine,
    )


def _storage_counts(recipe: Recipe, parts: Sequence[Group]) -> dict[str, int]:
    """Returns the number of groups with each storage type, the most bits first."""
    first = [group.parts[0] for group in parts]
    counts = Counter(recipe.storage(part.path, part.rows, part.table) for part in first)
    return {storage: counts[storage] for storage in BITS if counts[storage]}
