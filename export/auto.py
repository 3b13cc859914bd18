"""`quantize="auto"`: the storage of each part of a model, chosen for what the bundle may weigh, take and get wrong.

Each group of matrices is tried alone in each storage, in Keras. Mixes of all sizes follow from that: step by step, the
change that costs the least divergence for each byte that it saves. How faithful a mix is as a whole is then measured
in Keras, and how large, fast and faithful its file is in the runtime that it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from kerasformer.errors import ExportError, ExportMismatchError, InputError
from kerasformer.export.layouts import Layout, num_bytes
from kerasformer.export.matrices import Group, groups, matrices, mixed
from kerasformer.export.recipes import BITS, RECIPES, Recipe, Storage
from kerasformer.export.sample import as_read, shortest
from kerasformer.export.sensitivity import Sensitivity, Simulation, cost, sensitivities
from kerasformer.runtime.fidelity import Fidelity

NAME = "auto"
MIN_AGREEMENT = 0.98

_MEGABYTE = 1e6
_TRIAL_ANSWERS = 16  # of each text, on which groups are told apart
_TRIAL_TOKENS = 400  # of all texts

_ADVICE = "Allow more size, latency or difference, or train the model with quantization in mind."

Mix = Mapping[str, Storage]
"""Storage by the name of a group."""

Progress = Callable[[str, int, int], None]
"""Is told a stage, how much of it is done and how much there is."""


@dataclass(frozen=True)
class Budget:
    """What an export may cost.

    Attributes:
        min_agreement: Least share of answers whose most probable one is the Keras model's; 0.98 by default.
        max_size: Of the model files, in MB (1e6 bytes).
        max_latency: Milliseconds of a token, or of a text that is answered at once, on this machine.
    """

    min_agreement: float = MIN_AGREEMENT
    max_size: float | None = None
    max_latency: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_agreement <= 1:
            raise InputError(f"min_agreement must lie between 0 and 1. Received: {self.min_agreement}")
        for name in ("max_size", "max_latency"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and np.isfinite(value)):
                raise InputError(f"{name} must be a number above 0. Received: {value}")

    def __str__(self) -> str:
        limits = [f"agreement of at least {self.min_agreement:g}"]
        limits += [] if self.max_size is None else [f"at most {self.max_size:g} MB"]
        limits += [] if self.max_latency is None else [f"at most {self.max_latency:g} ms"]
        return ", ".join(limits)


@dataclass(frozen=True)
class Tried:
    """A mix that was looked at.

    Attributes:
        parts: Number of groups in each storage, such as `{"int8": 3, "int4": 23}`.
        megabytes: Of its model files, as written or computed.
        divergence: Of its answers in Keras; see `sensitivity.cost`.
        agreement: Likewise, the share of answers that stay the same.
        latency: Milliseconds of a token or text in the runtime.
        verified: Agreement in the runtime.
        chosen: It is the one.
    """

    parts: dict[str, int]
    megabytes: float
    divergence: float | None = None
    agreement: float | None = None
    latency: float | None = None
    verified: float | None = None
    chosen: bool = False


@dataclass(frozen=True)
class Choice:
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
    budget: Budget
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


def in_words(record: Mapping[str, Any]) -> list[list[str]]:
    """Rows of a table with these `COLUMNS`, of what `Choice.to_dict` gave: what was tried, the largest mix first."""
    return [
        [
            ", ".join(f"{count} {storage}" for storage, count in tried["parts"].items()),
            f"{tried['megabytes']:.2f}",
            _share(tried["agreement"]),
            _share(tried["verified"]),
            "" if tried["latency"] is None else f"{tried['latency']:.2f}",
            "chosen" if tried["chosen"] else "",
        ]
        for tried in record["tried"]
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


class Workshop(Protocol):
    """Where mixes become files, each in place of those before."""

    def write(self, recipe: Recipe) -> int:
        """Writes the model files; returns their bytes."""
        ...

    def latency(self) -> float:
        """Milliseconds of a token, or of a text, in the runtime with what was written last."""
        ...

    def verify(self, recipe: Recipe) -> Fidelity:
        """Compares what was written last with the Keras model.

        Raises:
            ExportMismatchError: it is less faithful than its recipe promises.
        """
        ...


def choose(
    model: Any,
    references: Mapping[str, np.ndarray],
    layout: Layout,
    budget: Budget,
    workshop: Workshop,
    progress: Progress,
) -> Choice:
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
        raise ExportError("No matrix of this model is large enough to be quantized. Take quantize='none'")
    simulation = Simulation(model, parts, layout)
    trial = shortest(as_read(model, references, _TRIAL_ANSWERS), _TRIAL_TOKENS)
    found = sensitivities(
        simulation,
        members,
        lambda group: ("int8", "int4") if layout.four_bit_tables or not group.table else ("int8",),
        trial,
        progress=lambda done, total: progress("try each part", done, total),
    )
    search = _Search(
        budget,
        [_recipe(mix, members, budget) for mix in frontier(members, found, layout)],
        workshop,
        progress,
        size=lambda recipe: num_bytes(model, parts, recipe, layout),
        simulate=lambda recipe: simulation.fidelity(recipe, as_read(model, references)),
        count=lambda recipe: _counted(recipe, members),
    )
    recipe, fidelity = search.run()
    return Choice(recipe, fidelity, budget, search.looked_at(), tuple(found))


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


def _recipe(mix: Mix, parts: Sequence[Group], budget: Budget) -> Recipe:
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


class _Search:
    """A search along mixes whose sizes fall, and with them their agreement and, as a rule, their latency.

    Args:
        budget: What is wanted.
        recipes: The mixes.
        workshop: Writes and runs files.
        progress: Is told each stage.
        size: Bytes of a mix's weights.
        simulate: Fidelity of a mix in Keras.
        count: Groups in each storage.
    """

    def __init__(
        self,
        budget: Budget,
        recipes: Sequence[Recipe],
        workshop: Workshop,
        progress: Progress,
        *,
        size: Callable[[Recipe], int],
        simulate: Callable[[Recipe], Fidelity],
        count: Callable[[Recipe], dict[str, int]],
    ) -> None:
        self.budget, self.recipes, self.workshop, self.progress = budget, recipes, workshop, progress
        self.simulate = simulate
        self.tried = [Tried(count(recipe), size(recipe) / _MEGABYTE) for recipe in recipes]
        self.written: int | None = None
        self.mismatch = ""

    def run(self) -> tuple[Recipe, Fidelity]:
        """The mix, and the fidelity of its files, which were written last."""
        faithful = self._most_compact()
        self._write(faithful)
        first = self._first_that_fits(faithful)
        limited = self.budget.max_size is not None or self.budget.max_latency is not None
        if self.budget.max_latency is not None:
            places: Iterable[int] = [self._first_fast_enough(first, faithful)]
        elif limited:
            places = range(first, faithful + 1)
        else:
            places = _back_from(faithful)
        for place in places:
            if not self._write(place):
                continue
            fidelity = self._verified(place)
            if fidelity is not None:
                self._note(place, chosen=True)
                return self.recipes[place], fidelity
            if limited:  # what is more faithful is beyond the limits
                break
        raise ExportError(f"No mix keeps the budget, {self.budget}, in the runtime. {self.mismatch}{_ADVICE}")

    def looked_at(self) -> tuple[Tried, ...]:
        """The mixes of which something was measured."""
        return tuple(each for each in self.tried if each.agreement is not None or each.verified is not None)

    def _most_compact(self) -> int:
        """The last mix that is faithful enough in Keras; the first one, float32, is by nature."""
        low, high = 0, len(self.recipes)
        while high - low > 1:
            middle = high - 1 if low == 0 and high == len(self.recipes) else (low + high) // 2
            if self._agreement(middle) >= self.budget.min_agreement:
                low = middle
            else:
                high = middle
        return low

    def _first_that_fits(self, faithful: int) -> int:
        """The first mix that is small enough."""
        limit = self.budget.max_size
        if limit is None:
            return 0
        fitting = [place for place, tried in enumerate(self.tried) if tried.megabytes <= limit]
        if fitting and fitting[0] <= faithful:
            return fitting[0]
        best = f"with that agreement it takes {self.tried[faithful].megabytes:.2f} MB"
        if fitting:
            best += f", and with {limit:g} MB agreement is {self._agreement(fitting[0]):.4f}"
        else:
            best += f", and the smallest of all mixes {self.tried[-1].megabytes:.2f} MB"
        raise ExportError(f"No mix keeps the budget, {self.budget}. The best that is possible: {best}. {_ADVICE}")

    def _first_fast_enough(self, first: int, last: int) -> int:
        """The most faithful mix within these that is fast enough, as files that are run."""
        limit = self.budget.max_latency or 0.0
        if self._latency(first) <= limit:
            return first
        if self._latency(last) > limit:
            best = min((self.tried[place] for place in (first, last)), key=lambda tried: tried.latency or 0.0)
            raise ExportError(
                f"No mix keeps the budget, {self.budget}. The best that is possible: {best.latency:.3g} ms, with "
                f"{best.megabytes:.2f} MB. {_ADVICE}"
            )
        while last - first > 1:
            middle = (first + last) // 2
            if self._latency(middle) <= limit:
                last = middle
            else:
                first = middle
        return last

    def _agreement(self, place: int) -> float:
        agreement = self.tried[place].agreement
        if agreement is None:
            self.progress("try mixes", 0, 0)
            fidelity = self.simulate(self.recipes[place])
            self._note(place, agreement=fidelity.agreement, divergence=cost(fidelity))
            agreement = fidelity.agreement
        return agreement

    def _latency(self, place: int) -> float:
        latency = self.tried[place].latency
        if latency is None:
            self._write(place)
            self.progress("measure latency", 0, 0)
            latency = self.workshop.latency()
            self._note(place, latency=latency)
        return latency

    def _write(self, place: int) -> bool:
        """Writes the files, unless they are there; whether they are small enough."""
        self._agreement(place)
        if self.written != place:
            megabytes = self.workshop.write(self.recipes[place]) / _MEGABYTE
            if self.written is None:  # what files hold besides weights is nearly the same in all
                more = megabytes - self.tried[place].megabytes
                self.tried = [replace(tried, megabytes=tried.megabytes + more) for tried in self.tried]
            self._note(place, megabytes=megabytes)
            self.written = place
        return self.budget.max_size is None or self.tried[place].megabytes <= self.budget.max_size

    def _verified(self, place: int) -> Fidelity | None:
        try:
            fidelity = self.workshop.verify(self.recipes[place])
        except ExportMismatchError as error:
            self.mismatch = f"{error} "
            return None
        self._note(place, verified=fidelity.agreement)
        return fidelity

    def _note(self, place: int, **figures: Any) -> None:
        self.tried[place] = replace(self.tried[place], **figures)


def _back_from(place: int) -> Iterator[int]:
    """Places before this one, in growing strides, for each is an export; the first of all at last."""
    stride = 1
    while place > 0:
        yield place
        place, stride = max(place - stride, 0), 2 * stride
    yield 0
