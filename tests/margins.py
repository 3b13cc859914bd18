"""Whether a quantized bundle answers, in whatever runtime, as its Keras model does in float32.

Each kernel rounds numbers of few bits in its own way, and two answers to which the model itself gives nearly the same
score may change places. So an answer is judged by the Keras model: by its *margin*, how far the score of the model's
own best answer is ahead of that of the answer given. It may be no larger than what the format does to two scores, which
the export measured and wrote into the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import bundle
from kerasformer.decoding.history import History
from kerasformer.decoding.rules import apply_rules, rules_of
from kerasformer.models.keras_engine import KerasStep


@dataclass(frozen=True)
class Noise:
    """By how much a bundle may change which of two logits is ahead.

    Attributes:
        largest: Twice the largest difference of a logit from Keras that the export found: one up, and one down.
        mean: The mean difference, for the mean margin: most answers are those of Keras, with a margin of 0.
    """

    largest: float
    mean: float

    @classmethod
    def of(cls, folder: Path) -> Noise:
        """Of a bundle."""
        found = bundle.read(folder).fidelity
        return cls(2 * found["max_error"] * found["scale"], found["mean_error"] * found["scale"])

    def check(self, margins: np.ndarray, penalty: float = 1.0) -> None:
        """Fails on answers that this noise does not explain.

        Args:
            margins: Of answers, 0 where they are those of Keras.
            penalty: By which a rule multiplies logits, and their noise.
        """
        assert np.max(margins) <= penalty * self.largest, (np.sort(np.ravel(margins))[-5:], self)
        assert np.mean(margins) <= penalty * self.mean, (float(np.mean(margins)), self)


def check_tokens(
    model: Any,
    folder: Path,
    prompts: Sequence[Sequence[int]],
    written: Sequence[Sequence[int]],
    count: int,
    settings: Mapping[str, Any],
) -> None:
    """Fails if a runtime chose a token that the bundle's noise does not explain, each after all that it had written.

    Args:
        model: In float32.
        folder: Of its bundle.
        prompts: Ids of each prompt, or of the text that an encoder reads.
        written: New ids of each, without padding; the end token may be left out.
        count: Tokens that were asked for: a text of fewer has ended.
        settings: Of generation, greedy.
    """
    ends = model.info().eos_token_id
    rows = [[*row, ends[0]] if len(row) < count and not {*row} & {*ends} else [*row] for row in written]
    assert len(rows) == len(prompts) and max(map(len, rows)) <= count
    config = model.generation_config.replace(**{"num_beams": 1, **settings})
    found = margins(model, prompts, rows, config)
    Noise.of(folder).check(np.concatenate(found), max(1.0, config.repetition_penalty or 1.0))


def margins(
    model: Any, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[int]], config: Any
) -> list[np.ndarray]:
    """The margin of each token of each row, infinite for one that a rule forbids."""
    engine = KerasStep(model, jit_compile=False)
    width, length = (max(map(len, given)) for given in (prompts, rows))
    ids, mask = np.zeros((2, len(rows), width), "int32")
    for index, prompt in enumerate(prompts):
        where = slice(0, len(prompt)) if model.is_encoder_decoder else slice(width - len(prompt), width)
        ids[index, where], mask[index, where] = prompt, 1
    tokens = np.zeros((len(rows), length), "int32")
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
    begun = np.full((len(rows), 1), model.info().start_token_id, "int32") if model.is_encoder_decoder else ids
    starts = np.zeros(len(rows), int) if model.is_encoder_decoder else width - mask.sum(axis=1)
    history = History(begun, starts, begun.shape[1], tuple(map(np.array, prompts)), np.arange(len(rows)))
    state, given, found = engine.start(ids, mask), begun[:, -1:], []
    for place in range(length):
        logits, state = engine.step(given, state)
        scores = apply_rules(rules_of(config), history, logits[:, -1])
        found.append(scores.max(axis=1) - scores[np.arange(len(rows)), tokens[:, place]])
        given = tokens[:, place : place + 1]
        history = history.append(tokens[:, place])
    return [np.stack(found, axis=1)[index, : len(row)] for index, row in enumerate(rows)]


def check_classes(folder: Path, expected: Any, received: Any, allowed: float | None = None) -> None:
    """Fails if probabilities of classes are not those of Keras, or another class is best, beyond the bundle's noise.

    Args:
        folder: Of the bundle.
        expected: `(N, C)` probabilities by Keras; a classifier's, or of tokens.
        received: `(N, C)` those of a runtime, NaN where it does not tell.
        allowed: Largest difference of the logarithms; that of two logits by default.
    """
    noise = Noise.of(folder)
    theirs, ours = (np.log(np.maximum(np.asarray(rows, float), 1e-30)) for rows in (expected, received))
    best = np.nanargmax(ours, axis=-1)
    noise.check(theirs.max(axis=-1) - np.take_along_axis(theirs, best[..., None], axis=-1)[..., 0])
    assert np.nanmax(np.abs(ours - theirs)) <= (noise.largest if allowed is None else allowed)


def check_arrays(folder: Path, expected: Mapping[str, Any], received: Mapping[str, Any]) -> None:
    """Fails if numbers are further from those of Keras than the recipe declares, as a share of the largest one."""
    tolerance, _ = bundle.read(folder).promise
    for name, values in expected.items():
        wanted = np.asarray(values)
        assert np.abs(np.asarray(received[name]) - wanted).max() <= max(tolerance, 1e-5) * np.abs(wanted).max(), name
