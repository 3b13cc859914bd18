"""Checks that the answers of a quantized bundle, in any runtime, are consistent with its Keras model in float32.

Kernels round numbers differently, so that the order of two answers with nearly equal scores may change. Answers are
therefore judged by the Keras model: by the *margin* between the score of its best answer and that of the received one.
It must not exceed the effect of quantization on two scores, which was measured during export and is in the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.generation.history import History
from kerasformer.generation.rules import apply_rules, rules_of
from kerasformer.models.keras_engine import KerasStep


@dataclass(frozen=True)
class Noise:
    """Change of the difference of two logits that quantization explains.

    Attributes:
        largest: Twice the maximum difference of a logit from Keras, measured during export: one logit may be larger
            and the other smaller.
        mean: Mean difference of a logit, the limit of the mean margin; answers equal to those of Keras have margin 0.
    """

    largest: float
    mean: float

    @classmethod
    def of(cls, folder: Path) -> Noise:
        """Returns the noise of a bundle."""
        fidelity = bundle.read(folder).fidelity
        return cls(2 * fidelity["max_error"] * fidelity["scale"], fidelity["mean_error"] * fidelity["scale"])

    def check(self, margins: np.ndarray, penalty: float = 1.0) -> None:
        """Fails on answers that this noise does not explain.

        Args:
            margins: Margins of answers, 0 if they equal those of Keras.
            penalty: Factor by which a rule multiplies logits and their noise.
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
    """Fails if a runtime selected a token that the bundle's noise does not explain, given the preceding tokens.

    Args:
        model: Keras model in float32.
        folder: Folder of its bundle.
        prompts: Ids of each prompt, or of each input of an encoder.
        written: New ids of each row, without padding; the end token may be missing.
        count: Requested number of tokens; a shorter row has ended.
        settings: Settings of greedy generation.
    """
    ends = model.info().eos_token_id
    rows = [[*row, ends[0]] if len(row) < count and not {*row} & {*ends} else [*row] for row in written]
    assert len(rows) == len(prompts) and max(map(len, rows)) <= count
    config = model.generation_config.replace(**{"num_beams": 1, **settings})
    all_margins = margins(model, prompts, rows, config)
    Noise.of(folder).check(np.concatenate(all_margins), max(1.0, config.repetition_penalty or 1.0))


def margins(
    model: Any, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[int]], config: Any
) -> list[np.ndarray]:
    """Returns the margin of each token of each row, infinite for one that a rule forbids."""
    if len(rows) > 1 and getattr(model.backbone, "batch_dependent", False):
        return [margins(model, [prompt], [row], config)[0] for prompt, row in zip(prompts, rows, strict=True)]
    engine = KerasStep(model, jit_compile=False)
    width, length = (max(map(len, texts)) for texts in (prompts, rows))
    ids, mask = np.zeros((2, len(rows), width), "int32")
    for index, prompt in enumerate(prompts):
        columns = slice(0, len(prompt)) if model.is_encoder_decoder else slice(width - len(prompt), width)
        ids[index, columns], mask[index, columns] = prompt, 1
    tokens = np.zeros((len(rows), length), "int32")
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
    started = np.full((len(rows), 1), model.info().start_token_id, "int32") if model.is_encoder_decoder else ids
    starts = np.zeros(len(rows), int) if model.is_encoder_decoder else width - mask.sum(axis=1)
    history = History(started, starts, started.shape[1], tuple(map(np.array, prompts)), np.arange(len(rows)))
    state, inputs, columns_of_margins = engine.start(ids, mask), started[:, -1:], []
    for position in range(length):
        logits, state = engine.step(inputs, state)
        scores = apply_rules(rules_of(config), history, logits[:, -1])
        columns_of_margins.append(scores.max(axis=1) - scores[np.arange(len(rows)), tokens[:, position]])
        inputs = tokens[:, position : position + 1]
        history.append(tokens[:, position])
    return [np.stack(columns_of_margins, axis=1)[index, : len(row)] for index, row in enumerate(rows)]


def check_classes(folder: Path, expected: Any, received: Any, allowed: float | None = None) -> None:
    """Fails if class probabilities or the best class differ from Keras by more than the bundle's noise explains.

    Args:
        folder: Folder of the bundle.
        expected: Probabilities of Keras, `(N, C)`, of classes or tokens.
        received: Probabilities of a runtime, `(N, C)`, NaN if it does not report a value.
        allowed: Maximum difference of the logarithms; by default that of two logits.
    """
    noise = Noise.of(folder)
    theirs, ours = (np.log(np.maximum(np.asarray(rows, float), 1e-30)) for rows in (expected, received))
    best = np.nanargmax(ours, axis=-1)
    noise.check(theirs.max(axis=-1) - np.take_along_axis(theirs, best[..., None], axis=-1)[..., 0])
    assert np.nanmax(np.abs(ours - theirs)) <= (noise.largest if allowed is None else allowed)


def check_arrays(folder: Path, expected: Mapping[str, Any], received: Mapping[str, Any]) -> None:
    """Fails if numbers differ from Keras by more than the recipe's tolerance, relative to the largest one."""
    tolerance, *_ = bundle.read(folder).promise
    for name, values in expected.items():
        reference = np.asarray(values)
        assert np.abs(np.asarray(received[name]) - reference).max() <= max(tolerance, 1e-5) * np.abs(reference).max(), (
            name
        )


def cosines(some: Any, others: Any) -> np.ndarray:
    """Returns the cosines of corresponding rows."""
    one, other = np.array(some), np.array(others)
    return np.asarray((one * other).sum(axis=1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)))


def check_same(received: Any, expected: Any) -> None:
    """Checks that results of a pipeline are equal, with a tolerance for numbers, which depend on the processor."""
    if isinstance(expected, dict):
        assert list(received) == list(expected)
        for key in expected:
            check_same(received[key], expected[key])
    elif isinstance(expected, list):
        assert len(received) == len(expected)
        for pair in zip(received, expected, strict=True):
            check_same(*pair)
    elif isinstance(expected, float):
        assert received == pytest.approx(expected, abs=1e-5)
    else:
        assert received == expected
