"""Any engine compared with the recorded answers of the Keras model.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or read tokens, `V` scores of one answer, `K` recorded
ones of them: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kerasformer.bundle import PROBABILITIES
from kerasformer.decoding import Forward, Step
from kerasformer.errors import BundleError, KerasformerError
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
"""Texts that are generated at once."""


_NOISES, _LARGEST_TIE = 3, 0.1
"""An answer is a near tie where its margin in Keras is at most this many times the noise of rounding, and at most this
in logits: the best answer is then no more than a tenth more probable than the next one."""


def compare(
    engine: Forward | Step,
    references: Arrays,
    rows: int = ROWS,
    free: bool = True,
    count: int = 1,
    rounding: Rounding | None = None,
) -> Fidelity:
    """Compares an engine with what was recorded.

    Args:
        engine: The bundle in its runtime.
        references: Of `record_forward`, or of `record_step` and maybe `record_reading`.
        rows: Texts that are generated at once; each has a cache of its own in memory.
        free: Generate freely too, not along the recorded tokens alone.
        count: Tokens that are read in a step, where nothing is generated freely; one of the engine's `step_lengths`.
        rounding: What rounding does by itself, to tell near ties apart.
    Raises:
        BundleError: the references are not those of such an engine.
    """
    try:
        if isinstance(engine, Step):
            return _compare_step(engine, references, rows, 0 if free else count, rounding)
        return _fidelity(_compare_forward(engine, references), rounding)
    except KerasformerError:
        raise
    except (KeyError, IndexError, ValueError) as error:
        raise BundleError(
            f"The references do not fit this model: {error!r}. Expected those that were recorded with it. "
            f"Received: {', '.join(references) or 'none'}. Export the model again"
        ) from error


def record_rounding(engine: Forward, references: Arrays, steps: Arrays | None = None) -> Rounding:
    """What rounding does to a model's answers.

    Args:
        engine: The Keras model with rounded matrices and inputs of products.
        references: Of `record_forward`, of the Keras model as it is.
        steps: Those on which each kind of step is compared, if there are.
    """
    scores = _compare_forward(engine, references)
    changes, whole = np.concatenate([score.changes for score in scores]), _fidelity(scores, None)
    noise = float(np.sqrt(np.mean(np.square(changes)))) if changes.size else 0.0
    found = Rounding(noise, whole.mean_error, whole.divergence)
    if steps is None:
        return found
    few = _fidelity(_compare_forward(engine, steps), None)
    return replace(found, step_mean_error=few.mean_error, step_divergence=few.divergence)


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
    """Probabilities as the logits that they came from, but for a constant.

    The least likely count as 1 in 1000: a float32 near 0 or 1 says little of its logarithm, and a rounded 0 nothing.
    """
    chances = np.clip(row["values"].astype("float64"), 1e-3, 1 - 1e-3)
    values = np.log(chances)
    if distribution == "sigmoid":
        values -= np.log1p(-chances)
    return {**row, "values": values, "logsumexp": np.zeros(())}


def comparison_kind(name: str, distribution: str) -> str:
    """How an output is compared: the key of `_COMPARED`."""
    return "hidden" if is_hidden_state(name) else distribution


def _compare_step(
    engine: Step, references: Arrays, rows: int, count: int, rounding: Rounding | None = None
) -> Fidelity:
    """See `compare`; a `count` of 0 means free generation."""
    tokens = references["tokens"]
    received: list[dict[str, np.ndarray]] = []
    own: list[np.ndarray] = []
    for start in range(0, len(tokens), rows):
        part = slice(start, start + rows)
        few = {key: array[part] for key, array in references.items() if array.ndim}
        if count:
            answers = _read_along(engine, few, count)
        else:
            answers, written = _follow(engine, few)
            own += list(written)
        received += [{key: array[row] for key, array in answers.items()} for row in range(len(few["tokens"]))]
    asked = references.get("asked", np.ones_like(tokens)) > 0
    recorded = [recorded_entries(references, "logits", row) for row in range(len(tokens))]
    recorded, received = (
        [{key: array[kept] for key, array in answer.items()} for answer, kept in zip(answers, asked, strict=True)]
        for answers in (recorded, received)
    )
    made_up = references.get("made_up", np.zeros(len(tokens)))
    real = [row for row, filled in enumerate(made_up) if not filled]
    surprise = [[top[row]["logsumexp"] - top[row]["values"][:, 0] for row in real] for top in (recorded, received)]
    scores = [compare_answers(recorded, received, "softmax", made_up)]
    if "reading.losses" in references:
        keras_losses, own_losses, lasts = _read(engine, references, rows)
        surprise = [keras_losses, own_losses]
        scores.append(lasts)
    generated = float((np.stack(own) == tokens)[asked & ~(made_up > 0)[:, None]].mean()) if own else None
    keras_perplexity, perplexity = (float(np.exp(np.concatenate(part).astype("float64").mean())) for part in surprise)
    found = _fidelity(scores, rounding)
    return replace(found, generated=generated, perplexity=perplexity, keras_perplexity=keras_perplexity)


def _read_along(engine: Step, references: Arrays, count: int) -> dict[str, np.ndarray]:
    """Answers along the recorded tokens, of which `count` are read at once, and what is left over one by one."""
    given = np.concatenate([references["input.first"], references["tokens"][:, :-1]], axis=1).astype("int32")
    indices = references["output.logits.indices"]
    state = engine.start(references["input.input_ids"], references["input.attention_mask"])
    answers, place = [], 0
    while place < given.shape[1]:
        now = slice(place, place + (count if place + count <= given.shape[1] else 1))
        logits, state = engine.step(given[:, now], state)
        answers.append(received_entries(logits, {"indices": indices[:, now]}))
        place = now.stop
    return {key: np.concatenate([answer[key] for answer in answers], axis=1) for key in answers[0]}


def _follow(engine: Step, references: Arrays) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Answers along the recorded tokens, so that an early difference does not lead everything after it astray.

    A row that would choose another token goes on twice from there: along the record, and by itself.

    Returns:
        The answers, as `received_entries` gives them, `(N, T, …)`, and the tokens of free generation `(N, T)`.
    """
    tokens, indices = references["tokens"], references["output.logits.indices"]
    state = engine.start(references["input.input_ids"], references["input.attention_mask"])
    count, given, own, answers = len(tokens), references["input.first"], tokens.copy(), []
    free: list[int] = []
    for place in range(tokens.shape[1]):
        logits, state = engine.step(given.astype("int32"), state)
        answers.append(received_entries(logits[:count, -1], {"indices": indices[:, place]}))
        chosen = logits[:, -1].argmax(axis=-1).astype("int32")
        own[free, place] = chosen[count:]
        leaving = [row for row in range(count) if row not in free and chosen[row] != tokens[row, place]]
        own[leaving, place] = chosen[leaving]
        if leaving and place + 1 < tokens.shape[1]:
            state = engine.reorder(state, np.array([*range(len(chosen)), *leaving]))
            free += leaving
        given = np.concatenate([tokens[:, place], own[free, place]])[:, None]
    return {key: np.stack([answer[key] for answer in answers], axis=1) for key in answers[0]}, own


