"""`quantize="auto"`: the storage of each part of a model, chosen for what the bundle may weigh, take and get wrong.

Each group of matrices is tried alone in each storage, in Keras. Mixes of all sizes follow from that: step by step, the
change that costs the least divergence for each byte that it saves. How faithful a mix is as a whole is then measured
in Keras, and how large, fast and faithful its file is in the runtime that it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kerasformer.errors import ExportError, argument
from kerasformer.export.quantization.layouts import Layout, num_bytes
from kerasformer.export.quantization.model_matrices import Group, groups, matrices, mixed
from kerasformer.export.quantization.recipes import BITS, RECIPES, Recipe, Storage
from kerasformer.export.quantization.sample_inputs import as_read, shortest
from kerasformer.export.quantization.search import Auto, Search, Tried, Workshop
from kerasformer.export.quantization.sensitivity import Sensitivity, Simulation, sensitivities
from kerasformer.fidelity.figures import Fidelity
from kerasformer.progress import StageProgress

NAME = "auto"

_TRIAL_ANSWERS = 16  # of each text, on which groups are told apart
_TRIAL_TOKENS = 400  # of all texts

Mix = Mapping[str, Storage]
"""Storage by the name of a group."""


@dataclass(frozen=True)
class ChosenMix:
    """What was found.

    Attributes:
        recipe: The mix whose files were written last.
        fidelity: Of these files in their runtime.
        budget: What was wanted.
        tried: The mixes that were looked at, from the most faithful to the smallest.
        sensitivities: Of the groups.
    """

    recipe: Recipe
    fidelity: Fidelity
    budget: Auto
    tried: tuple[Tried, ...]
    sensitivities: tuple[Sensitivity, ...]

    def to_dict(self) -> dict[str, Any]:
        """All but recipe and fidelity, for the manifest."""
        return {
            "budget": asdict(self.budget),
            "tried": [asdict(each) for each in self.tried],
            "sensitivities": [asdict(each) for each in self.sensitivities],
        }


COLUMNS = ("parts", "MB", "agreement in Keras", "in the runtime", "ms", "")


def search_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """Rows of a table with these `COLUMNS`, of what `ChosenMix.to_dict` gave: what was tried, the largest mix first."""
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
    model: Any,
    references: Mapping[str, np.ndarray],
    layout: Layout,
    budget: Auto,
    workshop: Workshop,
    progress: StageProgress,
) -> ChosenMix:
    """Finds the mix for a budget and writes it.

    Without a limit of size or latency it is the smallest that keeps `min_agreement`; with one, the most faithful
    within the limits, which must keep it too.

    Args:
        model: Any model of the zoo.
        references: Of `verify.record`.
        layout: Of the files.
        budget: What is wanted.
        workshop: Writes and runs files.
        progress: Is told each stage.
    Raises:
        ExportError: no mix keeps the budget; the message has the best that was possible.
    """
    parts = matrices(model)
    members = groups(parts)
    if not members:
        raise ExportError(
            f"No matrix of this model is large enough to be quantized. Take {argument('quantize', 'none')}"
        )
    simulation = Simulation(model, parts, layout)
    trial = shortest(as_read(model, references, _TRIAL_ANSWERS), _TRIAL_TOKENS)
    found = sensitivities(
        simulation,
        members,
        lambda group: ("int8", "int4") if layout.four_bit_tables or not group.table else ("int8",),
        trial,
        progress=lambda done, total: progress("try each part", done, total),
    )
    search = Search(
        budget,
        [_recipe(mix, members, budget) for mix in frontier(members, found, layout)],
        workshop,
        progress,
        size=lambda recipe: num_bytes(model, parts, recipe, layout),
        simulate=lambda recipe: simulation.fidelity(recipe, as_read(model, references)),
        count=lambda recipe: _counted(recipe, members),
    )
    recipe, fidelity = search.run()
    return ChosenMix(recipe, fidelity, budget, search.looked_at(), tuple(found))


def frontier(parts: Sequence[Group], found: Sequence[Sensitivity], layout: Layout) -> list[Mix]:
    """Mixes from all in float32 to the smallest, each the one before with one group stored smaller.

    Divergences of single groups add up nearly, so of all mixes of its size each is nearly the most faithful one: the
    changes come in the order of the divergence that they cost for each byte that they save, and a storage that is
    worse in this than a smaller one is left out (the convex hull of a group's storages; Everett 1963). float16 counts
    as free: its rounding is a tenth of that of int8, and its square, which divergences go by, a hundredth.

    Args:
        parts: The groups.
        found: Their sensitivities.
        layout: Of the files, for the sizes.
    """
    steps: list[tuple[float, str, Storage]] = []
    for group in parts:
        options: dict[Storage, tuple[int, float]] = {
            storage: (_group_bytes(group, storage, layout), 0.0) for storage in ("float32", "float16")
        }
        options |= {each.storage: (each.num_bytes, each.divergence) for each in found if each.group == group.name}
        steps += [(slope, group.name, storage) for slope, storage in _hull(options)]
    mix: dict[str, Storage] = dict.fromkeys((group.name for group in parts), "float32")
    mixes: list[Mix] = [dict(mix)]
    for _, name, storage in sorted(steps, key=lambda step: step[0]):  # stable: a group's own order stays
        mix[name] = storage
        mixes.append(dict(mix))
    return mixes


def _hull(options: Mapping[Storage, tuple[int, float]]) -> list[tuple[float, Storage]]:
    """Storages after float32, each with the divergence for each byte that the change to it costs; these grow."""
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
    """The mix with the tolerance of its coarsest storage."""
    coarsest = min(mix.values(), key=BITS.__getitem__)
    named = {"float32": "none", "float16": "fp16", "int8": "int8", "int4": "int4"}[coarsest]
    return mixed(
        NAME,
        mix,
        parts,
        activations="dynamic",
        tolerance=RECIPES[named].tolerance,
        min_agreement=budget.min_agreement,
    )


def _counted(recipe: Recipe, parts: Sequence[Group]) -> dict[str, int]:
    """Groups in each storage, the most bits first."""
    first = [group.parts[0] for group in parts]
    counts = Counter(recipe.storage(part.path, part.rows, part.table) for part in first)
    return {storage: counts[storage] for storage in BITS if counts[storage]}
