"""The answers of the Keras model on sample texts, which are written into the bundle and compared with later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, islice
from typing import Any

import numpy as np

from kerasformer.bundle import Manifest, ModelInfo, Role
from kerasformer.errors import InputError
from kerasformer.evaluation import Example, check, examples, pipeline_of, record_quality
from kerasformer.export.graph.functions import Function
from kerasformer.export.reference_texts import PROMPTS, QUESTIONS, READING
from kerasformer.fidelity.recording import Distribution, record_forward, record_reading, record_step
from kerasformer.models.keras_engine import KerasForward, KerasStep
from kerasformer.tokenization import Encoding, Tokenizer

GENERATED = 64
"""Tokens that each prompt is continued by."""
_PROMPTS = 20
_TOKENS = 48
"""Of a prompt, and of a text of this package."""
_BLOCKS, _BLOCK_TOKENS = 8, 32
"""Pieces of the running text that a decoder reads, and their tokens."""

_MASK_EVERY, _MASKINGS = 7, 2
"""Of the tokens of a text one in seven is masked, and each text is read twice with other ones masked."""

TextRow = tuple[list[int], list[int], list[int]]
"""Ids and token types of a text, and 1 for each token whose answer a user asks for."""


def record(
    model: Any, manifest: Manifest, texts: Sequence[Example] | None, function: Function | None = None
) -> dict[str, np.ndarray]:
    """What the Keras model answers, for `references.npz`.

    Args:
        model: Any model of the zoo.
        manifest: Of its bundle, for the capacity and the lengths of its signatures.
        texts: To be read or continued; sentences of this package by default, random ids without a tokenizer.
        function: What is exported, for a model that answers at once; it may make more of the model's
            own answer, which is taken without it.
    """
    if not model.generates:
        return _record_forward(model, manifest, texts, function)
    reading = texts or examples(READING)
    capacity = manifest.capacity or 0
    count = min(GENERATED, capacity // 2)
    start: int | None = None
    made_up = None
    if model.is_encoder_decoder:
        prefix = manifest.info.sample_prefix
        asked = [replace(text, text=prefix + text.text) for text in reading[:_PROMPTS]]
        rows, made_up = _rows(model, manifest, asked, Role.ENCODE, manifest.encoder_capacity)
        start = manifest.info.start_token_id
    else:
        prompts = (texts or examples(PROMPTS))[:_PROMPTS]
        rows = [_cut(row, min(_TOKENS, capacity - count)) for row in _encoded(model, prompts)]
    inputs = _padded(rows, ("input_ids", "attention_mask"), left=not model.is_encoder_decoder)
    # No longer than needed: caches of the whole capacity are gigabytes.
    width = 0 if model.is_encoder_decoder else inputs["input_ids"].shape[1]
    engine = KerasStep(model, width + count, jit_compile=False)
    ends = manifest.info.eos_token_id
    recorded = record_step(engine, inputs["input_ids"], inputs["attention_mask"], start, count, ends)
    if made_up is not None:
        recorded["made_up"] = made_up
    if not model.is_encoder_decoder:
        blocks = _padded(_blocks(model, manifest, reading), ("input_ids", "attention_mask"))
        recorded |= record_reading(KerasForward(model), blocks["input_ids"], blocks["attention_mask"])
    return recorded


def _record_forward(
    model: Any, manifest: Manifest, texts: Sequence[Example] | None, function: Function | None
) -> dict[str, np.ndarray]:
    """References of a model that answers at once."""
    limit = manifest.info.max_length
    limit = limit if texts else min(_TOKENS, limit or _TOKENS)
    reading = texts or (_questions() if model.task == "question-answering" else examples(READING))
    rows, made_up = _rows(model, manifest, reading, Role.FORWARD, limit)
    inputs = _padded(rows, tuple(function.inputs) if function else model.input_names)
    asked = _padded([(row[2], row[1], row[2]) for row in rows], ("input_ids",))["input_ids"]
    forward = KerasForward(model, function.call if function else None)
    return record_forward(forward, inputs, _distribution(manifest.info), asked, made_up)


def _questions() -> list[Example]:
    """Each question about its sentence alone, and about that among its neighbours."""
    found = []
    for place, question in enumerate(QUESTIONS):
        around = [READING[place - 1], READING[place], READING[(place + 1) % len(READING)]]
        found += [Example(context, question=question) for context in (READING[place], " ".join(around))]
    return found


def keras_quality(model: Any, info: ModelInfo, texts: Sequence[Example]) -> dict[str, np.ndarray]:
    """What the Keras model reaches on labelled texts, for `references.npz`.

    Raises:
        InputError: a task that is not measured with labels, a missing or unknown label, or no tokenizer.
    """
    check(info.task, texts)
    if info.task == "text-generation":
        raise InputError("text-generation is measured without labels, by perplexity. Received: labels. Leave them out")
    if model.tokenizer is None:
        raise InputError("Labelled texts need a tokenizer. Received: a model without one. Set model.tokenizer")
    engine = KerasStep(model, jit_compile=False) if model.generates else KerasForward(model)
    return record_quality(pipeline_of(engine, info, model.tokenizer), texts)


def _distribution(info: ModelInfo) -> Distribution:
    """What the logits of a classifier mean; those of other models choose among tokens or places."""
    if info.problem_type == "regression":
        return "none"
    alone = info.task == "text-classification" and len(info.labels) == 1
    return "sigmoid" if alone or info.problem_type == "multi_label_classification" else "softmax"


def _rows(
    model: Any, manifest: Manifest, texts: Sequence[Example], role: Role, limit: int | None
) -> tuple[list[TextRow], np.ndarray]:
    """The texts, and further ones made of them so that every signature of a role gets one that needs its length.

    Returns:
        The rows, and `(N,)` 1 for each that is made up.
    """
    rows = [_cut(row, limit) for row in _encoded(model, texts)]
    if model.task == "fill-mask" and model.tokenizer is not None:
        rows = [masked for place, row in enumerate(rows) for masked in _masked(model.tokenizer, row, place)]
    rows = [row for row in rows if any(row[2])] or [(ids, types, [1] * len(ids)) for ids, types, _ in rows]
    count = len(rows)
    found = (signature.tokens for signature in manifest.of_role(role).values())
    lengths = sorted(length for length in found if length is not None)
    for shorter, length in zip([0, *lengths], lengths, strict=False):
        if not any(shorter < len(ids) <= length for ids, *_ in rows):
            rows.append(_running(rows[:count], length))
    return rows, (np.arange(len(rows)) >= count).astype("uint8")


def _running(rows: Sequence[TextRow], length: int) -> TextRow:
    """So many tokens of the texts one after another, from the first again when they end."""
    ids, types, asked = (list(islice(cycle(chain.from_iterable(row[i] for row in rows)), length)) for i in range(3))
    return ids, types, asked if any(asked) else [1] * length


def _masked(tokenizer: Tokenizer, row: TextRow, place: int) -> Iterator[TextRow]:
    """A text with some of its tokens masked, other ones each time; as it is if some are masked already.

    Args:
        tokenizer: It has a mask token.
        row: The text.
        place: Among the texts: where the first masked token is, differs.
    """
    ids, types, words = row
    mask = tokenizer.mask_token_id
    if mask is None or mask in ids:
        yield ids, types, [int(token == mask) for token in ids]
        return
    real = [index for index, word in enumerate(words) if word]
    step = min(_MASK_EVERY, max(len(real), 1))
    for turn in range(min(_MASKINGS, step)):
        hidden = set(real[(place + turn * step // _MASKINGS) % step :: step])
        asked = [int(index in hidden) for index in range(len(ids))]
        yield [mask if here else token for token, here in zip(ids, asked, strict=True)], types, asked


def _blocks(model: Any, manifest: Manifest, texts: Sequence[Example]) -> list[TextRow]:
    """Pieces of the texts as one running text, and for each prefill a text that needs its length."""
    ids = list(chain.from_iterable(row[0] for row in _encoded(model, texts)))
    capacity = manifest.capacity or 0
    size = max(2, min(_BLOCK_TOKENS, capacity, len(ids)))
    starts = range(0, max(len(ids) - size, 0) + 1, size)
    blocks = [ids[start : start + size] for start in islice(starts, _BLOCKS)]
    prefills = (signature.tokens or 0 for signature in manifest.of_role(Role.PREFILL).values())
    # All but the last two tokens of a text are prefilled when its last answer is compared.
    blocks += [ids[: n + 2] for n in prefills if size < n + 2 <= min(capacity, len(ids))]
    blocks = [block for block in blocks if len(block) > 1] or [[*ids, *ids][:2]]
    return [(block, [0] * len(block), [1] * len(block)) for block in blocks]


def _encoded(model: Any, texts: Sequence[Example]) -> Iterator[TextRow]:
    """Tokens of texts; random ones for a model without tokenizer."""
    if model.tokenizer is None:
        random = np.random.default_rng(0)
        for size in random.integers(_TOKENS // 3, _TOKENS + 1, len(texts)):
            yield random.integers(0, model.config.vocab_size, size).tolist(), [0] * size, [1] * size
        return
    for place, example in enumerate(texts):
        pair = (example.text, example.pair) if example.question is None else (example.question, example.text)
        if model.task == "question-answering" and pair[1] is None:  # any other text shows whether two are told apart
            pair = (pair[0], texts[place - 1].text)
        encoded = model.tokenizer(*pair)
        if encoded.input_ids.size:
            yield encoded.input_ids[0].tolist(), encoded.token_type_ids[0].tolist(), _asked(model.task, encoded)


def _asked(task: str, encoded: Encoding) -> list[int]:
    """The tokens whose answers a user asks for: those of the context, the words of a text, or all."""
    if task == "question-answering":
        counts = encoded.sequence_ids[0] == 1
    elif task in ("token-classification", "fill-mask"):
        counts = encoded.special_tokens_mask[0] == 0
    else:
        counts = encoded.attention_mask[0] > 0
    return counts.astype(int).tolist()


def _cut(row: TextRow, limit: int | None) -> TextRow:
    return row[0][:limit], row[1][:limit], row[2][:limit]


def _padded(rows: Sequence[TextRow], names: Sequence[str], left: bool = False) -> dict[str, np.ndarray]:
    """`(N, T)` int32 arrays."""
    width = max(len(row[0]) for row in rows)
    made = ("input_ids", "token_type_ids", "attention_mask")
    arrays = {name: np.zeros((len(rows), width), "int32") for name in (*made, *names)}
    for index, (ids, types, _) in enumerate(rows):
        place = slice(width - len(ids), width) if left else slice(0, len(ids))
        for name, values in zip(made, (ids, types, 1), strict=True):
            arrays[name][index, place] = values
    return {name: arrays[name] for name in names}
