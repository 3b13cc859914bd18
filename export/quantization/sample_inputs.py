"""Texts on which a Keras model is run for calibration and for measuring the effect of rounded weights.

A generating model reads each text together with its own continuation, in one pass without a cache. Its products then
have the same inputs, and therefore the same ranges, as in a prefill of the text and the steps that follow. Texts are
run without padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, groupby, islice
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from kerasformer import generation
from kerasformer.basics.arguments import Arguments
from kerasformer.bundle.interface import OWN_LENGTHS
from kerasformer.engines.fidelity.references import stacked
from kerasformer.errors import ChatTemplateError, InputError
from kerasformer.export.quantization.calibration_texts import ANSWERED
from kerasformer.export.reference_texts import PROMPTS, READING
from kerasformer.export.span_texts import span_inputs
from kerasformer.files.reading import JsonObject, local_path
from kerasformer.generation import Controls, GenerationConfig
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.pretrained import PretrainedModel

MAX_TEXTS = 128
"""Largest number of texts that are used; more of them hardly change the ranges."""

_FIRST_WORDS = 50  # characters of the first of the caller's texts, by which they are identified
_LONGEST = 64  # tokens of a text
_LONGEST_CHAT = 256  # tokens of a conversation
_EVERY = 2  # every second text is sampled beside conversations: all of them take longer, and help no more
_CONTINUATION = 16  # tokens that a generating model adds
_SAMPLED = 64  # tokens that it adds if they are sampled
_FEW = 4  # tokens of `few_tokens`
_ROWS = 32  # texts that are continued as one batch
_WINDOW = 128  # tokens of a running text that a decoder reads at once
_READ_TOKENS = 512  # of passages that are read as one batch, all of whose inputs of products are kept for a moment
_CACHED = 128  # tokens of the shortest cache that is used to continue texts

Passages = dict[str, np.ndarray]
"""int32 arrays `(N, T)`, padded on the right: `input_ids` and `attention_mask`. For an encoder-decoder, the
decoder's tokens follow those of the encoder and `decoder_tokens` is 1 for them. For a decoder of which only some
answers are compared, `compared` is 1 for these."""


def read_texts(source: Any = None, limit: int = MAX_TEXTS) -> list[str]:
    """Returns the first texts of a source; blank ones are skipped.

    Args:
        source: A file with one text per line, or an iterable of texts, such as a list or a `tf.data.Dataset` of
            strings, batched or not. By default, sentences that ship with this package.
        limit: Largest number of texts.

    Raises:
        InputError: The file does not exist, the source contains no text, or an element is not a text.
    """
    if source is None:
        source = (*READING, *PROMPTS)
    if isinstance(source, str | Path):
        path = local_path(source, InputError)
        if not path.is_file():
            raise InputError(
                f"calibration must be texts, or an existing file with one text per line. Received: {str(source)!r:.80}"
            )
        source = _lines(path)
    if not isinstance(source, Iterable):
        raise InputError(
            "calibration must be a file of texts, a list of texts or a dataset of texts. "
            f"Received: {type(source).__name__}"
        )
    texts = list(islice((text for entry in source for text in _texts_of(entry) if text.strip()), limit))
    if not texts:
        raise InputError("calibration needs at least one text that is not blank. Received: none")
    return texts


def described_texts(given: Sequence[str] | None, read: Passages | None) -> JsonObject:
    """Returns the manifest's entry for calibration texts: their number, and the first words of the caller's texts.

    Args:
        given: The caller's texts.
        read: Result of `calibration_passages`; `None` if the model reads nothing but the texts.
    """
    count = len(read_texts(given)) if read is None else len(read["input_ids"])
    entry: JsonObject = {"texts": count, "given": given is not None}
    return entry if given is None else {**entry, "first": shorten(given[0], _FIRST_WORDS, placeholder=" …")}


def _lines(path: Path) -> Iterable[str]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise InputError(f"A file of texts must be UTF-8. Received: {path}: {error}") from error


def _texts_of(entry: Any) -> list[str]:
    """Returns the texts of an element of a dataset: a string, bytes, or an array of either."""
    if isinstance(entry, str):
        return [entry.rstrip("\n")]
    if isinstance(entry, bytes):
        return [entry.decode("utf-8", errors="replace")]
    if hasattr(entry, "numpy"):
        entry = entry.numpy()
        if isinstance(entry, bytes):
            return _texts_of(entry)
    if isinstance(entry, np.ndarray) and entry.dtype.kind in "OSU":
        return [text for part in entry.ravel().tolist() for text in _texts_of(part)]
    raise InputError(
        "calibration must be texts; map a dataset to its texts first. Received: an element of type "
        f"{type(entry).__name__}"
    )


def calibration_passages(model: PretrainedModel, given: Sequence[str] | None, sampled: bool = False) -> Passages:
    """Returns what a model reads for calibration.

    Args:
        model: A model of the zoo.
        given: The caller's texts. By default sentences; a model with a chat template also reads conversations, with
            answers that it need not generate first.
        sampled: Whether sentences are continued by sampling; see `passages`.
    """
    texts, chats = read_texts(given), []
    if given is None and model.generates and not model.is_encoder_decoder:
        longest = min(_LONGEST_CHAT, model.max_length or _LONGEST_CHAT)
        chats = [row[:longest] for row in conversation_rows(model, ANSWERED, longest, answered=True)]
    if not chats:
        return passages(model, texts, sampled)
    if sampled:
        continued = passages(model, texts[::_EVERY], sampled)
        rows = [ids[: used.sum()].tolist() for ids, used in zip(*continued.values(), strict=True)]
    else:
        rows = _ids(model, texts, 0)
    ids, mask = _padded([*chats, *rows])
    return {"input_ids": ids, "attention_mask": mask}


def passages(model: PretrainedModel, texts: Sequence[str], sampled: bool = False) -> Passages:
    """Tokenizes texts, together with the model's own continuations if it generates.

    Args:
        model: A model of the zoo. A model without a tokenizer reads random ids, one row for each text.
        texts: Texts to read or continue; for an encoder-decoder, its first task prefix is put before each.
        sampled: Whether the continuations are sampled and longer, instead of greedy. They are then texts of the kind
            that the model was trained on, of which ranges need few, and rounding to four bits more.

    Raises:
        InputError: None of the texts has a token.
    """
    if model.info().spans is not None:
        inputs = span_inputs(model, texts)
        return {name: inputs[name] for name in model.input_names}
    added = _SAMPLED if sampled else _CONTINUATION
    if sampled and model.max_answer_length is not None:
        # A decoder also reads the text; that of an encoder-decoder, a start token.
        room = model.max_answer_length - 1 if model.is_encoder_decoder else model.max_answer_length // 2
        added = max(1, min(added, room))
    rows = _ids(model, texts, added)
    continuations: list[list[int]] = [[] for _ in rows]
    if model.generates:
        continuations = _continuations(model, rows, added, sampled)
    ids, mask = _padded([[*row, *tokens] for row, tokens in zip(rows, continuations, strict=True)])
    arrays = {"input_ids": ids, "attention_mask": mask}
    if model.is_encoder_decoder:
        starts = np.array([[len(row)] for row in rows])
        arrays["decoder_tokens"] = (np.arange(ids.shape[1]) >= starts).astype("int32")
    return arrays


def _padded(rows: Sequence[Any], left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of token ids and their mask, each int32 `(N, T)`, padded on the right or on the left."""
    return stacked(rows, left), stacked([np.ones(len(row), int) for row in rows], left)


