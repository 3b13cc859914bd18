"""Comparison of an engine with the recorded answers of the Keras model.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or processed tokens, `V` scores of an answer, `K`
recorded scores of an answer: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kerasformer.bundle import PROBABILITIES, SENTENCE_EMBEDDING
from kerasformer.decoding import Forward, Step
from kerasformer.decoding.arrays import token_array
from kerasformer.errors import BundleError, InputError, KerasformerError
from kerasformer.fidelity.answers import (
    ENDS_OF_SPANS,
    KEYS,
    Arrays,
    asked_positions,
    is_hidden_state,
    mean_vector,
    received_entries,
    recorded_entries,
    single_texts,
)
from kerasformer.fidelity.figures import Fidelity
from kerasformer.fidelity.perplexity import losses
from kerasformer.fidelity.rounding import Rounding
from kerasformer.fidelity.scores import Scores, compare_answers, compare_spans

ROWS = 8
"""Number of texts generated together."""


_NOISES, _LARGEST_TIE = 3, 0.1
"""An answer is a near tie if its margin in Keras is at most `_NOISES` times the noise of rounding and at most
`_LARGEST_TIE` logits, so that the best answer is at most about 10 % more probable than the next one."""


def compare(
    engine: Forward | Step,
    references: Arrays,
    rows: int = ROWS,
    free: bool = True,
    count: int = 1,
    rounding: Rounding | None = None,
) -> Fidelity:
    """Compares an engine with recorded answers.

    Args:
        engine: Engine of the bundle.
        references: Arrays from `record_forward`, or from `record_step` and optionally `record_reading`.
        rows: Number of texts generated together; each of them has a cache in memory.
        free: Whether to also generate freely, and not only to follow the recorded tokens.
        count: Number of tokens per step if nothing is generated freely; one of the engine's `step_lengths`.
        rounding: Effect of rounding alone, by which near ties are identified.
    Raises:
        BundleError: the references do not match the engine.
    """
    try:
        if isinstance(engine, Step):
            return _compare_step(engine, references, rows, 0 if free else count, rounding)
        return _fidelity(_compare_forward(engine, references), rounding)
    except KerasformerError:
        raise
    except (KeyError, IndexError, ValueError) as error:
        raise BundleError(
            f"The references do not match this model: {error!r}. Expected: the references recorded with it. "
            f"Received: {', '.join(references) or 'none'}. Export the model again"
        ) from error


def record_rounding(engine: Forward, references: Arrays) -> Rounding:
    """Measures the effect of rounding on a model's answers.

    Args:
        engine: The Keras model with rounded weight matrices and rounded inputs of matrix products.
        references: Arrays from `record_forward` for the Keras model without rounding.
    """
    scores = _compare_forward(engine, references)
    changes, figures = np.concatenate([score.changes for score in scores]), _fidelity(scores, None)
    noise = float(np.sqrt(np.mean(np.square(changes)))) if changes.size else 0.0
    return Rounding(noise, figures.mean_error, figures.divergence)


def _compare_forward(engine: Forward, references: Arrays) -> list[Scores]:
    inputs = {key.removeprefix("input."): array for key, array in references.items() if key.startswith("input.")}
    names = sorted({key.split(".")[1] for key in references if key.startswith("output.")})
    answers: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in names}
    for row, arrays in enumerate(single_texts(inputs)):
        outputs = engine.run(arrays)
        for name in names:
            scores = asked_positions(name, outputs[name][0], references.get("asked"), row)
            answer = received_entries(scores, recorded_entries(references, name, row))
            answers[name].append({**answer, "mean": mean_vector(outputs[name][0])} if is_hidden_state(name) else answer)
    made_up = references.get("made_up")
    distribution = references.get("distribution", np.array("softmax")).item()
    compared: list[Scores] = []
    pairs: dict[str, list[tuple[Arrays, Arrays]]] = {}
    for name in names:
        recorded = [recorded_entries(references, name, row) for row in range(len(answers[name]))]
        if name == PROBABILITIES:
            recorded, answers[name] = (
                [_as_logits(row, distribution) for row in rows] for rows in (recorded, answers[name])
            )
        compared.append(compare_answers(recorded, answers[name], comparison_kind(name, distribution), made_up))
        pairs[name] = list(zip(recorded, answers[name], strict=True))
    if "asked" in references and set(names) >= set(ENDS_OF_SPANS):
        same, margins, changes = compare_spans([pairs[name] for name in ENDS_OF_SPANS], made_up)
        compared[0] = replace(compared[0], same=same, margins=margins, changes=changes)
        compared[1:] = [replace(each, same=same[:0], margins=margins[:0], changes=changes[:0]) for each in compared[1:]]
    return compared


def _as_logits(row: Arrays, distribution: str) -> dict[str, np.ndarray]:
    """Converts probabilities to logits, up to a constant.

    Probabilities are clipped to 0.001 and 0.999, since the logarithm of a float32 near 0 or 1 is inaccurate.
    """
    probabilities = np.clip(row["values"].astype("float64"), 1e-3, 1 - 1e-3)
    values = np.log(probabilities)
    if distribution == "sigmoid":
        values -= np.log1p(-probabilities)
    return {**row, "values": values, "logsumexp": np.zeros(())}


def comparison_kind(name: str, distribution: str) -> str:
    """Returns the kind of comparison for an output, a key of `scores._COMPARED`."""
    if name == SENTENCE_EMBEDDING:
        return "embedding"
    return "hidden" if is_hidden_state(name) else distribution


def _compare_step(
    engine: Step, references: Arrays, rows: int, count: int, rounding: Rounding | None = None
) -> Fidelity:
    """Compares a model that generates; see `compare`. A `count` of 0 means free generation."""
    tokens = references["tokens"]
    rows = 1 if "alone" in references else rows
    received: list[dict[str, np.ndarray]] = []
    free: list[np.ndarray] = []
    for start in range(0, len(tokens), rows):
        part = slice(start, start + rows)
        batch = {key: array[part] for key, array in references.items() if array.ndim}
        if count:
            answers = _follow_in_steps(engine, batch, count)
        else:
            answers, generated_tokens = _follow(engine, batch)
            free += list(generated_tokens)
        received += [{key: array[row] for key, array in answers.items()} for row in range(len(batch["tokens"]))]
    asked = references.get("asked", np.ones_like(tokens)) > 0
    recorded = [recorded_entries(references, "logits", row) for row in range(len(tokens))]
    recorded, received = (
        [{key: array[mask] for key, array in answer.items()} for answer, mask in zip(answers, asked, strict=True)]
        for answers in (recorded, received)
    )
    made_up = references.get("made_up", np.zeros(len(tokens)))
    real = [row for row, is_made_up in enumerate(made_up) if not is_made_up]
    all_losses = [[top[row]["logsumexp"] - top[row]["values"][:, 0] for row in real] for top in (recorded, received)]
    scores = [compare_answers(recorded, received, "softmax", made_up)]
    if "reading.losses" in references:
        keras_losses, received_losses, last_scores = _compare_losses(engine, references, rows)
        all_losses = [keras_losses, received_losses]
        scores.append(last_scores)
    generated = float((np.stack(free) == tokens)[asked & ~(made_up > 0)[:, None]].mean()) if free else None
    keras_perplexity, perplexity = (float(np.exp(np.concatenate(part).astype("float64").mean())) for part in all_losses)
    figures = _fidelity(scores, rounding)
    return replace(figures, generated=generated, perplexity=perplexity, keras_perplexity=keras_perplexity)


def _checked_tokens(engine: Step, tokens: np.ndarray) -> np.ndarray:
    """Returns recorded tokens as int32.

    Raises:
        ValueError: they are not tokens of the model.
    """
    try:
        return token_array("tokens", tokens, engine.vocab_size)
    except InputError as error:
        raise ValueError(str(error)) from error


def _follow_in_steps(engine: Step, references: Arrays, count: int) -> dict[str, np.ndarray]:
    """Returns answers along the recorded tokens, in steps of `count` tokens, and of one token for the remainder."""
    tokens = np.concatenate([references["input.first"], references["tokens"][:, :-1]], axis=1)
    tokens = _checked_tokens(engine, tokens)
    indices = references["output.logits.indices"]
    state = engine.start(references["input.input_ids"], references["input.attention_mask"])
    answers, position = [], 0
    while position < tokens.shape[1]:
        part = slice(position, position + (count if position + count <= tokens.shape[1] else 1))
        logits, state = engine.step(tokens[:, part], state)
        answers.append(received_entries(logits, {"indices": indices[:, part]}))
        position = part.stop
    return {key: np.concatenate([answer[key] for answer in answers], axis=1) for key in answers[0]}


def _follow(engine: Step, references: Arrays) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns answers along the recorded tokens, and the tokens of free generation.

    Following the recorded tokens prevents an early difference from affecting all later answers. A row that would select
    a different token is duplicated there: one copy follows the record, the other generates freely.

    Returns:
        The answers `(N, T, …)` in the form of `received_entries`, and the freely generated tokens `(N, T)`.
    """
    tokens = _checked_tokens(engine, references["tokens"])
    indices = references["output.logits.indices"]
    state = engine.start(references["input.input_ids"], references["input.attention_mask"])
    count, inputs, generated, answers = len(tokens), references["input.first"], tokens.copy(), []
    free: list[int] = []
    for position in range(tokens.shape[1]):
        logits, state = engine.step(inputs.astype("int32"), state)
        answers.append(received_entries(logits[:count, -1], {"indices": indices[:, position]}))
        best = logits[:, -1].argmax(axis=-1).astype("int32")
        generated[free, position] = best[count:]
        different = [row for row in range(count) if row not in free and best[row] != tokens[row, position]]
        generated[different, position] = best[different]
        if different and position + 1 < tokens.shape[1]:
            state = engine.reorder(state, np.array([*range(len(best)), *different]))
            free += different
        inputs = np.concatenate([tokens[:, position], generated[free, position]])[:, None]
    return {key: np.stack([answer[key] for answer in answers], axis=1) for key in answers[0]}, generated


