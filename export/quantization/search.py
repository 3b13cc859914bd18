"""Search for a mix of storage types within a budget: simulated in Keras where possible, otherwise with real files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from kerasformer.basics.progress import StageProgress
from kerasformer.bundle import Fidelity
from kerasformer.bundle.recipes import Activations, Recipe
from kerasformer.errors import ExportError, ExportMismatchError
from kerasformer.export.quantization.sensitivity import cost

MIN_AGREEMENT = 0.98

_MEGABYTE = 1e6
_ADVICE = "Raise max_size or max_latency, lower min_agreement, or use quantization-aware training."


LIMITS = ("max_size", "max_latency", "min_agreement")
"""Names of the limits of a search, which are options of an export."""


@dataclass(frozen=True)
class Auto:
    """Limits for a search that chooses a storage type for each part of the model.

    Without `max_size` and `max_latency`, the search returns the smallest mix
    that satisfies `min_agreement`; with either of them, the most faithful mix within the limits.

    Attributes:
        min_agreement: Smallest permitted share of answers whose most probable choice is that of the Keras model; 0.98
            by default.
        max_size: Largest total size of the model files in MB (1e6 bytes).
        max_latency: Largest latency in milliseconds on this machine: per generated token, or per text for a model that
            does not generate.
    """

    activations: ClassVar[Activations] = "dynamic"
    scales_inputs: ClassVar[bool] = True
    compensates: ClassVar[bool] = False

    min_agreement: float = MIN_AGREEMENT
    max_size: float | None = None
    max_latency: float | None = None

    def __str__(self) -> str:
        limits = [f"agreement of at least {self.min_agreement:g}"]
        limits += [] if self.max_size is None else [f"at most {self.max_size:g} MB"]
        limits += [] if self.max_latency is None else [f"at most {self.max_latency:g} ms"]
        return ", ".join(limits)


@dataclass(frozen=True)
class Tried:
    """Measurements of a mix.

    Attributes:
        parts: Number of groups with each storage type, such as `{"int8": 3, "int4": 23}`.
        megabytes: Size of its model files, measured or computed.
        divergence: Divergence of its answers, simulated in Keras; see `sensitivity.cost`.
        agreement: Share of answers that stay the same, simulated in Keras.
        latency: Milliseconds per token or text in the runtime.
        verified: Agreement in the runtime.
        chosen: Whether the search returned this mix.
        refused: Why its verification failed; empty if it did not.
    """

    parts: dict[str, int]
    megabytes: float
    divergence: float | None = None
    agreement: float | None = None
    latency: float | None = None
    verified: float | None = None
    chosen: bool = False
    refused: str = ""


class FileBuilder(Protocol):
    """Writer of a mix's model files, which replace those of the previous mix."""

    def write(self, recipe: Recipe) -> int:
        """Writes the model files and returns their total size in bytes."""
        ...

    def latency(self) -> float:
        """Returns the milliseconds that a token, or a text, takes in the runtime with the current files."""
        ...

    def verify(self, recipe: Recipe) -> Fidelity:
        """Compares the current files with the Keras model.

        Raises:
            ExportMismatchError: They are less faithful than the recipe promises.
        """
        ...


