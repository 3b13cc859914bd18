"""Verification of a bundle in its runtime with the recorded answers of its Keras model, without Keras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, cast

import numpy as np

from kerasformer.bundle import Fidelity, Limits, Manifest, Role, Rounding, figure_line
from kerasformer.bundle.interface import GENERATE
from kerasformer.engines.fidelity.comparison import ROWS, States, compare
from kerasformer.engines.fidelity.references import Arrays
from kerasformer.engines.protocols import Forward, Step, can_rewind

_CACHES = 512 * 1024**2
"""Maximum size in bytes of the caches of all texts that are generated together."""
_STEP_TEXTS, _STEP_TOKENS = 8, 16
"""Size of the check of a single signature and of the first look: enough to detect a wrong one, and quick."""


@dataclass(frozen=True)
class Verification:
    """Result of a verification.

    Attributes:
        fidelity: Figures of the bundle as its engine runs it.
        steps: Figures of each step signature by name, since the engine selects signatures by the length and number of
            texts and may not use all of them; also of a signature that generates within the graph.
    """

    fidelity: Fidelity
    steps: dict[str, Fidelity] = field(default_factory=dict)

    def failed(self, limits: Limits) -> dict[str, Fidelity]:
        """Returns the figures that exceed the limits of the recipe, by signature; `""` is the bundle as a whole."""
        whole = {} if self.fidelity.within(limits) else {"": self.fidelity}
        return whole | {name: step for name, step in self.steps.items() if not step.within(limits.of_sample())}

    def verdict(self, limits: Limits) -> str:
        """Returns in one line whether the bundle is within the limits, with the limits and what exceeds them."""
        figures, expected = self.fidelity, str(limits)
        if failed := self.failed(limits):
            received = (f"{name or 'the bundle'}: {figure_line(step.to_dict())}" for name, step in failed.items())
            return f"NOT faithful. Expected by the recipe: {expected}. Received: {'. '.join(received)}"
        decides = limits.min_cosine is None and limits.max_divergence is None
        if decides and figures.agreement < limits.min_agreement:
            expected += f" except for near ties ({figures.near_ties} of {figures.answers} answers)"
        several = f"each of the {len(self.steps)} step signatures"
        signatures = several if len(self.steps) > 1 else f"the signature {''.join(self.steps)}"
        return f"faithful{f', also with {signatures}' if self.steps else ''}: {expected}"


def verify(
    engine: Forward | Step, manifest: Manifest, references: Arrays, rounding: Rounding | None = None
) -> Verification:
    """Compares a bundle with the recorded answers of its Keras model.

    Args:
        engine: Engine of the bundle.
        manifest: Manifest of the bundle.
        references: Reference answers of the bundle.
        rounding: Effect of rounding alone, by which near ties are identified; by default, as recorded in the manifest.
    Raises:
        BundleError: the references do not match the bundle.
    """
    rows, sample, steps = _rows(manifest), sample_of(references), list(manifest.of_role(Role.DECODE, Role.VERIFY))
    rounding = rounding or Rounding.of(manifest.fidelity)
    verification = Verification(compare(engine, references, rows, rounding=rounding))
    # Caches of all texts take memory, and are rewound before the next signature reads them.
    reusable = rows >= _STEP_TEXTS and can_rewind(engine)
    read: States | None = {} if reusable else None
    for name in steps if len(steps) > 1 else ():
        limited = cast(Any, engine).limited_to({*manifest.signatures} - {*steps} | {name})
        count = max(limited.step_lengths)
        verification.steps[name] = compare(limited, sample, rows, free=False, count=count, rounding=rounding, read=read)
    if GENERATE in manifest.signatures:
        verification.steps[GENERATE] = _generated_in_graph(engine, manifest, references)
    return verification


def first_look(engine: Forward | Step, manifest: Manifest, references: Arrays) -> Fidelity:
    """Compares a bundle that generates with a small part of the recorded answers, which takes seconds.

    The figures are to be compared with `Limits.of_sample`.
    """
    return compare(engine, sample_of(references), _rows(manifest), free=False)


def _rows(manifest: Manifest) -> int:
    """Returns the number of texts that are generated together."""
    return max(1, min(ROWS, _CACHES // max(manifest.cache_bytes, 1)))


def _generated_in_graph(engine: Any, manifest: Manifest, references: Arrays) -> Fidelity:
    """Compares the tokens of a signature that generates within the graph with the recorded ones up to the end token."""
    tokens, ends = references["tokens"], manifest.info.eos_token_id
    ids, mask = references["input.input_ids"], references["input.attention_mask"]
    rows, answers = 1 if "alone" in references else len(tokens), []
    for part in (slice(start, start + rows) for start in range(0, len(tokens), rows)):
        answers += engine.generate(ids[part], mask[part], tokens.shape[1])
    same = [
        token == expected
        for row, generated in zip(tokens.tolist(), answers, strict=True)
        for token, expected in zip_longest(generated, _until(row, ends))
    ]
    share = float(np.mean(same))
    return Fidelity(0.0, 0.0, share, len(same), generated=share)


def _until(row: list[int], ends: tuple[int, ...]) -> list[int]:
    """Returns the tokens up to and including the first end token."""
    stops = [position for position, token in enumerate(row) if token in ends]
    return row[: stops[0] + 1] if stops else row


def sample_of(references: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a part of the references of a model that generates: the first tokens of the first texts."""
    alone = {key: array for key, array in references.items() if key == "alone"}
    return alone | {
        key: array[:_STEP_TEXTS] if key.startswith(("input.", "made_up")) else array[:_STEP_TEXTS, :_STEP_TOKENS]
        for key, array in references.items()
        if key.startswith(("input.", "made_up")) or (array.ndim > 1 and key.startswith(("output.", "tokens", "asked")))
    }