def _read(engine: Step, references: Arrays, rows: int) -> tuple[list[np.ndarray], list[np.ndarray], Scores]:
    """Losses of the tokens of a running text, recorded and received, and the answers after a prefill of all but it."""
    ids, mask, recorded = (references[f"reading.{key}"] for key in ("input_ids", "attention_mask", "losses"))
    texts = [row[:length] for row, length in zip(ids, mask.sum(axis=1), strict=True)]
    keras_losses = [row[: len(text) - 1] for row, text in zip(recorded, texts, strict=True)]
    own_losses: list[np.ndarray] = []
    for start in range(0, len(texts), rows):
        own_losses += losses(engine, texts[start : start + rows])
    expected = [{key: references[f"reading.last.{key}"][row] for key in KEYS} for row in range(len(ids))]
    received = []
    for text, last in zip(texts, expected, strict=True):
        prompt = text[None, :-1]
        logits, _ = engine.step(prompt[:, -1:], engine.start(prompt, np.ones_like(prompt)))
        received.append(received_entries(logits[0, -1], last))
    return keras_losses, own_losses, compare_answers(expected, received, "softmax")


def _fidelity(scores: Sequence[Scores], rounding: Rounding | None) -> Fidelity:
    errors, same, margins = (np.concatenate([getattr(s, key) for s in scores]) for key in ("errors", "same", "margins"))
    divergences = [score.divergence for score in scores if score.divergence is not None]
    decided = None if rounding is None else margins > min(_NOISES * rounding.noise, _LARGEST_TIE)
    agreed = None if decided is None else float(same[decided].mean()) if decided.any() else 1.0
    return Fidelity(
        max(score.largest for score in scores),
        float(errors.mean()),
        float(same.mean()),
        len(same),
        scale=max(score.scale for score in scores),
        divergence=float(np.concatenate(divergences).mean()) if divergences else None,
        near_ties=None if decided is None else int((~decided).sum()),
        decided_agreement=agreed,
        rounding=rounding,
    )