class Search:
    """Search among mixes of decreasing size, agreement and, usually, latency.

    Args:
        budget: Limits of the search.
        recipes: The mixes, from the largest to the smallest.
        builder: Writes and runs model files.
        progress: Called with each stage.
        size: Returns the size of a mix's weights in bytes.
        simulate: Measures the fidelity of a mix in Keras.
        count: Returns the number of groups with each storage type.
    """

    def __init__(
        self,
        budget: Auto,
        recipes: Sequence[Recipe],
        builder: FileBuilder,
        progress: StageProgress,
        *,
        size: Callable[[Recipe], int],
        simulate: Callable[[Recipe], Fidelity],
        count: Callable[[Recipe], dict[str, int]],
    ) -> None:
        self.budget, self.recipes, self.builder, self.progress = budget, recipes, builder, progress
        self.simulate = simulate
        self.tried = [Tried(count(recipe), size(recipe) / _MEGABYTE) for recipe in recipes]
        self.current: int | None = None
        self.mismatch = ""

    def run(self) -> tuple[Recipe, Fidelity]:
        """Returns the chosen mix and the fidelity of its files, which are then the current ones.

        Raises:
            ExportError: No mix satisfies the budget.
        """
        faithful = self._most_compact()
        self._write(faithful)
        first = self._first_that_fits(faithful)
        limited = self.budget.max_size is not None or self.budget.max_latency is not None
        if self.budget.max_latency is not None:
            candidates: Iterable[int] = [self._first_fast_enough(first, faithful)]
        elif limited:
            candidates = range(first, faithful + 1)
        else:
            candidates = _back_from(faithful)
        for index in candidates:
            if not self._write(index):
                continue
            fidelity = self._verified(index)
            if fidelity is not None:
                self._record(index, chosen=True)
                return self.recipes[index], fidelity
            if limited:  # more faithful mixes exceed the limits
                break
        raise ExportError(f"No mix satisfies the budget, {self.budget}, in the runtime. {self.mismatch}{_ADVICE}")

    def measured(self) -> tuple[Tried, ...]:
        """Returns the mixes of which anything was measured."""
        return tuple(mix for mix in self.tried if mix.agreement is not None or mix.verified is not None)

    def _most_compact(self) -> int:
        """Returns the index of the smallest mix that is faithful enough in Keras; the first mix, float32, always is."""
        low, high = 0, len(self.recipes)
        while high - low > 1:
            middle = high - 1 if low == 0 and high == len(self.recipes) else (low + high) // 2
            if self._agreement(middle) >= self.budget.min_agreement:
                low = middle
            else:
                high = middle
        return low

    def _first_that_fits(self, faithful: int) -> int:
        """Returns the index of the first mix that is small enough."""
        limit = self.budget.max_size
        if limit is None:
            return 0
        fitting = [index for index, tried in enumerate(self.tried) if tried.megabytes <= limit]
        if fitting and fitting[0] <= faithful:
            return fitting[0]
        best = f"the smallest mix with that agreement takes {self.tried[faithful].megabytes:.2f} MB"
        if fitting:
            best += f", and the best agreement within {limit:g} MB is {self._agreement(fitting[0]):.4f}"
        else:
            best += f", and the smallest of all mixes takes {self.tried[-1].megabytes:.2f} MB"
        raise ExportError(f"No mix satisfies the budget, {self.budget}. The best possible: {best}. {_ADVICE}")

    def _first_fast_enough(self, first: int, last: int) -> int:
        """Returns the index of the most faithful mix in a range whose files run fast enough."""
        limit = self.budget.max_latency or 0.0
        if self._latency(first) <= limit:
            return first
        if self._latency(last) > limit:
            best = min((self.tried[index] for index in (first, last)), key=lambda tried: tried.latency or 0.0)
            raise ExportError(
                f"No mix satisfies the budget, {self.budget}. The best possible: {best.latency:.3g} ms, with "
                f"{best.megabytes:.2f} MB. {_ADVICE}"
            )
        while last - first > 1:
            middle = (first + last) // 2
            if self._latency(middle) <= limit:
                last = middle
            else:
                first = middle
        return last

    def _agreement(self, index: int) -> float:
        agreement = self.tried[index].agreement
        if agreement is None:
            self.progress("try mixes", 0, 0)
            fidelity = self.simulate(self.recipes[index])
            self._record(index, agreement=fidelity.agreement, divergence=cost(fidelity))
            agreement = fidelity.agreement
        return agreement

    def _latency(self, index: int) -> float:
        latency = self.tried[index].latency
        if latency is None:
            self._write(index)
            self.progress("measure latency", 0, 0)
            latency = self.builder.latency()
            self._record(index, latency=latency)
        return latency

    def _write(self, index: int) -> bool:
        """Writes the files of a mix unless they are the current ones; returns whether they are small enough."""
        self._agreement(index)
        if self.current != index:
            megabytes = self.builder.write(self.recipes[index]) / _MEGABYTE
            if self.current is None:  # the size of everything besides weights is nearly the same for all mixes
                overhead = megabytes - self.tried[index].megabytes
                self.tried = [replace(tried, megabytes=tried.megabytes + overhead) for tried in self.tried]
            self._record(index, megabytes=megabytes)
            self.current = index
        return self.budget.max_size is None or self.tried[index].megabytes <= self.budget.max_size

    def _verified(self, index: int) -> Fidelity | None:
        try:
            fidelity = self.builder.verify(self.recipes[index])
        except ExportMismatchError as error:
            self.mismatch = f"{error} "
            self._record(index, refused=str(error))
            return None
        self._record(index, verified=fidelity.agreement)
        return fidelity

    def _record(self, index: int, **figures: Any) -> None:
        self.tried[index] = replace(self.tried[index], **figures)


def _back_from(index: int) -> Iterator[int]:
    """Yields indices back to 0 with doubling strides, since each of them costs an export."""
    stride = 1
    while index > 0:
        yield index
        index, stride = max(index - stride, 0), 2 * stride
    yield 0
