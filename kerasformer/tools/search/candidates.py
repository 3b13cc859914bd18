"""Search for a mix of storage types within limits: simulated in Keras first, then exported and run.

The fidelity of a mix is measured in Keras; its size, latency and fidelity are then those of a bundle, which an export
writes and verifies as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack, cast

from kerasformer import bundle
from kerasformer.basics.arguments import Arguments
from kerasformer.basics.command_options import SearchLimits
from kerasformer.basics.options import checked, declared, documented
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.recipes import BITS
from kerasformer.engines import open_engine
from kerasformer.errors import ExportError, ExportMismatchError
from kerasformer.export import (
    RECIPES,
    Bundle,
    ExportOptions,
    Recipe,
    Simulation,
    calibrate,
    export,
    find_format,
    matrices,
    num_bytes,
    progress_reporter,
    read_texts,
    shortest,
    single_pass_references,
    uses_calibration,
)
from kerasformer.layers import merged_lora
from kerasformer.models import PretrainedModel, load
from kerasformer.tools.search.latency import latency
from kerasformer.tools.search.mixes import NAME, Mix, frontier, groups, recipe_of, sensitivities

_ADVICE = "Raise max_size or max_latency, lower min_agreement, or use quantization-aware training"
_MEGABYTE = 1e6
_TRIAL_ANSWERS = 16  # answers for each text when groups are tried
_TRIAL_TOKENS = 400  # tokens in total when groups are tried


class SearchOptions(SearchLimits, ExportOptions, total=False):
    """Options of a search: its limits, and options of the exports, which those of the bundle should equal."""


@dataclass(frozen=True)
class Candidate:
    """A mix of storage types, and what was measured of it.

    Attributes:
        recipe: The mix as a recipe.
        parts: Number of groups of matrices with each storage type, such as `{"int8": 3, "int4": 23}`.
        megabytes: Size of its model files in MB (1e6 bytes), computed or, if it was exported, measured.
        agreement: Share of answers that stay the same, simulated in Keras.
        verified: Agreement in the runtime.
        latency: Milliseconds per token or text in the runtime, if it is limited.
        refused: Why its verification failed; empty if it did not.
        chosen: Whether it is the result of the search.
    """

    recipe: Recipe
    parts: dict[str, int]
    megabytes: float
    agreement: float | None = None
    verified: float | None = None
    latency: float | None = None
    refused: str = ""
    chosen: bool = False


@documented(SearchOptions, SearchLimits, ExportOptions)
def search(model: PretrainedModel | str | Path, format: str | None = None, **options: Unpack[SearchOptions]) -> Recipe:
    """Finds a storage type for each part of a model, within limits of size, latency and fidelity.

        recipe = kf.search(model, "litert", max_size=90)
        model.export("out", "litert", recipe)

    Without `max_size` and `max_latency`, the result is the smallest mix of storage types that satisfies
    `min_agreement`; with either of them, the most faithful mix within the limits.

    Args:
        model: As for `kerasformer.export.export`.
        format: Format of the bundle, likewise.
        options: See `SearchLimits` and `ExportOptions`.

    Returns:
        The recipe, for an export with the same options. Its files were verified.

    Raises:
        ExportError: No mix is within the limits; the message has the best possible figures. Or an export fails.
        InputError: An option is unknown or has no effect.
    """
    return next(candidate.recipe for candidate in candidates(model, format, **options) if candidate.chosen)


def candidates(
    model: PretrainedModel | str | Path, format: str | None = None, **options: Unpack[SearchOptions]
) -> list[Candidate]:
    """Searches like `search`; returns every mix that was measured, the largest first, of which one is chosen."""
    settings: Arguments = dict(checked(SearchOptions, options, "a search"))
    limits = cast(SearchLimits, {name: settings.pop(name) for name in declared(SearchLimits) if name in settings})
    with progress_reporter(settings.get("progress")) as report, TemporaryDirectory() as folder:
        if not isinstance(model, PretrainedModel):
            model = load(model, settings.get("task"))
        trials = _Trials(model, format, settings, Path(folder) / "trial", "max_latency" in limits, report)
        with merged_lora(model):
            untried, simulate = _untried(model, trials, settings, limits["min_agreement"], report)
            return Search(limits, untried, simulate, trials.measured).run()


class _Trials:
    """Exports of a model, each of which replaces the one before."""

    def __init__(
        self,
        model: PretrainedModel,
        format: str | None,
        settings: Arguments,
        folder: Path,
        timed: bool,
        report: StageProgress,
    ) -> None:
        self.model, self.format, self.settings, self.folder = model, format, settings, folder
        self.timed, self.report = timed, report

    def exported(self, recipe: Recipe) -> Bundle:
        """Exports the model with a recipe."""
        settings = self.settings | {"overwrite": True, "fallback": None, "progress": self._report}
        if not uses_calibration(recipe, settings.get("cache_dtype")):
            settings["calibration"] = None
        return export(self.model, self.folder, self.format, recipe, **settings)

    def measured(self, candidate: Candidate) -> Candidate:
        """Exports a candidate and returns it with the figures of its bundle, or why that was refused."""
        try:
            written = self.exported(candidate.recipe)
        except ExportMismatchError as error:
            return replace(candidate, refused=str(error))
        time = None
        if self.timed:
            self.report("measure latency", 0, 0)
            time = latency(open_engine(written.path), bundle.read_references(written.path))
        size, agreement = written.model_bytes / _MEGABYTE, written.fidelity["agreement"]
        return replace(candidate, megabytes=size, verified=agreement, latency=time)

    def _report(self, stage: str, done: int, total: int) -> None:
        self.report(f"try files: {stage}", 0, 0)


def _untried(
    model: PretrainedModel, trials: _Trials, settings: Arguments, min_agreement: float, report: StageProgress
) -> tuple[list[Candidate], Callable[[Recipe], float]]:
    """Returns the mixes, the largest first, and the function that simulates one and returns its agreement.

    The answers of Keras, and the size of a bundle besides its weights, are those of an export in float32.
    """
    exact = trials.exported(RECIPES["none"])
    file_format, answers = find_format(exact.manifest.format), bundle.read_references(exact.path)
    file_format.check({}, NAME)
    layout = file_format.layout(exact.manifest.profile, settings.get("opset"))
    calibration = None
    if not model.generates:
        calibration = calibrate(model, read_texts(settings.get("calibration")), partial(report, "calibrate"))
    matrices_of_model = matrices(model, calibration)
    members = groups(matrices_of_model)
    if not members:
        raise ExportError("No matrix of this model is large enough to be quantized. Export it without a recipe")
    simulation = Simulation(model, matrices_of_model, layout)
    few = shortest(single_pass_references(model, answers, _TRIAL_ANSWERS), _TRIAL_TOKENS)
    mixes = frontier(sensitivities(simulation, members, few, partial(report, "try each part")))
    recipes = [recipe_of(mix, members, min_agreement) for mix in mixes]
    sizes = [num_bytes(model, matrices_of_model, recipe, layout) for recipe in recipes]
    graphs = exact.model_bytes - sizes[0]
    untried = [
        Candidate(recipe, _counts(mix), (size + graphs) / _MEGABYTE)
        for mix, recipe, size in zip(mixes, recipes, sizes, strict=True)
    ]
    references = single_pass_references(model, answers)

    def simulate(recipe: Recipe) -> float:
        report("try mixes", 0, 0)
        return simulation.fidelity(recipe, references).agreement

    return untried, simulate


def _counts(mix: Mix) -> dict[str, int]:
    """Returns the number of groups with each storage type, the most bits first."""
    counts = Counter(mix.values())
    return {storage: counts[storage] for storage in BITS if counts[storage]}


class Search:
    """Search among mixes of decreasing size, agreement and, usually, latency.

    Args:
        limits: Limits of the search.
        candidates: The mixes, from the largest to the smallest.
        simulate: Returns the agreement of a mix in Keras.
        measure: Exports a mix and returns it with what was measured, or with why it was refused.
    """

    def __init__(
        self,
        limits: SearchLimits,
        candidates: Sequence[Candidate],
        simulate: Callable[[Recipe], float],
        measure: Callable[[Candidate], Candidate],
    ) -> None:
        self.candidates, self.simulate, self.measure = list(candidates), simulate, measure
        self.min_agreement = limits["min_agreement"]
        self.max_size, self.max_latency = limits.get("max_size"), limits.get("max_latency")

    def run(self) -> list[Candidate]:
        """Returns the mixes of which anything was measured; one of them is chosen.

        Raises:
            ExportError: No mix is within the limits.
        """
        index = last = self._smallest_faithful()
        if self.max_size is None and self.max_latency is None:
            stride = 1  # doubles, since each step costs an export
            while self._measured(index).refused and index:
                index, stride = max(index - stride, 0), 2 * stride
        else:  # more faithful mixes than the first exceed the limits
            index = self._first_small_enough(last)
            if self.max_latency is not None:
                index = self._first_fast_enough(index, last)
            while not (self._measured(index).refused or self._fits(index)):
                index = self._first_small_enough(last)
        chosen = self._measured(index)
        if chosen.refused:
            raise ExportError(f"No mix satisfies the limits, {self}, in the runtime. {chosen.refused}. {_ADVICE}")
        self.candidates[index] = replace(chosen, chosen=True)
        return [mix for mix in self.candidates if mix.agreement is not None]

    def __str__(self) -> str:
        limits = [f"agreement of at least {self.min_agreement:g}"]
        limits += [] if self.max_size is None else [f"at most {self.max_size:g} MB"]
        limits += [] if self.max_latency is None else [f"at most {self.max_latency:g} ms"]
        return ", ".join(limits)

    def _smallest_faithful(self) -> int:
        """Returns the index of the smallest mix that is faithful enough in Keras; the first mix, float32, always is."""
        low, high = 0, len(self.candidates)
        while high - low > 1:
            middle = high - 1 if low == 0 and high == len(self.candidates) else (low + high) // 2
            if self._agreement(middle) >= self.min_agreement:
                low = middle
            else:
                high = middle
        return low

    def _fits(self, index: int) -> bool:
        return self.max_size is None or self.candidates[index].megabytes <= self.max_size

    def _first_small_enough(self, last: int) -> int:
        """Returns the index of the first mix that is small enough."""
        fitting = [index for index in range(len(self.candidates)) if self._fits(index)]
        if fitting and fitting[0] <= last:
            return fitting[0]
        best = f"the smallest mix with that agreement takes {self.candidates[last].megabytes:.2f} MB"
        if fitting:
            best += f", and the best agreement within {self.max_size:g} MB is {self._agreement(fitting[0]):.4f}"
        else:
            best += f", and the smallest of all mixes takes {self.candidates[-1].megabytes:.2f} MB"
        raise ExportError(f"No mix satisfies the limits, {self}. The best possible: {best}. {_ADVICE}")

    def _first_fast_enough(self, first: int, last: int) -> int:
        """Returns the index of the most faithful mix in a range whose files run fast enough."""
        if self._fast(first):
            return first
        if not self._fast(last):
            best = min((self.candidates[index] for index in (first, last)), key=lambda mix: mix.latency or 0.0)
            raise ExportError(
                f"No mix satisfies the limits, {self}. The best possible: {best.latency:.3g} ms, with "
                f"{best.megabytes:.2f} MB. {_ADVICE}"
            )
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (first, middle) if self._fast(middle) else (middle, last)
        return last

    def _fast(self, index: int) -> bool:
        """Returns whether a mix runs fast enough; one that was refused counts, so that larger ones are tried."""
        latency = self._measured(index).latency
        return latency is None or self.max_latency is None or latency <= self.max_latency

    def _agreement(self, index: int) -> float:
        mix = self.candidates[index]
        agreement = self.simulate(mix.recipe) if mix.agreement is None else mix.agreement
        self.candidates[index] = replace(mix, agreement=agreement)
        return agreement

    def _measured(self, index: int) -> Candidate:
        """Returns a mix with the figures of its bundle."""
        self._agreement(index)
        mix = self.candidates[index]
        if mix.verified is None and not mix.refused:
            measured = self.measure(mix)
            # The size of everything besides weights is nearly the same for all mixes.
            change = measured.megabytes - mix.megabytes
            self.candidates = [
                replace(other, megabytes=other.megabytes + change) if other.verified is None else other
                for other in self.candidates
            ]
            self.candidates[index] = measured
        return self.candidates[index]