def _compare_losses(engine: Step, references: Arrays, rows: int) -> tuple[list[np.ndarray], list[np.ndarray], Scores]:
    """Compares running texts.

    Returns:
        The losses of all tokens, recorded and received, and the scores of the last token after a prefill of the others.
    """
    ids, mask, recorded = (references[f"reading.{key}"] for key in ("input_ids", "attention_mask", "losses"))
    texts = [row[:length] for row, length in zip(ids, mask.sum(axis=1), strict=True)]
    keras_losses = [row[: len(text) - 1] for row, text in zip(recorded, texts, strict=True)]
    received_losses: list[np.ndarray] = []
    for start in range(0, len(texts), rows):
        received_losses += losses(engine, texts[start : start + rows])
    expected = [{key: references[f"reading.last.{key}"][row] for key in KEYS} for row in range(len(ids))]
    received = []
    for text, last in zip(texts, expected, strict=True):
        prompt = text[None, :-1]
        logits, _ = engine.step(prompt[:, -1:], engine.start(prompt, np.ones_like(prompt)))
        received.append(received_entries(logits[0, -1], last))
    return keras_losses, received_losses, compare_answers(expected, received, "softmax")


def _fidelity(scores: Sequence[Scores], rounding: Rounding | None) -> Fidelity:
    errors, same, margins = (np.concatenate([getattr(s, key) for s in scores]) for key in ("errors", "same", "margins"))
    divergences = [score.divergence for score in scores if score.divergence is not None]
    cosines = [score.cosines for score in scores if score.cosines is not None]
    decided = None if rounding is None else margins > min(_NOISES * rounding.noise, _LARGEST_TIE)
    agreed = None if decided is None else float(same[decided].mean()) if decided.any() else 1.0
    return Fidelity(
        max(score.largest for score in scores),
        float(errors.mean()),
        float(same.mean()),
        len(same),
        scale=max(score.scale for score in scores),
        divergence=float(np.concatenate(divergences).mean()) if divergences else None,
        divergence_p99=float(np.percentile(np.concatenate(divergences), 99)) if divergences else None,
        near_ties=None if decided is None else int((~decided).sum()),
        decided_agreement=agreed,
        rounding=rounding,
        cosine=float(np.concatenate(cosines).mean()) if cosines else None,
    )
