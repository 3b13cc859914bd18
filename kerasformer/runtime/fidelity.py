"""How faithful an engine is: what the Keras model answered is recorded once, and any engine is compared with it later.

Recorded are the 64 largest logits of every answer with the logsumexp of all, the tokens of greedy generation, and how
probable the tokens of a running text were, so that a bundle can be verified on the device, without Keras.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or read tokens, `V` scores of one answer, `K` recorded
ones of them: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from kerasformer.bundle import PROBABILITIES, SENTENCE_EMBEDDING
from kerasformer.decoding import Forward, Step
from kerasformer.errors import BundleError, InputError, KerasformerError

TOP = 64
ROWS = 8
"""Texts that are generated at once."""

Arrays = Mapping[str, np.ndarray]
Distribution = Literal["softmax", "sigmoid", "none"]
"""What logits mean: classes of which one is right, classes that are right or wrong each by itself, or plain numbers."""


@dataclass(frozen=True)
class Fidelity:
    """Figures of a comparison.

    Attributes:
        max_error: Largest difference of a recorded logit, as a share of the largest absolute one.
        mean_error: The mean difference, likewise.
        agreement: Share of answers whose most probable class or token is the same; where classes do not exclude each
            other, each is an answer of yes or no; for hidden states, whose cosine is at least 0.98.
        answers: Number of answers compared.
        generated: Share of the tokens of free greedy generation that are the same, or `None`.
        scale: The largest absolute logit of the Keras model: errors times this are differences of logits.
        divergence: Mean Kullback-Leibler divergence in nats of the answers from those of Keras. The recorded classes
            count each by itself and all others as one, which is exact for up to 64 classes and otherwise the least
            that it can be. `None` where answers are no probabilities.
        perplexity: Of a running text, or of the Keras model's own answers for an encoder-decoder.
        keras_perplexity: The same under the Keras model.
        quality: Figures on labelled texts by name, such as `{"accuracy": {"keras": 0.91, "bundle": 0.9}}`.
    """

    max_error: float
    mean_error: float
    agreement: float
    answers: int
    generated: float | None = None
    scale: float | None = None
    divergence: float | None = None
    perplexity: float | None = None
    keras_perplexity: float | None = None
    quality: dict[str, dict[str, float]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return asdict(self)

    def within(self, tolerance: float, min_agreement: float) -> bool:
        """Whether this is faithful enough; NaN never is."""
        return bool(self.max_error <= tolerance and self.agreement >= min_agreement)


def in_words(figures: Mapping[str, Any]) -> list[list[str]]:
    """The fields of a `Fidelity`, as people read them: what is measured, and its value."""
    scale = figures.get("scale") or 1.0
    unit = "" if figures.get("scale") else " of the scale"
    rows = [
        ["answers compared", f"{figures['answers']:,}"],
        ["most probable answer is that of Keras", f"{figures['agreement']:.2%}"],
        ["largest difference of a logit", f"{figures['max_error'] * scale:.3g}{unit} ({figures['max_error']:.2%})"],
        ["mean difference of a logit", f"{figures['mean_error'] * scale:.3g}{unit} ({figures['mean_error']:.2%})"],
    ]
    if figures.get("divergence") is not None:
        rows.append(["mean KL divergence from Keras", f"{figures['divergence']:.3g} nats"])
    if figures.get("generated") is not None:
        rows.append(["freely generated tokens that are those of Keras", f"{figures['generated']:.2%}"])
    if figures.get("perplexity") is not None:
        before, after = figures["keras_perplexity"], figures["perplexity"]
        rows.append(["perplexity, Keras → bundle", f"{before:.5g} → {after:.5g} ({after / before - 1:+.2%})"])
    for name, pair in (figures.get("quality") or {}).items():
        values = " → ".join(quality_in_words(name, pair[key]) for key in ("keras", "bundle"))
        rows.append([f"{name.replace('_', ' ')}, Keras → bundle", values])
    return rows


def quality_in_words(name: str, value: float) -> str:
    """A figure on labelled texts."""
    return f"{value:.5g}" if name == "perplexity" else f"{value:.2%}"


def record_forward(engine: Forward, inputs: Arrays, distribution: Distribution = "softmax") -> dict[str, np.ndarray]:
    """References of an engine that answers at once.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, T)` int32 arrays under their Hugging Face names.
        distribution: What its logits mean.
    """
    rows: dict[str, list[dict[str, np.ndarray]]] = {}
    for arrays in _texts(inputs):
        for name, scores in engine.run(arrays).items():
            rows.setdefault(name, []).append(_top(scores[0]))
    recorded = {f"input.{name}": array for name, array in inputs.items()}
    for name, tops in rows.items():
        recorded |= {f"output.{name}.{key}": _stacked([top[key] for top in tops]) for key in tops[0]}
    return recorded | {"distribution": np.array(distribution)}


def record_step(engine: Step, inputs: np.ndarray, mask: np.ndarray, start: int | None, count: int) -> dict[str, Any]:
    """References of an engine that generates: `count` greedy tokens, and the logits of which each was chosen.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, P)` int32 prompts, left-padded, or an encoder's inputs, right-padded.
        mask: `(N, P)` int32.
        start: First token of the decoder of an encoder-decoder.
        count: Tokens.
    """
    first = inputs[:, -1:] if start is None else np.full((len(inputs), 1), start, "int32")
    state, tokens, tops = engine.start(inputs, mask), first, []
    for _ in range(count):
        logits, state = engine.step(tokens, state)
        tops.append(_top(logits[:, -1]))
        tokens = tops[-1]["indices"][:, :1]
    recorded = {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first}
    recorded |= {f"output.logits.{key}": np.stack([top[key] for top in tops], axis=1) for key in tops[0]}
    return recorded | {"tokens": recorded["output.logits.indices"][..., 0]}


def record_reading(engine: Forward, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """References of a decoder that reads texts: its answer after each token, and how probable the next one was.

    Args:
        engine: The model, which gives `logits` `(1, T, V)` of a whole text.
        ids: `(N, T)` int32, right-padded, with at least two tokens each.
        mask: `(N, T)` int32.
    """
    lasts, likelihoods = [], []
    for arrays in _texts({"input_ids": ids, "attention_mask": mask}):
        scores = engine.run(arrays)["logits"][0, :-1]
        lasts.append(_top(scores[-1]))
        likelihoods.append(_logsumexp(scores) - _at(scores, arrays["input_ids"][0, 1:]))
    recorded = {"reading.input_ids": ids, "reading.attention_mask": mask, "reading.losses": _stacked(likelihoods)}
    return recorded | {f"reading.last.{key}": np.stack([last[key] for last in lasts]) for key in lasts[0]}


def compare(
    engine: Forward | Step, references: Arrays, rows: int = ROWS, free: bool = True, count: int = 1
) -> Fidelity:
    """Compares an engine with what was recorded.

    Args:
        engine: The bundle in its runtime.
        references: Of `record_forward`, or of `record_step` and maybe `record_reading`.
        rows: Texts that are generated at once; each has a cache of its own in memory.
        free: Generate freely too, not along the recorded tokens alone.
        count: Tokens that are read in a step, where nothing is generated freely; one of the engine's `step_lengths`.
    Raises:
        BundleError: the references are not those of such an engine.
    """
    try:
        if isinstance(engine, Step):
            return _compare_step(engine, references, rows, 0 if free else count)
        return _compare_forward(engine, references)
    except KerasformerError:
        raise
    except (KeyError, IndexError, ValueError) as error:
        raise BundleError(
            f"The references do not fit this model: {error!r}. Expected those that were recorded with it. "
            f"Received: {', '.join(references) or 'none'}. Export the model again"
        ) from error


@dataclass(frozen=True)
class _Scores:
    """Answers beside the recorded ones.

    Attributes:
        errors: Differences of logits as a share of `scale`.
        same: Of each answer, whether it is the same.
        divergence: Of each answer, in nats, or `None`.
        scale: The largest absolute recorded logit.
    """

    errors: np.ndarray
    same: np.ndarray
    divergence: np.ndarray | None
    scale: float


def _compare_forward(engine: Forward, references: Arrays) -> Fidelity:
    inputs = {key.removeprefix("input."): array for key, array in references.items() if key.startswith("input.")}
    names = sorted({key.split(".")[1] for key in references if key.startswith("output.")})
    answers: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in names}
    for row, arrays in enumerate(_texts(inputs)):
        outputs = engine.run(arrays)
        for name in names:
            answers[name].append(_received(outputs[name][0], _row(references, name, row)))
    distribution = references.get("distribution", np.array("softmax")).item()
    scores = []
    for name in names:
        recorded = [_row(references, name, row) for row in range(len(answers[name]))]
        if name == PROBABILITIES:
            recorded, answers[name] = (
                [_as_logits(row, distribution) for row in rows] for rows in (recorded, answers[name])
            )
        scores.append(_score(recorded, answers[name], _kind(name, distribution)))
    return _fidelity(scores)


def _as_logits(row: Arrays, distribution: str) -> dict[str, np.ndarray]:
    """Probabilities as the logits that they came from, but for a constant.

    The least likely count as 1 in 1000: a float32 near 0 or 1 says little of its logarithm, and a rounded 0 nothing.
    """
    chances = np.clip(row["values"].astype("float64"), 1e-3, 1 - 1e-3)
    values = np.log(chances)
    if distribution == "sigmoid":
        values -= np.log1p(-chances)
    return {**row, "values": values, "logsumexp": np.zeros(())}


def _kind(name: str, distribution: str) -> str:
    """How an output is compared: the key of `_COMPARED`."""
    if name.endswith("hidden_state") or name == SENTENCE_EMBEDDING:
        return "hidden"
    return distribution


def _compare_step(engine: Step, references: Arrays, rows: int, count: int) -> Fidelity:
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
    recorded = [_row(references, "logits", row) for row in range(len(tokens))]
    surprise = [[top["logsumexp"] - top["values"][:, 0] for top in tops] for tops in (recorded, received)]
    scores = [_score(recorded, received, "softmax")]
    if "reading.losses" in references:
        keras_losses, own_losses, lasts = _read(engine, references, rows)
        surprise = [keras_losses, own_losses]
        scores.append(lasts)
    generated = float((np.stack(own) == tokens).mean()) if own else None
    keras_perplexity, perplexity = (float(np.exp(np.concatenate(part).astype("float64").mean())) for part in surprise)
    return replace(_fidelity(scores), generated=generated, perplexity=perplexity, keras_perplexity=keras_perplexity)


def _read_along(engine: Step, references: Arrays, count: int) -> dict[str, np.ndarray]:
    """Answers along the recorded tokens, of which `count` are read at once, and what is left over one by one."""
    given = np.concatenate([references["input.first"], references["tokens"][:, :-1]], axis=1).astype("int32")
    indices = references["output.logits.indices"]
    state = engine.start(references["input.input_ids"], references["input.attention_mask"])
    answers, place = [], 0
    while place < given.shape[1]:
        now = slice(place, place + (count if place + count <= given.shape[1] else 1))
        logits, state = engine.step(given[:, now], state)
        answers.append(_received(logits, {"indices": indices[:, now]}))
        place = now.stop
    return {key: np.concatenate([answer[key] for answer in answers], axis=1) for key in answers[0]}


def _follow(engine: Step, references: Arrays) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Answers along the recorded tokens, so that an early difference does not lead everything after it astray.

    A row that would choose another token goes on twice from there: along the record, and by itself.

    Returns:
        The answers, as `_received` gives them, `(N, T, …)`, and the tokens of free generation `(N, T)`.
    """
    tokens, indices = references["tokens"], references["output.logits.indices"]
    state = engine.start(references["input.input_ids"], references["input.attention_mask"])
    count, given, own, answers = len(tokens), references["input.first"], tokens.copy(), []
    free: list[int] = []
    for place in range(tokens.shape[1]):
        logits, state = engine.step(given.astype("int32"), state)
        answers.append(_received(logits[:count, -1], {"indices": indices[:, place]}))
        chosen = logits[:, -1].argmax(axis=-1).astype("int32")
        own[free, place] = chosen[count:]
        leaving = [row for row in range(count) if row not in free and chosen[row] != tokens[row, place]]
        own[leaving, place] = chosen[leaving]
        if leaving and place + 1 < tokens.shape[1]:
            state = engine.reorder(state, np.array([*range(len(chosen)), *leaving]))
            free += leaving
        given = np.concatenate([tokens[:, place], own[free, place]])[:, None]
    return {key: np.stack([answer[key] for answer in answers], axis=1) for key in answers[0]}, own


