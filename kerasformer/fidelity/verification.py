"""A bundle in its runtime beside the recorded answers of its Keras model; no Keras is needed, so a device can do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from kerasformer.bundle import Manifest, Role
from kerasformer.bundle.interface import GENERATE
from kerasformer.decoding import Forward, Step
from kerasformer.fidelity.comparison import ROWS, compare
from kerasformer.fidelity.figures import Fidelity
from kerasformer.fidelity.rounding import Rounding

_CACHES = 512 * 1024**2
"""Bytes that the caches of the texts that are generated at once may take."""
_STEP_TEXTS, _STEP_TOKENS = 8, 16
"""Of a check of one signature: enough to see a wrong one, few enough to check them all."""


@dataclass(frozen=True)
class Verification:
    """What a comparison found.

    Attributes:
        fidelity: Of the bundle as it runs by itself.
        steps: Of each signature for a step, by its name: which one is run depends on the length and number of the
            texts, and those of a check are short. Also of a signature that generates by itself, which the engine does
            not use.
    """

    fidelity: Fidelity
    steps: dict[str, Fidelity] = field(default_factory=dict)

    def failed(self, tolerance: float, min_agreement: float) -> dict[str, Fidelity]:
        """Those that are not within a recipe's promise, by the name of the signature; `""`: the bundle by itself."""
        every = {"": self.fidelity, **self.steps}
        return {name: figures for name, figures in every.items() if not figures.within(tolerance, min_agreement)}


def verify(
    engine: Forward | Step,
    manifest: Manifest,
    references: dict[str, np.ndarray],
    rounding: Rounding | None = None,
) -> Verification:
    """Compares a bundle with what its Keras model answered.

    Args:
        engine: Of the bundle; its file is not loaded again.
        manifest: Of the bundle.
        references: Of the bundle.
        rounding: What rounding does by itself, to tell near ties apart; as the manifest records it, by default.
    Raises:
        BundleError: the references are not those of such a bundle.
    """
    rows = max(1, min(ROWS, _CACHES // max(manifest.cache_bytes, 1)))
    rounding = rounding or Rounding.of(manifest.fidelity)
    fidelity = compare(engine, references, rows, rounding=rounding)
    few, of_steps = references_of_steps(references), None if rounding is None else rounding.of_steps()
    steps = {
        name: compare(limited, few, rows, free=False, count=max(limited.step_lengths), rounding=of_steps)
        for name, limited in _step_by_step(engine, manifest)
    }
    return Verification(fidelity, steps | _written_alone(engine, manifest, references))


def _step_by_step(engine: Forward | Step, manifest: Manifest) -> Iterator[tuple[str, Step]]:
    """Engines that take one kind of step alone, where a bundle has several."""
    steps = list(manifest.of_role(Role.DECODE, Role.VERIFY))
    if len(steps) < 2:
        return
    from kerasformer.runtime.litert import LiteRTStep

    if isinstance(engine, LiteRTStep):
        others = set(manifest.signatures) - set(steps)
        for name in steps:
            yield name, engine.limited_to({*others, name})


def _written_alone(
    engine: Forward | Step, manifest: Manifest, references: dict[str, np.ndarray]
) -> dict[str, Fidelity]:
    """What a graph that generates by itself writes, beside the recorded tokens up to the first end token."""
    if GENERATE not in manifest.signatures:
        return {}
    from kerasformer.runtime.saved_model import SavedModelStep

    if not isinstance(engine, SavedModelStep):
        return {}
    tokens, ends = references["tokens"], manifest.info.eos_token_id
    prompts = references["input.input_ids"], references["input.attention_mask"]
    same = [
        own == expected
        for row, written in zip(tokens.tolist(), engine.generate(*prompts, tokens.shape[1]), strict=True)
        for own, expected in zip_longest(written, _until(row, ends))
    ]
    share = float(np.mean(same))
    return {"generate": Fidelity(0.0, 0.0, share, len(same), generated=share)}


def _until(row: list[int], ends: tuple[int, ...]) -> list[int]:
    """The tokens up to the first end, which is part of them."""
    stops = [place for place, token in enumerate(row) if token in ends]
    return row[: stops[0] + 1] if stops else row


def references_of_steps(references: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What each kind of step is compared with: the first tokens of the first texts."""
    return {
        key: array[:_STEP_TEXTS] if key.startswith(("input.", "made_up")) else array[:_STEP_TEXTS, :_STEP_TOKENS]
        for key, array in references.items()
        if key.startswith(("input.", "made_up")) or (array.ndim > 1 and key.startswith(("output.", "tokens", "asked")))
    }
