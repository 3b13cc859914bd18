"""Reference answers of the Keras model, which a bundle contains and is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, islice
from typing import Any

import numpy as np

from kerasformer.basics.tasks import task_of_model
from kerasformer.bundle import Manifest, ModelInfo, Role
from kerasformer.bundle.interface import DECODER_INPUT_IDS, INPUT_IDS
from kerasformer.engines.fidelity.references import (
    CHATS,
    DEFAULT_TEXTS,
    Distribution,
    record_forward,
    record_reading,
    record_step,
    stacked,
)
from kerasformer.errors import InputError
from kerasformer.export.graph.functions import Function
from kerasformer.export.quantization.sample_inputs import conversation_rows, own_engine
from kerasformer.export.reference_texts import CONVERSATIONS, PROMPTS, QUESTIONS, READING
from kerasformer.export.span_texts import span_inputs
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.keras_forward import KerasForward
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.pipelines.labelled_texts import Example, examples
from kerasformer.pipelines.quality import check_labels, pipeline_of, record_quality
from kerasformer.tokenization import Encoding, Tokenizer

GENERATED = 64
"""Number of tokens by which each prompt is continued."""
_PROMPTS = 20
_FEW, _FEW_TOKENS = 4, 24
"""Number of prompts, and of tokens by which each is continued, for weights that are not rounded."""
_TOKENS = 48
"""Longest prompt, and longest default text, in tokens."""
_BLOCKS, _BLOCK_TOKENS = 8, 32
"""Number of blocks of running text that a decoder reads, and their length in tokens."""
_CHAT_BLOCK_TOKENS = 64
"""Maximum length of a conversation that a decoder reads, in tokens."""

_MASK_EVERY, _MASKINGS = 7, 2
"""One token in seven is masked, and each text is read twice with different tokens masked."""

Attentions = tuple[dict[str, np.ndarray], list[np.ndarray]]
"""Inputs of a text by name, int32 `(1, T)`, and the attention weights of all layers."""
_TEXT = ("input.input_ids", "input.attention_mask", "input.token_type_ids")

TextRow = tuple[list[int], list[int], list[int]]
"""Token ids, token types, and 1 for each token whose answer is compared."""


def record(
    model: PretrainedModel,
    manifest: Manifest,
    texts: Sequence[Example] | None,
    function: Function | None = None,
    few: bool = False,
) -> dict[str, np.ndarray]:
    """Records the answers of the Keras model for `references.npz`.

    Args:
        model: A model of the zoo.
        manifest: Manifest of the bundle, for the capacity and the lengths of its signatures.
        texts: Texts to read or continue. By default, texts that ship with this package: conversations for a model with
            a chat template, else sentences; or random ids for a model without a tokenizer.
        function: The exported function of a model that does not generate, which may add operations to the model's
            outputs. By default the model's own outputs are recorded.
        few: Whether a model that generates continues only a few prompts, by a few tokens.
    """
    if model.generates:
        recorded = _record_step(model, manifest, texts, *((_FEW, _FEW_TOKENS) if few else (_PROMPTS, GENERATED)))
    else:
        recorded = _record_forward(model, manifest, texts, function)
    return recorded | {DEFAULT_TEXTS: np.array(int(not texts))}


def record_attention(model: PretrainedModel, function: Function, references: dict[str, np.ndarray]) -> Attentions:
    """Computes the attention weights of the Keras model for a text of the references.

    Args:
        model: A model of the zoo.
        function: The exported function that returns attention weights.
        references: The result of `record`.

    Returns:
        The inputs by name, int32 `(1, T)`, and the weights of all layers, in the order of the function's outputs.
    """
    row = int(references["input.attention_mask"].sum(axis=1).argmin())
    real = references["input.attention_mask"][row] > 0
    arrays = {
        key.removeprefix("input."): array[row : row + 1, real] for key, array in references.items() if key in _TEXT
    }
    if DECODER_INPUT_IDS in function.inputs:
        arrays[DECODER_INPUT_IDS] = np.concatenate([references["input.first"][row], references["tokens"][row]])[None]
    sizes = [info.shape[1] for info in function.inputs.values()]
    length = min(size if isinstance(size, int) else _TOKENS for size in sizes)
    inputs = {}
    for name, info in function.inputs.items():
        array = arrays.get(name, np.full_like(arrays[INPUT_IDS], info.default or 0))
        inputs[name] = array[:, :length].astype("int32")
    outputs = KerasForward(model, function.call).run(inputs)
    return inputs, [outputs[name] for name in function.outputs]


def _record_step(
    model: PretrainedModel, manifest: Manifest, texts: Sequence[Example] | None, prompts: int, tokens: int
) -> dict[str, np.ndarray]:
    """Records references of a model that generates, which continues a number of prompts by a number of tokens."""
    reading = texts or examples(READING)
    capacity = manifest.capacity or 0
    count = min(tokens, capacity // 2)
    start: int | None = None
    made_up = None
    if model.is_encoder_decoder:
        prefix = manifest.info.sample_prefix
        prefixed = [replace(text, text=prefix + text.text) for text in reading[:prompts]]
        rows, made_up = _rows(model, manifest, prefixed, Role.ENCODE, manifest.encoder_capacity)
        start = manifest.info.start_token_id
    else:
        chats = [] if texts else _chats(model, capacity - count)
        begun = (texts or examples(PROMPTS))[:prompts]
        rows = chats[:prompts] or [_cut(row, min(_TOKENS, capacity - count)) for row in _encoded(model, begun)]
    inputs = _padded(rows, left=not model.is_encoder_decoder)
    # Little longer than needed, since caches of the whole capacity may take gigabytes.
    width = 0 if model.is_encoder_decoder else inputs["input_ids"].shape[1]
    engine = own_engine(model, width + count)
    ends = manifest.info.eos_token_id
    arrays = inputs["input_ids"], inputs["attention_mask"]
    alone = start is not None and getattr(model.backbone, "batch_dependent", False)
    recorded = record_step(engine, *arrays, start, count, ends, alone)
    if made_up is not None:
        recorded["made_up"] = made_up
    if not model.is_encoder_decoder:
        read = _chats(model, capacity, answered=True) if chats else []
        whole = _blocks(read, _encoded(model, reading), manifest)
        blocks = _padded(whole)
        recorded |= record_reading(KerasForward(model), blocks["input_ids"], blocks["attention_mask"])
        recorded[CHATS] = np.array(int(bool(chats)))
    return recorded


def _chats(model: PretrainedModel, limit: int, answered: bool = False) -> list[TextRow]:
    """Returns the default conversations; see `conversation_rows`."""
    rows = conversation_rows(model, CONVERSATIONS, limit, answered)
    return [_cut((row, [0] * len(row), [1] * len(row)), limit) for row in rows]


def _record_forward(
    model: PretrainedModel, manifest: Manifest, texts: Sequence[Example] | None, function: Function | None
) -> dict[str, np.ndarray]:
    """Records references of a model that does not generate."""
    forward = KerasForward(model, function.call if function else None)
    if manifest.info.spans is not None:
        read = [example.text for example in texts or examples(READING)]
        inputs = span_inputs(model, read, list(manifest.of_role(Role.FORWARD).values()))
        return record_forward(forward, inputs, "sigmoid", made_up=inputs.pop("made_up"))
    limit = manifest.info.max_length
    limit = limit if texts else min(_TOKENS, limit or _TOKENS)
    reading = texts or (_questions() if model.task == "question-answering" else examples(READING))
    rows, made_up = _rows(model, manifest, reading, Role.FORWARD, limit)
    names = function.inputs if function else model.input_names
    inputs = {name: array for name, array in _padded(rows).items() if name in names}
    compared = stacked([row[2] for row in rows])
    return record_forward(forward, inputs, _distribution(manifest.info), compared, made_up)


def _questions() -> list[Example]:
    """Returns each question twice: with its sentence as the context, and with that sentence between its neighbours."""
    questions = []
    for index, question in enumerate(QUESTIONS):
        around = [READING[index - 1], READING[index], READING[(index + 1) % len(READING)]]
        questions += [Example(context, question=question) for context in (READING[index], " ".join(around))]
    return questions


def keras_quality(model: PretrainedModel, info: ModelInfo, texts: Sequence[Example]) -> dict[str, np.ndarray]:
    """Measures the metrics of the Keras model on labelled texts, for `references.npz`.

    Raises:
        InputError: The task is not measured with labels, a label is missing or unknown, or the model has no tokenizer.
    """
    check_labels(info.task, texts)
    if info.task == "text-generation":
        raise InputError("text-generation is measured by perplexity, without labels. Received: labels. Remove them")
    if model.tokenizer is None:
        raise InputError("Labelled texts need a tokenizer. Received: a model without one. Set model.tokenizer")
    engine = KerasStep(model, jit_compile=False) if model.generates else KerasForward(model)
    return record_quality(pipeline_of(engine, info, model.tokenizer), texts)


def _distribution(info: ModelInfo) -> Distribution:
    if info.problem_type == "regression":
        return "none"
    single_label = task_of_model(info.task) == "text-classification" and len(info.labels) == 1
    by_token = info.task == "replaced-token-detection"  # one logit for each token
    return "sigmoid" if single_label or by_token or info.problem_type == "multi_label_classification" else "softmax"


def _rows(
    model: PretrainedModel, manifest: Manifest, texts: Sequence[Example], role: Role, limit: int | None
) -> tuple[list[TextRow], np.ndarray]:
    """Tokenizes texts, and adds texts composed of them so that every signature of a role has one of its length.

    Returns:
        The rows, and uint8 `(N,)`: 1 for each composed row.
    """
    rows = [_cut(row, limit) for row in _encoded(model, texts)]
    if model.task == "fill-mask" and model.tokenizer is not None:
        rows = [masked for index, row in enumerate(rows) for masked in _masked(model.tokenizer, row, index)]
    rows = [row for row in rows if any(row[2])] or [(ids, types, [1] * len(ids)) for ids, types, _ in rows]
    count = len(rows)
    tokens = (signature.tokens for signature in manifest.of_role(role).values())
    lengths = sorted(length for length in tokens if length is not None)
    for shorter, length in zip([0, *lengths], lengths, strict=False):
        if not any(shorter < len(ids) <= length for ids, *_ in rows):
            rows.append(_running(rows[:count], length))
    return rows, (np.arange(len(rows)) >= count).astype("uint8")


def _running(rows: Sequence[TextRow], length: int) -> TextRow:
    """Concatenates the texts, repeating them from the first, up to a length."""
    ids, types, compared = (list(islice(cycle(chain.from_iterable(row[i] for row in rows)), length)) for i in range(3))
    return ids, types, compared if any(compared) else [1] * length


def _masked(tokenizer: Tokenizer, row: TextRow, index: int) -> Iterator[TextRow]:
    """Yields a text several times with different tokens masked; once and unchanged if it contains masks already.

    Args:
        tokenizer: A tokenizer with a mask token.
        row: The text.
        index: Index of the text, on which the position of the first masked token depends.
    """
    ids, types, words = row
    mask = tokenizer.mask_token_id
    if mask is None or mask in ids:
        yield ids, types, [int(token == mask) for token in ids]
        return
    positions = [position for position, word in enumerate(words) if word]
    step = min(_MASK_EVERY, max(len(positions), 1))
    for masking in range(min(_MASKINGS, step)):
        hidden = set(positions[(index + masking * step // _MASKINGS) % step :: step])
        compared = [int(position in hidden) for position in range(len(ids))]
        yield [mask if masked else token for token, masked in zip(ids, compared, strict=True)], types, compared


def _blocks(chats: Sequence[TextRow], texts: Iterable[TextRow], manifest: Manifest) -> list[TextRow]:
    """Returns the beginnings of conversations or, if there are none, the concatenated texts cut into blocks.

    A block for each prefill length is added.
    """
    capacity = manifest.capacity or 0
    ids = list(chain.from_iterable(row[0] for row in chats or texts))
    size = max(2, min(_CHAT_BLOCK_TOKENS if chats else _BLOCK_TOKENS, capacity, len(ids)))
    starts = range(0, max(len(ids) - size, 0) + 1, size)
    blocks = [row[0][:size] for row in chats[:_BLOCKS]] or [
        ids[start : start + size] for start in islice(starts, _BLOCKS)
    ]
    prefills = (signature.tokens or 0 for signature in manifest.of_role(Role.PREFILL).values())
    # All but the last two tokens of a text are prefilled when its last answer is compared.
    blocks += [ids[: n + 2] for n in prefills if size < n + 2 <= min(capacity, len(ids))]
    blocks = [block for block in blocks if len(block) > 1] or [[*ids, *ids][:2]]
    return [(block, [0] * len(block), [1] * len(block)) for block in blocks]


def _encoded(model: PretrainedModel, texts: Sequence[Example]) -> Iterator[TextRow]:
    """Yields the tokens of texts; random tokens for a model without a tokenizer."""
    if model.tokenizer is None:
        random = np.random.default_rng(0)
        for size in random.integers(_TOKENS // 3, _TOKENS + 1, len(texts)):
            yield random.integers(0, model.config.vocab_size, size).tolist(), [0] * size, [1] * size
        return
    for index, example in enumerate(texts):
        pair = (example.text, example.pair) if example.question is None else (example.question, example.text)
        if model.task == "question-answering" and pair[1] is None:  # any second text serves to compare token types
            pair = (pair[0], texts[index - 1].text)
        encoded = model.tokenizer(*pair)
        if encoded.input_ids.size:
            yield encoded.input_ids[0].tolist(), encoded.token_type_ids[0].tolist(), _compared(model.task, encoded)


def _compared(task: str, encoded: Encoding) -> list[int]:
    """Returns 1 for each token whose answer is compared: the context's, those of words, or all, by task."""
    if task == "question-answering":
        counts = encoded.sequence_ids[0] == 1
    elif task in ("token-classification", "fill-mask"):
        counts = encoded.special_tokens_mask[0] == 0
    else:
        counts = encoded.attention_mask[0] > 0
    return counts.astype(int).tolist()


def _cut(row: TextRow, limit: int | None) -> TextRow:
    return row[0][:limit], row[1][:limit], row[2][:limit]


def _padded(rows: Sequence[TextRow], left: bool = False) -> dict[str, np.ndarray]:
    """Returns the arrays `(N, T)` int32 of the texts, padded on the right or on the left."""
    columns: dict[str, list[Any]] = {
        "input_ids": [ids for ids, *_ in rows],
        "token_type_ids": [types for _, types, _ in rows],
        "attention_mask": [np.ones(len(ids), int) for ids, *_ in rows],
    }
    return {name: stacked(values, left) for name, values in columns.items()}
