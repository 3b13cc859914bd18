"""Mixes of storage types, from all float32 to the smallest.

Each group of matrices is simulated alone with each storage type, in Keras. From the results follow mixes of all sizes:
each step makes the change with the lowest divergence per byte saved.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle import Fidelity
from kerasformer.bundle.recipes import BITS, Storage
from kerasformer.export import RECIPES, ModelMatrix, Recipe, Simulation

NAME = "auto"
"""Name of the recipes that a search finds."""

Mix = Mapping[str, Storage]
"""Storage type by name of the group."""
Costs = Mapping[Storage, tuple[int, float]]
"""Size of a group in bytes, and divergence of the answers, by storage type of its matrices."""


@dataclass(frozen=True, eq=False)
class Group:
    """Matrices with the same storage type: those of an attention, of a feed-forward network, or a single table.

    Runtimes merge products of one input, for which the matrices need the same storage type.

    Attributes:
        name: The common part of their paths.
        parts: The matrices.
        patterns: Shell patterns that match their paths and no others, whatever the model's name is.
    """

    name: str
    parts: tuple[ModelMatrix, ...]
    patterns: tuple[str, ...]

    @property
    def table(self) -> bool:
        """Whether the group is a table."""
        return self.parts[0].table


def groups(parts: Sequence[ModelMatrix]) -> list[Group]:
    """Divides the matrices into groups."""
    members_by_name: dict[str, list[ModelMatrix]] = {}
    for part in parts:
        layer = part.path.rsplit("/", 1)[0]
        members_by_name.setdefault(layer if part.table else layer.rsplit("/", 1)[0], []).append(part)
    return [_group(members, parts) for members in members_by_name.values()]


def _group(members: list[ModelMatrix], parts: Sequence[ModelMatrix]) -> Group:
    common = members[0].path.rsplit("/", 1)[0]
    if len(members) > 1:
        common = common.rsplit("/", 1)[0]
    others = [part.path for part in parts if not any(part is member for member in members)]
    whole = "/" in common and not any(path.startswith(f"{common}/") for path in others)
    name = _below_model(common)
    if whole:
        return Group(name, tuple(members), (f"*/{glob.escape(name)}/*",))
    return Group(name, tuple(members), tuple(f"*/{glob.escape(_below_model(member.path))}" for member in members))


def _below_model(path: str) -> str:
    """Removes the model's own name, which Keras numbers, from the path of a variable."""
    return path.split("/", 1)[-1]


def cost(fidelity: Fidelity) -> float:
    """Returns the mean Kullback-Leibler divergence of the answers from those of Keras, in nats.

    For answers that are not probabilities, it returns the squared mean error, which grows in the same way.
    """
    return fidelity.mean_error**2 if fidelity.divergence is None else fidelity.divergence


def sensitivities(
    simulation: Simulation,
    parts: Sequence[Group],
    references: Mapping[str, np.ndarray],
    progress: CountProgress = lambda done, total: None,
) -> dict[str, Costs]:
    """Measures each storage type for each group alone, with everything else in float32.

    float16 counts as free: its rounding error is a tenth of that of int8, and divergence grows with the square of the
    error.

    Args:
        simulation: The model.
        parts: The groups.
        references: Result of `single_pass_references`; a few hundred tokens suffice to rank groups.
        progress: Called with the number of groups that were tried and their total.

    Returns:
        The costs of each group, by its name.
    """
    layout = simulation.layout
    costs: dict[str, Costs] = {}
    for done, group in enumerate(parts, 1):
        choices: dict[Storage, tuple[int, float]] = {}
        for storage in BITS:
            if storage == "int4" and group.table and not layout.four_bit_tables:
                continue
            layers = tuple((pattern, storage) for pattern in group.patterns)
            recipe = Recipe("trial", "float32", "float32", "dynamic", tolerance=1.0, min_agreement=0.0, layers=layers)
            size = sum(layout.num_bytes(part, recipe) for part in group.parts)
            free = storage in ("float32", "float16")
            choices[storage] = size, 0.0 if free else cost(simulation.fidelity(recipe, references))
        costs[group.name] = choices
        progress(done, len(parts))
    return costs


def frontier(costs: Mapping[str, Costs]) -> list[Mix]:
    """Returns mixes from all float32 to the smallest, each with one group stored smaller than in the mix before.

    The divergences of single groups nearly add up, so each mix is nearly the most faithful one of its size. Changes are
    ordered by divergence per byte saved, and a storage type with a worse ratio than a smaller one is skipped (the
    convex hull of a group's storage types; Everett 1963).

    Args:
        costs: Result of `sensitivities`.
    """
    steps = [(slope, name, storage) for name, choices in costs.items() for slope, storage in _hull(choices)]
    mixes: list[Mix] = [dict.fromkeys(costs, "float32")]
    for _, name, storage in sorted(steps, key=lambda step: step[0]):  # stable, so that each group's order is kept
        mixes.append({**mixes[-1], name: storage})
    return mixes


def _hull(choices: Costs) -> list[tuple[float, Storage]]:
    """Returns the storage types to step through from float32, each with its divergence per byte saved, ascending."""
    steps: list[tuple[float, Storage]] = []
    current = choices["float32"]
    while smaller := {name: choice for name, choice in choices.items() if choice[0] < current[0]}:
        slopes = {
            name: max(divergence - current[1], 0.0) / (current[0] - size)
            for name, (size, divergence) in smaller.items()
        }
        best = min(slopes, key=lambda name: (slopes[name], -smaller[name][0]))
        steps.append((slopes[best], best))
        current = (smaller[best][0], max(smaller[best][1], current[1]))
    return steps


def recipe_of(mix: Mix, parts: Sequence[Group], min_agreement: float) -> Recipe:
    """Returns the recipe of a mix, with the tolerance of its coarsest storage type.

    The most common storage types are its defaults, and all others exceptions.
    """

    def most_common(table: bool) -> Storage:
        sizes: Counter[Storage] = Counter()
        for group in parts:
            if group.table == table:
                sizes[mix[group.name]] += len(group.patterns)
        return sizes.most_common(1)[0][0] if sizes else "float32"

    defaults = {table: most_common(table) for table in (False, True)}
    layers = tuple(
        (pattern, mix[group.name])
        for group in parts
        if mix[group.name] != defaults[group.table]
        for pattern in group.patterns
    )
    coarsest = min(mix.values(), key=BITS.__getitem__)
    uniform = RECIPES[{"float32": "none", "float16": "fp16"}.get(coarsest, coarsest)]
    return Recipe(
        NAME,
        defaults[False],
        defaults[True],
        "dynamic",
        uniform.tolerance,
        min_agreement,
        layers=layers,
        min_cosine=uniform.min_cosine,
    )