def _read(engine: Step, references: Arrays, rows: int) -> tuple[list[np.ndarray], list[np.ndarray], _Scores]:
    """Losses of the tokens of a running text, recorded and received, and the answers after a prefill of all but it."""
    ids, mask, recorded = (references[f"reading.{key}"] for key in ("input_ids", "attention_mask", "losses"))
    texts = [row[:length] for row, length in zip(ids, mask.sum(axis=1), strict=True)]
    keras_losses = [row[: len(text) - 1] for row, text in zip(recorded, texts, strict=True)]
    own_losses: list[np.ndarray] = []
    for start in range(0, len(texts), rows):
        own_losses += losses(engine, texts[start : start + rows])
    expected = [{key: references[f"reading.last.{key}"][row] for key in _KEYS} for row in range(len(ids))]
    received = []
    for text, last in zip(texts, expected, strict=True):
        prompt = text[None, :-1]
        logits, _ = engine.step(prompt[:, -1:], engine.start(prompt, np.ones_like(prompt)))
        received.append(_received(logits[0, -1], last))
    return keras_losses, own_losses, _score(expected, received, "softmax")


def losses(engine: Step, texts: Sequence[Sequence[int] | np.ndarray]) -> list[np.ndarray]:
    """Negative log likelihoods in nats of all tokens of each text but its first, read one by one as in generation.

    Args:
        engine: A decoder.
        texts: Ids, at least two each; they are read side by side.
    """
    lengths = [len(text) for text in texts]
    ids = np.zeros((len(texts), max(lengths)), "int32")
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    state = engine.start(ids[:, :1], np.ones((len(ids), 1), "int32"))
    columns = []
    for place in range(max(lengths) - 1):
        logits, state = engine.step(ids[:, place : place + 1], state)
        columns.append(_logsumexp(logits[:, -1]) - _at(logits[:, -1], ids[:, place + 1]))
    return [row[: length - 1] for row, length in zip(np.stack(columns, axis=1), lengths, strict=True)]