def _ids(model: PretrainedModel, texts: Sequence[str], added: int) -> list[list[int]]:
    """Returns the ids of texts, short enough for `added` tokens of a decoder."""
    reserved = added if model.generates and not model.is_encoder_decoder else 0
    limit = max(1, min(_LONGEST, (model.max_length or _LONGEST + reserved) - reserved))
    if model.tokenizer is None:
        random = np.random.default_rng(0)
        sizes = random.integers(max(1, limit // 3), limit + 1, len(texts))
        return [random.integers(0, model.config.vocab_size, size).tolist() for size in sizes]
    prefix = model.info().sample_prefix if model.is_encoder_decoder else ""
    rows = [model.tokenizer.encode(prefix + text)[:limit] for text in texts]
    rows = [row for row in rows if row]
    if not rows:
        raise InputError(f"None of the texts has a token. Received: {len(texts)} texts")
    return rows


def _continuations(model: PretrainedModel, rows: Sequence[Sequence[int]], added: int, sampled: bool) -> list[list[int]]:
    """Continues each row, greedily or with a fixed seed; returns the tokens that a decoder reads while doing so."""
    info = model.info()
    start = info.start_token_id
    sampling: Arguments = {"do_sample": True, "seed": 0} if sampled else {}
    # Rows have no end token here, since every new number of unfinished rows would be compiled.
    config = GenerationConfig(max_new_tokens=added, decoder_start_token_id=start, **sampling)
    ids, mask = _padded(rows, left=not model.is_encoder_decoder)
    step = own_engine(model, added + (1 if model.is_encoder_decoder else ids.shape[1]))
    continuations: list[list[int]] = []
    for first in range(0, len(rows), _ROWS):
        batch = slice(first, first + _ROWS)
        # Greedy search without interruptions is a function of its own, whose graph would be traced.
        generated = generation.generate(step, ids[batch], mask[batch], config, Controls(cancelled=lambda: False))
        for sequence in generated.sequences:
            tokens = sequence.tolist()
            ends = [position for position, token in enumerate(tokens) if token in info.eos_token_id]
            tokens = tokens[: ends[0] if ends else -1]  # the last token is generated but not read
            continuations.append([start, *tokens] if model.is_encoder_decoder else tokens)
    return continuations


def own_engine(model: PretrainedModel, length: int) -> KerasStep:
    """Returns the engine that continues texts of an export, up to a length in tokens.

    All of them have caches of one size, unless texts are longer, so that their functions are compiled once.
    """
    return KerasStep(model, max(length, min(_CACHED, model.max_answer_length or _CACHED)), jit_compile=False)


def as_inputs(passage: Passages) -> Passages:
    """Returns the arguments of the model's `call` for passages of one length."""
    inputs = {name: array for name, array in passage.items() if name not in ("decoder_tokens", "compared")}
    decoder_tokens = passage.get("decoder_tokens")
    if decoder_tokens is None:
        return inputs
    ids = passage["input_ids"]
    of_encoder, of_decoder = (ids[decoder_tokens == part].reshape(len(ids), -1) for part in (0, 1))
    return {"input_ids": of_encoder, "decoder_input_ids": of_decoder}


def batches(model: PretrainedModel, arrays: Passages) -> list[Passages]:
    """Returns passages in batches without padding, which are read several times as fast as one by one.

    A decoder reads all of them as one running text, in windows, as is usual for calibration; other models read those of
    equal lengths together.
    """
    lengths = arrays["attention_mask"].sum(axis=1)
    if model.generates and not model.is_encoder_decoder:
        arrays = _windows(arrays["input_ids"][arrays["attention_mask"] > 0], min(_WINDOW, model.max_length or _WINDOW))
        lengths = arrays["attention_mask"].sum(axis=1)
    of_decoder = arrays["decoder_tokens"].sum(axis=1) if "decoder_tokens" in arrays else np.zeros_like(lengths)
    alone = getattr(model.backbone, "batch_dependent", False)
    found = []
    for (length, _), group in groupby(np.lexsort((of_decoder, lengths)), lambda row: (lengths[row], of_decoder[row])):
        rows, most = list(group), 1 if alone else max(1, _READ_TOKENS // length)
        for first in range(0, len(rows), most):
            part = rows[first : first + most]
            found.append(
                {name: arr[part] if name in OWN_LENGTHS else arr[part, :length] for name, arr in arrays.items()}
            )
    return found


def _windows(tokens: np.ndarray, length: int) -> Passages:
    """Cuts a text into windows, of which the last may be shorter."""
    rows = [tokens[start : start + length] for start in range(0, len(tokens), length)]
    ids, mask = _padded(rows)
    return {"input_ids": ids, "attention_mask": mask}


def conversation_rows(
    model: PretrainedModel, conversations: Iterable[Sequence[str]], limit: int, answered: bool
) -> list[list[int]]:
    """Returns the tokens of conversations in the model's chat template; none if there is no template.

    Turns are omitted from the beginning of a conversation that is longer than the limit.

    Args:
        model: A decoder.
        conversations: Messages of a user and of an assistant in turn.
        limit: Number of tokens that a conversation should not exceed.
        answered: Whether rows end with the last answer, instead of the beginning of the next one.
    """
    tokenizer = model.tokenizer
    if tokenizer is None or tokenizer.chat_template is None:
        return []
    rows = []
    for texts in conversations:
        messages = [
            {"role": role, "content": text} for role, text in zip(cycle(("user", "assistant")), texts, strict=False)
        ]
        if answered and len(messages) > 1:
            messages = messages[: len(messages) // 2 * 2]
        for first in range(0, len(messages), 2):
            try:
                encoded = tokenizer.apply_chat_template(messages[first:], add_generation_prompt=not answered)
            except ChatTemplateError:  # a template for other roles
                return []
            row = encoded.input_ids[0].tolist()
            if len(row) <= limit:
                break
        rows.append(row)
    return rows


def few_tokens(model: PretrainedModel) -> Passages:
    """Returns arguments of the model's `call` with a few tokens, for what does not depend on the tokens."""
    ids = np.ones((1, _FEW), "int32")
    if model.is_encoder_decoder and model.generates:
        return {"input_ids": ids, "decoder_input_ids": ids}
    # Texts with a word and a label, of a model that finds spans.
    slots = {name: ids[:, :1] for name in OWN_LENGTHS if name in model.input_names}
    return {"input_ids": ids, "attention_mask": ids, **slots}


def compared(output: np.ndarray, passage: Passages) -> np.ndarray:
    """Returns those of the answers `(1, T, ...)` to a passage that are compared: the last ones, or all of them."""
    return output if "compared" not in passage else output[:, -int(passage["compared"].sum()) :]


def single_pass_references(
    model: PretrainedModel, references: Mapping[str, np.ndarray], tokens: int | None = None
) -> dict[str, np.ndarray]:
    """Converts references of stepwise generation into references of a single forward pass.

    In that pass, a generating model reads each prompt together with the tokens that it generated when the references
    were recorded; its answers along these tokens are the recorded ones.

    Args:
        model: The model that the references were recorded with.
        references: Result of `references.record`.
        tokens: Number of generated tokens to keep, from the first; all by default.

    Returns:
        References like those of `record_forward`, with passages as inputs.
    """
    if not model.generates:
        return dict(references)
    generated = references["tokens"][:, :tokens]
    count = generated.shape[1]
    prompts = [
        ids[mask > 0]
        for ids, mask in zip(references["input.input_ids"], references["input.attention_mask"], strict=True)
    ]
    # A decoder-only model starts with the last token of the prompt.
    starts = [*references["input.first"]] if model.is_encoder_decoder else [generated[0, :0]] * len(prompts)
    rows = [np.concatenate(parts) for parts in zip(prompts, starts, generated[:, :-1], strict=True)]
    ids, mask = _padded(rows)
    last = stacked([np.arange(len(row)) >= len(row) - count for row in rows])
    converted = {"input.input_ids": ids, "input.attention_mask": mask}
    converted["input.decoder_tokens" if model.is_encoder_decoder else "input.compared"] = last
    answer_mask = references["asked"][:, :count]
    for name, array in references.items():
        if name.startswith("output."):
            converted[name] = stacked([row[:count][kept > 0] for row, kept in zip(array, answer_mask, strict=True)])
    made_up = {name: references[name] for name in ("made_up",) if name in references}
    return {**converted, **made_up, "asked": answer_mask}


def shortest(references: Mapping[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
    """Selects the references of the shortest texts, up to a total number of tokens, but of at least one text."""
    lengths = references["input.attention_mask"].sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    count = max(1, int((np.cumsum(lengths[order]) <= tokens).sum()))
    rows = np.sort(order[:count])
    return {name: array[rows] if array.ndim else array for name, array in references.items()}
