"""Comparison of an engine with the recorded answers of the Keras model.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or processed tokens, `V` scores of an answer, `K`
recorded scores of an answer: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kerasformer.bundle import (
    PROBABILITIES,
    SENTENCE_EMBEDDING,
    SPARSE_EMBEDDING,
    TOKEN_EMBEDDINGS,
    TOKEN_WEIGHTS,
    Fidelity,
    Rounding,
)
from kerasformer.engines.arrays import token_array
from kerasformer.engines.fidelity.references import (
    ENDS_OF_SPANS,
    KEYS,
    Arrays,
    inputs_of,
    is_hidden_state,
    output_names,
    received_answer,
    received_entries,
    recorded_entries,
    single_texts,
)
from kerasformer.engines.likelihood import losses
from kerasformer.engines.protocols import Forward, State, Step
from kerasformer.errors import BundleError, InputError, KerasformerError

ROWS = 8
"""Number of texts generated together."""
_FREE = 8
"""Number of texts that are also generated freely, a token at a time; the others are only followed."""
_AT_ONCE = 16
"""Largest number of tokens of a step that only follows: logits of a large vocabulary take megabytes for each."""

_NOISES, _LARGEST_TIE = 3, 0.1
"""An answer is a near tie if its margin in Keras is at most `_NOISES` times the noise of rounding and at most
`_LARGEST_TIE` logits, so that the best answer is at most about 10 % more probable than the next one."""
_LONGEST_SPAN = 15
"""Maximum length of an extracted answer in tokens, the default of the pipeline."""
SAME_DIRECTION = 0.98
"""Cosine similarity from which two vectors count as the same answer."""

States = dict[bytes, tuple[State, int]]
"""The state of prompts, by their ids, with the number of tokens that steps have added since."""
Scores = dict[str, np.ndarray]
"""Comparison of the answers of an output, by name: `largest` is the maximum difference of a logit relative to `scale`,
the largest absolute recorded logit, including made-up texts; `errors` has the differences of all logits of the other
texts. Of each answer, `same` tells whether it is the same, and `margins` has its recorded margin to the next one in
logits, infinite if there is none; `changes` has the changes of the margins in the engine's answers. If the answers are
probabilities, `divergence` has the Kullback-Leibler divergence of each in nats; if they are embeddings, `cosines` the
cosine similarity of each."""


def compare(
    engine: Forward | Step,
    references: Arrays,
    rows: int = ROWS,
    free: bool = True,
    count: int = 1,
    rounding: Rounding | None = None,
    read: States | None = None,
) -> Fidelity:
    """Compares an engine with recorded answers.

    Args:
        engine: Engine of the bundle.
        references: Arrays from `record_forward`, or from `record_step` and optionally `record_reading`.
        rows: Number of texts generated together; each of them has a cache in memory.
        free: Whether to also generate freely for the first texts, and not only to follow the recorded tokens.
        count: Number of tokens per step if nothing is generated freely; one of the engine's `step_lengths`.
        rounding: Effect of rounding alone, by which near ties are identified.
        read: Prompts that were read for an earlier comparison without free generation, by an engine that shares its
            states with this one. They are not read again.
    Raises:
        BundleError: the references do not match the engine.
    """
    try:
        if isinstance(engine, Step):
            return _compare_step(engine, references, rows, 0 if free else count, rounding, read)
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
    changes, figures = np.concatenate([score["changes"] for score in scores]), _fidelity(scores, None)
    noise = float(np.sqrt(np.mean(np.square(changes)))) if changes.size else 0.0
    return Rounding(noise, figures.mean_error, figures.divergence)


def _compare_forward(engine: Forward, references: Arrays) -> list[Scores]:
    names, made_up = output_names(references), references.get("made_up")
    distribution = references.get("distribution", np.array("softmax")).item()
    pairs: dict[str, list[tuple[Arrays, Arrays]]] = {name: [] for name in names}
    for row, arrays in enumerate(single_texts(inputs_of(references))):
        outputs = engine.run(arrays)
        for name in names:
            recorded = recorded_entries(references, name, row)
            pair = recorded, received_answer(name, outputs[name][0], references, row, recorded)
            if name == PROBABILITIES:
                pair = _as_logits(pair[0], distribution), _as_logits(pair[1], distribution)
            pairs[name].append(pair)
    compared = [_compare_answers(pairs[name], _kind(name, distribution), made_up) for name in names]
    if "asked" in references and set(names) >= set(ENDS_OF_SPANS):
        spans = _compare_spans([pairs[name] for name in ENDS_OF_SPANS], made_up)
        compared[0] |= spans
        for scores in compared[1:]:
            scores |= {key: array[:0] for key, array in spans.items()}
    return compared


def _kind(name: str, distribution: str) -> str:
    """Returns what is compared of an output, a key of `_COMPARED`."""
    if name == TOKEN_WEIGHTS:
        return "none"
    if name in (SENTENCE_EMBEDDING, SPARSE_EMBEDDING, TOKEN_EMBEDDINGS):
        return "embedding"
    return "hidden" if is_hidden_state(name) else distribution


def _as_logits(entries: Arrays, distribution: str) -> dict[str, np.ndarray]:
    """Converts probabilities to logits, up to a constant.

    Probabilities are clipped to 0.001 and 0.999, since the logarithm of a float32 near 0 or 1 is inaccurate.
    """
    probabilities = np.clip(entries["values"].astype("float64"), 1e-3, 1 - 1e-3)
    values = np.log(probabilities)
    if distribution == "sigmoid":
        values -= np.log1p(-probabilities)
    return {**entries, "values": values, "logsumexp": np.zeros(())}


def _compare_step(
    engine: Step, references: Arrays, rows: int, count: int, rounding: Rounding | None, read: States | None
) -> Fidelity:
    """Compares a model that generates; see `compare`. A `count` of 0 means free generation."""
    tokens = references["tokens"]
    rows = 1 if "alone" in references else rows
    received: list[dict[str, np.ndarray]] = []
    free: list[np.ndarray] = []
    for start in range(0, len(tokens), rows):
        part = slice(start, start + rows)
        batch = {key: array[part] for key, array in references.items() if array.ndim}
        if count or start >= _FREE:
            longest = max(length for length in engine.step_lengths if length <= _AT_ONCE)
            answers = _follow_in_steps(engine, batch, count or longest, read)
        else:
            answers, generated_tokens = _follow(engine, batch)
            free += list(generated_tokens)
        received += [{key: array[row] for key, array in answers.items()} for row in range(len(batch["tokens"]))]
    asked = references.get("asked", np.ones_like(tokens)) > 0
    made_up = references.get("made_up", np.zeros(len(tokens)))
    pairs = [
        tuple({key: array[mask] for key, array in entries.items()} for entries in (recorded, answer))
        for recorded, answer, mask in zip(
            (recorded_entries(references, "logits", row) for row in range(len(tokens))), received, asked, strict=True
        )
    ]
    real = [pair for pair, is_made_up in zip(pairs, made_up, strict=True) if not is_made_up]
    all_losses = [[pair[side]["logsumexp"] - pair[side]["values"][:, 0] for pair in real] for side in (0, 1)]
    scores = [_compare_answers(pairs, "softmax", made_up)]
    if "reading.losses" in references:
        all_losses, last = _compare_losses(engine, references, rows)
        scores.append(last)
    compared = (asked & ~(made_up > 0)[:, None])[: len(free)]
    generated = float((np.stack(free) == tokens[: len(free)])[compared].mean()) if free else None
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


def _follow_in_steps(engine: Step, references: Arrays, count: int, read: States | None) -> dict[str, np.ndarray]:
    """Returns answers along the recorded tokens, in steps of `count` tokens, and of one token for the remainder."""
    tokens = np.concatenate([references["input.first"], references["tokens"][:, :-1]], axis=1)
    tokens = _checked_tokens(engine, tokens)
    indices = references["output.logits.indices"]
    inputs, mask = references["input.input_ids"], references["input.attention_mask"]
    prompts = inputs.tobytes()
    state = engine.rewind(*read.pop(prompts)) if read and prompts in read else engine.start(inputs, mask)
    answers, position = [], 0
    while position < tokens.shape[1]:
        part = slice(position, position + (count if position + count <= tokens.shape[1] else 1))
        logits, state = engine.step(tokens[:, part], state)
        answers.append(received_entries(logits, indices[:, part]))
        position = part.stop
    if read is not None:
        read[prompts] = state, position
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
        answers.append(received_entries(logits[:count, -1], indices[:, position]))
        best = logits[:, -1].argmax(axis=-1).astype("int32")
        generated[free, position] = best[count:]
        different = [row for row in range(count) if row not in free and best[row] != tokens[row, position]]
        generated[different, position] = best[different]
        if different and position + 1 < tokens.shape[1]:
            state = engine.reorder(state, np.array([*range(len(best)), *different]))
            free += different
        inputs = np.concatenate([tokens[:, position], generated[free, position]])[:, None]
    return {key: np.stack([answer[key] for answer in answers], axis=1) for key in answers[0]}, generated


def _compare_losses(engine: Step, references: Arrays, rows: int) -> tuple[list[list[np.ndarray]], Scores]:
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
    pairs = []
    for row, text in enumerate(texts):
        expected = {key: references[f"reading.last.{key}"][row] for key in KEYS}
        prompt = text[None, :-1]
        logits, _ = engine.step(prompt[:, -1:], engine.start(prompt, np.ones_like(prompt)))
        pairs.append((expected, received_entries(logits[0, -1], expected["indices"])))
    return [keras_losses, received_losses], _compare_answers(pairs, "softmax")


def _fidelity(scores: Sequence[Scores], rounding: Rounding | None) -> Fidelity:
    def of_all(name: str) -> np.ndarray:
        return np.concatenate([part[name].ravel() for part in scores if name in part] or [np.zeros(0)])

    same, divergence, cosines = of_all("same"), of_all("divergence"), of_all("cosines")
    figures = Fidelity(
        float(of_all("largest").max()),
        float(of_all("errors").mean()),
        float(same.mean()),
        len(same),
        scale=float(of_all("scale").max()),
        divergence=float(divergence.mean()) if divergence.size else None,
        divergence_p99=float(np.percentile(divergence, 99)) if divergence.size else None,
        cosine=float(cosines.mean()) if cosines.size else None,
    )
    if rounding is None:
        return figures
    decided = of_all("margins") > min(_NOISES * rounding.noise, _LARGEST_TIE)
    agreement = float(same[decided].mean()) if decided.any() else 1.0
    return replace(figures, near_ties=int((~decided).sum()), decided_agreement=agreement, rounding=rounding)


def _compare_answers(pairs: Sequence[tuple[Arrays, ...]], kind: str, made_up: np.ndarray | None = None) -> Scores:
    """Compares the recorded and received answers to all texts; made-up texts count for the maximum error only.

    Args:
        pairs: Recorded and received entries of each text.
        kind: What is compared, a key of `_COMPARED`.
        made_up: `(N,)`, nonzero for made-up texts.
    """
    scale = max(float(np.abs(recorded["values"]).max()) for recorded, _ in pairs)
    largest, parts = [], []
    for row, (expected, answer) in enumerate(pairs):
        errors = np.abs(answer["values"] - expected["values"]).ravel() / max(scale, 1e-9)
        largest.append(errors.max())
        if made_up is None or not made_up[row]:
            parts.append({"errors": errors, **_COMPARED[kind](expected, answer)})
    scores = {key: np.concatenate([np.ravel(part[key]) for part in parts]) for key in parts[0]}
    return {**scores, "largest": np.max(largest), "scale": np.array(scale)}


def _compared_classes(expected: Arrays, answer: Arrays) -> Scores:
    """Compares classes that exclude each other; classes that were not recorded are treated as one."""
    logs = [entries["values"].astype("float64") - entries["logsumexp"][..., None] for entries in (expected, answer)]
    rest = [np.maximum(1 - np.exp(log).sum(axis=-1), 1e-9) for log in logs]
    divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1) + rest[0] * np.log(rest[0] / rest[1])
    values = expected["values"]
    if values.shape[-1] < 2:
        margins, changes = np.full(values.shape[:-1], np.inf), np.zeros(values.shape[:-1])
    else:
        best, second = (np.stack([part["values"][..., i] for part in (expected, answer)]) for i in (0, 1))
        margins, received = best.astype("float64") - second
        changes = received - margins
    same = answer["best"] == expected["indices"][..., 0]
    return {"same": same, "divergence": np.maximum(divergence, 0), "margins": margins, "changes": changes}


def _compared_decisions(expected: Arrays, answer: Arrays) -> Scores:
    """Compares independent classes: each is a yes-or-no decision with the threshold 0."""
    keras, ours = (entries["values"].astype("float64") for entries in (expected, answer))
    probability = 0.5 + 0.5 * np.tanh(0.5 * keras)
    # log p = -log(1 + exp(-x)) and log(1 - p) = -log(1 + exp(x))
    divergence = probability * (np.logaddexp(0, -ours) - np.logaddexp(0, -keras))
    divergence += (1 - probability) * (np.logaddexp(0, ours) - np.logaddexp(0, keras))
    changes = np.where(keras > 0, ours - keras, keras - ours)
    same = (ours > 0) == (keras > 0)
    return {"same": same, "divergence": np.maximum(divergence, 0), "margins": np.abs(keras), "changes": changes}


def _compared_numbers(expected: Arrays, answer: Arrays) -> Scores:
    """Compares plain numbers, which agree if the index of the largest one is the same."""
    return _without_margins(answer["best"] == expected["indices"][..., 0])


def _compared_directions(expected: Arrays, answer: Arrays) -> Scores:
    """Compares the directions of hidden states: of a text's mean vector or, in older bundles, of each token's."""
    return _without_margins(_cosines(expected, answer) >= SAME_DIRECTION)


def _compared_embeddings(expected: Arrays, answer: Arrays) -> Scores:
    """Compares the directions of embeddings."""
    return {**_compared_directions(expected, answer), "cosines": _cosines(expected, answer)}


def _without_margins(same: np.ndarray) -> Scores:
    return {"same": same, "margins": np.full(np.shape(same), np.inf), "changes": np.zeros(0)}


def _cosines(expected: Arrays, answer: Arrays) -> np.ndarray:
    """Returns the cosine similarity of recorded and received vectors; that of two vectors of zeros is 1."""
    key = "mean" if "mean" in expected else "values"
    keras, ours = (entries[key].astype("float64") for entries in (expected, answer))
    norms = np.linalg.norm(keras, axis=-1) * np.linalg.norm(ours, axis=-1)
    products = (keras * ours).sum(axis=-1)
    return np.where(norms > 0, products / np.where(norms > 0, norms, 1.0), (keras == ours).all(axis=-1))


def _compare_spans(ends: Sequence[Sequence[tuple[Arrays, Arrays]]], made_up: np.ndarray | None) -> Scores:
    """Compares the most probable spans: of each text, whether it is the same, its margin, and the margin's change."""
    same, margins, changes = [], [], []
    for row, (start, end) in enumerate(zip(*ends, strict=True)):
        if made_up is not None and made_up[row]:
            continue
        indices = [part[0]["indices"] for part in (start, end)]
        expected, answer = (_spans(indices, [part[side]["values"] for part in (start, end)]) for side in (0, 1))
        recorded = all(part[1]["best"] in part[0]["indices"] for part in (start, end))
        same.append(bool(expected.argmax() == answer.argmax()) and recorded)
        first, second = np.argsort(-expected, kind="stable")[: min(2, len(expected))][[0, -1]]
        margin = expected[first] - expected[second] if np.isfinite(expected[second]) and first != second else np.inf
        margins.append(margin)
        changes.append(answer[first] - answer[second] - margin if np.isfinite(margin) else 0.0)
    return {"same": np.array(same), "margins": np.array(margins), "changes": np.array(changes)}


def _spans(indices: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the scores of all pairs of start and end candidates; minus infinity for pairs that are not spans."""
    length = indices[1][None, :] - indices[0][:, None]
    total = values[0][:, None].astype("float64") + values[1][None, :]
    return np.where((length >= 0) & (length < _LONGEST_SPAN), total, -np.inf).ravel()


_COMPARED: Mapping[str, Callable[[Arrays, Arrays], Scores]] = {
    "softmax": _compared_classes,
    "sigmoid": _compared_decisions,
    "none": _compared_numbers,
    "hidden": _compared_directions,
    "embedding": _compared_embeddings,
}
