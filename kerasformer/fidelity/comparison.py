"""How faithful an engine is: what the Keras model answered is recorded once, and any engine is compared with it later.

Recorded are the 64 largest logits of every answer with the logsumexp of all, the mean of a text's hidden states, the
tokens of greedy generation, and how probable the tokens of a running text were, so that a bundle can be verified on the
device, without Keras. What counts as an answer is what a user asks for: `asked` has the positions whose answers are
compared (masked tokens, words without special tokens, the tokens of a context, generated tokens up to the end), and
texts under `made_up`, which are there for their length, count for the largest error alone. References of older bundles
have neither, and all of their answers count.

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
        agreement: Share of answers whose most probable class, token or span is the same; where classes do not exclude
            each other, each is an answer of yes or no; for hidden states, of texts whose mean vector has a cosine of at
            least 0.98.
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


def record_forward(
    engine: Forward,
    inputs: Arrays,
    distribution: Distribution = "softmax",
    asked: np.ndarray | None = None,
    made_up: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """References of an engine that answers at once.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, T)` int32 arrays under their Hugging Face names.
        distribution: What its logits mean.
        asked: `(N, T)`, nonzero at the tokens whose answers a user asks for, at least one in each text; all by default.
        made_up: `(N,)`, nonzero for texts that count for the largest error alone.
    """
    rows: dict[str, list[dict[str, np.ndarray]]] = {}
    for row, arrays in enumerate(_texts(inputs)):
        for name, scores in engine.run(arrays).items():
            recorded_row = _top(_asked(name, scores[0], asked, row))
            if _is_hidden(name):
                recorded_row["mean"] = _mean(scores[0])
            rows.setdefault(name, []).append(recorded_row)
    recorded = {f"input.{name}": array for name, array in inputs.items()}
    for name, tops in rows.items():
        recorded |= {f"output.{name}.{key}": stacked([top[key] for top in tops]) for key in tops[0]}
    for key, given in (("asked", asked), ("made_up", made_up)):
        if given is not None:
            recorded[key] = np.asarray(given, "uint8")
    return recorded | {"distribution": np.array(distribution)}


def record_step(
    engine: Step, inputs: np.ndarray, mask: np.ndarray, start: int | None, count: int, ends: Sequence[int] = ()
) -> dict[str, Any]:
    """References of an engine that generates: `count` greedy tokens, and the logits of which each was chosen.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, P)` int32 prompts, left-padded, or an encoder's inputs, right-padded.
        mask: `(N, P)` int32.
        start: First token of the decoder of an encoder-decoder.
        count: Tokens.
        ends: End tokens; what comes behind the first one is recorded, but nobody asks for it.
    """
    first = inputs[:, -1:] if start is None else np.full((len(inputs), 1), start, "int32")
    state, tokens, tops = engine.start(inputs, mask), first, []
    for _ in range(count):
        logits, state = engine.step(tokens, state)
        tops.append(_top(logits[:, -1]))
        tokens = tops[-1]["indices"][:, :1]
    recorded = {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first}
    recorded |= {f"output.logits.{key}": np.stack([top[key] for top in tops], axis=1) for key in tops[0]}
    written = recorded["output.logits.indices"][..., 0]
    ended = np.cumsum(np.isin(written, list(ends)), axis=1)
    return recorded | {"tokens": written, "asked": (ended - np.isin(written, list(ends)) == 0).astype("uint8")}


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
    recorded = {"reading.input_ids": ids, "reading.attention_mask": mask, "reading.losses": stacked(likelihoods)}
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
        largest: The largest difference of a logit as a share of `scale`, of texts that are made up too.
        errors: Differences of logits as a share of `scale`.
        same: Of each answer, whether it is the same.
        divergence: Of each answer, in nats, or `None`.
        scale: The largest absolute recorded logit.
    """

    largest: float
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
            scores = _asked(name, outputs[name][0], references.get("asked"), row)
            answer = _received(scores, _row(references, name, row))
            answers[name].append({**answer, "mean": _mean(outputs[name][0])} if _is_hidden(name) else answer)
    made_up = references.get("made_up")
    distribution = references.get("distribution", np.array("softmax")).item()
    compared: list[_Scores] = []
    pairs: dict[str, list[tuple[Arrays, Arrays]]] = {}
    for name in names:
        recorded = [_row(references, name, row) for row in range(len(answers[name]))]
        if name == PROBABILITIES:
            recorded, answers[name] = (
                [_as_logits(row, distribution) for row in rows] for rows in (recorded, answers[name])
            )
        compared.append(_score(recorded, answers[name], _kind(name, distribution), made_up))
        pairs[name] = list(zip(recorded, answers[name], strict=True))
    if "asked" in references and set(names) >= set(_ENDS_OF_SPANS):
        same = _same_spans([pairs[name] for name in _ENDS_OF_SPANS], made_up)
        compared = [replace(each, same=same if place == 0 else same[:0]) for place, each in enumerate(compared)]
    return _fidelity(compared)


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
    return "hidden" if _is_hidden(name) else distribution


