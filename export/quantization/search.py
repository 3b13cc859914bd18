"""The search for a mix of storages within a budget: in Keras where that is enough, with files where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kerasformer.arguments import check, number, optional
from kerasformer.errors import ExportError, ExportMismatchError
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.sensitivity import cost
from kerasformer.fidelity.figures import Fidelity
from kerasformer.progress import StageProgress

MIN_AGREEMENT = 0.98

_MEGABYTE = 1e6
_ADVICE = "Allow more size, latency or difference, or train the model with quantization in mind."


@dataclass(frozen=True)
class Auto:
    """A recipe that is found: how coarsely each part of the model may be stored, within limits.

    `quantize="auto"` stands for `Auto()`. Without `max_size` and `max_latency` the smallest mix that keeps
    `min_agreement` is taken; with them, the most faithful one within the limits.

    Attributes:
        min_agreement: Least share of answers whose most probable one is the Keras model's; 0.98 by default.
        max_size: Of the model files, in MB (1e6 bytes).
        max_latency: Milliseconds of a token, or of a text that is answered at once, on this machine.
    """

    min_agreement: float = MIN_AGREEMENT
    max_size: float | None = None
    max_latency: float | None = None

    def __post_init__(self) -> None:
        check("min_agreement", self.min_agreement, number(0, 1))
        for name in ("max_size", "max_latency"):
            check(name, getattr(self, name), optional(number(above=0)))

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
        refused: Why its verification failed, if it did.
    """

    parts: dict[str, int]
    megabytes: float
    divergence: float | None = None
    agreement: float | None = None
    latency: float | None = None
    verified: float | None = None
    chosen: bool = False
    refused: str = ""


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


class Search:
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
        budget: Auto,
        recipes: Sequence[Recipe],
        workshop: Workshop,
        progress: StageProgress,
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
            self._note(place, refused=str(error))
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