def _fidelity(scores: Sequence[_Scores]) -> Fidelity:
    errors, same = (np.concatenate([getattr(score, key) for score in scores]) for key in ("errors", "same"))
    divergences = [score.divergence for score in scores if score.divergence is not None]
    return Fidelity(
        float(errors.max()),
        float(errors.mean()),
        float(same.mean()),
        len(same),
        scale=max(score.scale for score in scores),
        divergence=float(np.concatenate(divergences).mean()) if divergences else None,
    )


def _texts(inputs: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Texts one by one, without padding, as a phone would ask."""
    for row, length in enumerate(inputs["attention_mask"].sum(axis=1)):
        yield {name: array[row : row + 1, :length] for name, array in inputs.items()}


_KEYS = ("values", "indices", "logsumexp")


def _top(scores: np.ndarray) -> dict[str, np.ndarray]:
    """The largest entries of the last axis, their places, and the logsumexp of all."""
    if not np.isfinite(scores).all():
        raise InputError(
            "The Keras model's own answers are not finite numbers. Expected logits without NaN and infinity. "
            "Check its weights"
        )
    count = min(TOP, scores.shape[-1])
    if count < scores.shape[-1]:
        largest = np.argpartition(-scores, count - 1, axis=-1)[..., :count]
        largest.sort(axis=-1)  # of equal scores the first is the answer, as `argmax` has it
    else:
        largest = np.broadcast_to(np.arange(count), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, largest, axis=-1), axis=-1, kind="stable")
    indices = np.take_along_axis(largest, order, axis=-1).astype("int32")
    values = np.take_along_axis(scores, indices, axis=-1).astype("float32")
    return {"values": values, "indices": indices, "logsumexp": _logsumexp(scores)}


def _received(scores: np.ndarray, recorded: Arrays) -> dict[str, np.ndarray]:
    """An engine's scores `(…, V)` in the places that were recorded, the logsumexp of all, and the best place."""
    values = np.take_along_axis(scores, recorded["indices"], axis=-1)
    return {"values": values, "logsumexp": _logsumexp(scores), "best": scores.argmax(axis=-1)}


def _row(references: Arrays, name: str, row: int) -> dict[str, np.ndarray]:
    """What was recorded of one text, without what fills up its arrays."""
    arrays = {key: references[f"output.{name}.{key}"][row] for key in _KEYS}
    used = ~np.isnan(arrays["values"])
    if used.ndim == 1:
        return {key: array[used] if array.ndim else array for key, array in arrays.items()}
    tokens = used.any(axis=1)
    return {key: array[tokens] for key, array in arrays.items()}


def _stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """One array of rows of unequal sizes; floats are filled up with NaN."""
    shape = np.max([row.shape for row in rows], axis=0)
    filling = np.nan if rows[0].dtype.kind == "f" else 0
    stacked = np.full((len(rows), *shape), filling, rows[0].dtype)
    for index, row in enumerate(rows):
        place: tuple[Any, ...] = (index, *(slice(size) for size in row.shape))
        stacked[place] = row
    return stacked


def _score(recorded: Sequence[Arrays], received: Sequence[Arrays], kind: str) -> _Scores:
    """Compares the answers of all texts."""
    scale = max(float(np.abs(row["values"]).max()) for row in recorded)
    errors, same, divergences = [], [], []
    for expected, own in zip(recorded, received, strict=True):
        errors.append(np.abs(own["values"] - expected["values"]).ravel() / max(scale, 1e-9))
        agreed, divergence = _COMPARED[kind](expected, own)
        same.append(np.ravel(agreed))
        if divergence is not None:
            divergences.append(np.ravel(divergence))
    return _Scores(
        np.concatenate(errors), np.concatenate(same), np.concatenate(divergences) if divergences else None, scale
    )


def _compared_classes(expected: Arrays, own: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Of classes one is right: whether it is the same one, and the divergence, rarer classes as one."""
    logs = [row["values"].astype("float64") - row["logsumexp"][..., None] for row in (expected, own)]
    rest = [np.maximum(1 - np.exp(log).sum(axis=-1), 1e-9) for log in logs]
    divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1) + rest[0] * np.log(rest[0] / rest[1])
    return own["best"] == expected["indices"][..., 0], np.maximum(divergence, 0)


def _compared_decisions(expected: Arrays, own: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Each class is right or wrong: whether it is decided the same way, and the divergence of that decision."""
    theirs, ours = (row["values"].astype("float64") for row in (expected, own))
    chance = 0.5 + 0.5 * np.tanh(0.5 * theirs)
    # log p = -log(1 + exp(-x)) and log(1 - p) = -log(1 + exp(x))
    divergence = chance * (np.logaddexp(0, -ours) - np.logaddexp(0, -theirs))
    divergence += (1 - chance) * (np.logaddexp(0, ours) - np.logaddexp(0, theirs))
    return (ours > 0) == (theirs > 0), np.maximum(divergence, 0)


def _compared_numbers(expected: Arrays, own: Arrays) -> tuple[np.ndarray, None]:
    """Plain numbers: their order is all that can agree."""
    return own["best"] == expected["indices"][..., 0], None


def _compared_directions(expected: Arrays, own: Arrays) -> tuple[np.ndarray, None]:
    """Hidden states: whether their recorded entries have nearly the same direction."""
    theirs, ours = expected["values"], own["values"]
    norms = np.linalg.norm(theirs, axis=-1) * np.linalg.norm(ours, axis=-1)
    return (theirs * ours).sum(axis=-1) >= 0.98 * norms, None


_COMPARED: dict[str, Any] = {
    "softmax": _compared_classes,
    "sigmoid": _compared_decisions,
    "none": _compared_numbers,
    "hidden": _compared_directions,
}


def _logsumexp(scores: np.ndarray) -> np.ndarray:
    """Of the last axis."""
    highest = scores.max(axis=-1, keepdims=True)
    total = np.exp(scores - highest).sum(axis=-1)
    return np.asarray(np.log(total) + highest[..., 0], "float32")


def _at(scores: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The scores `(N, V)` of one id `(N,)` each."""
    return np.take_along_axis(scores, ids[:, None], axis=-1)[:, 0]