def _is_hidden(name: str) -> bool:
    return name.endswith("hidden_state") or name == SENTENCE_EMBEDDING


def _mean(states: np.ndarray) -> np.ndarray:
    """The vector `(E,)` of a text, of one for each token `(T, E)` or of that itself."""
    return states.mean(axis=0, dtype="float64").astype("float32") if states.ndim == 2 else states


def _asked(name: str, scores: np.ndarray, asked: np.ndarray | None, row: int) -> np.ndarray:
    """Of the scores of a text, those of the tokens that a user asks about; all of a text as a whole."""
    per_token = scores.ndim == 2 or name in _ENDS_OF_SPANS
    return scores if asked is None or not per_token else scores[np.flatnonzero(asked[row])]


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
    asked = references.get("asked", np.ones_like(tokens)) > 0
    recorded = [_row(references, "logits", row) for row in range(len(tokens))]
    recorded, received = (
        [{key: array[kept] for key, array in answer.items()} for answer, kept in zip(answers, asked, strict=True)]
        for answers in (recorded, received)
    )
    made_up = references.get("made_up", np.zeros(len(tokens)))
    real = [row for row, filled in enumerate(made_up) if not filled]
    surprise = [[top[row]["logsumexp"] - top[row]["values"][:, 0] for row in real] for top in (recorded, received)]
    scores = [_score(recorded, received, "softmax", made_up)]
    if "reading.losses" in references:
        keras_losses, own_losses, lasts = _read(engine, references, rows)
        surprise = [keras_losses, own_losses]
        scores.append(lasts)
    generated = float((np.stack(own) == tokens)[asked & ~(made_up > 0)[:, None]].mean()) if own else None
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
        max(score.largest for score in scores),
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
_ENDS_OF_SPANS = ("start_logits", "end_logits")
_LONGEST_SPAN = 15
"""Tokens of an answer in a text, as the pipeline has it."""


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
    tokens = used if used.ndim == 1 else used.any(axis=1)
    whole = {key: references[f"output.{name}.{key}"][row] for key in ("mean",) if f"output.{name}.{key}" in references}
    return {key: array[tokens] if array.ndim else array for key, array in arrays.items()} | whole


def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """One array of rows of unequal sizes; floats are filled up with NaN."""
    shape = np.max([row.shape for row in rows], axis=0)
    filling = np.nan if rows[0].dtype.kind == "f" else 0
    stacked = np.full((len(rows), *shape), filling, rows[0].dtype)
    for index, row in enumerate(rows):
        place: tuple[Any, ...] = (index, *(slice(size) for size in row.shape))
        stacked[place] = row
    return stacked


def _score(
    recorded: Sequence[Arrays], received: Sequence[Arrays], kind: str, made_up: np.ndarray | None = None
) -> _Scores:
    """Compares the answers of all texts; those that are made up count for the largest error alone."""
    scale = max(float(np.abs(row["values"]).max()) for row in recorded)
    largest, errors, same, divergences = [], [], [], []
    for row, (expected, own) in enumerate(zip(recorded, received, strict=True)):
        differences = np.abs(own["values"] - expected["values"]).ravel() / max(scale, 1e-9)
        largest.append(differences.max())
        if made_up is not None and made_up[row]:
            continue
        errors.append(differences)
        agreed, divergence = _COMPARED[kind](expected, own)
        same.append(np.ravel(agreed))
        if divergence is not None:
            divergences.append(np.ravel(divergence))
    return _Scores(
        float(np.max(largest)),
        np.concatenate(errors),
        np.concatenate(same),
        np.concatenate(divergences) if divergences else None,
        scale,
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
    """Hidden states: whether the text's vectors have nearly the same direction; in older bundles, each token's."""
    key = "mean" if "mean" in expected else "values"
    theirs, ours = expected[key], own[key]
    norms = np.linalg.norm(theirs, axis=-1) * np.linalg.norm(ours, axis=-1)
    return (theirs * ours).sum(axis=-1) >= 0.98 * norms, None


def _same_spans(answers: Sequence[Sequence[tuple[Arrays, Arrays]]], made_up: np.ndarray | None) -> np.ndarray:
    """Of each text, whether the most probable span is the same: one that ends where it begins or later."""
    same = []
    for row, (start, end) in enumerate(zip(*answers, strict=True)):
        if made_up is not None and made_up[row]:
            continue
        indices = [part[0]["indices"] for part in (start, end)]
        expected, own = (_span(indices, [part[who]["values"] for part in (start, end)]) for who in (0, 1))
        known = all(part[1]["best"] in part[0]["indices"] for part in (start, end))
        same.append(expected == own and known)
    return np.array(same)


def _span(indices: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> tuple[int, int]:
    """Beginning and end of the best span among these candidates."""
    length = indices[1][None, :] - indices[0][:, None]
    total = np.where((length >= 0) & (length < _LONGEST_SPAN), values[0][:, None] + values[1][None, :], -np.inf)
    first, last = np.unravel_index(total.argmax(), total.shape)
    return int(indices[0][first]), int(indices[1][last])


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
