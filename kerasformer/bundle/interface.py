"""The interface of a bundle: names of signatures and tensors, and the meaning of each.

The names are given by other runtimes: LiteRT-LM and LiteRT.js for TFLite files; transformers.js, optimum and ONNX
Runtime GenAI for ONNX files. They are defined only here. Exporters use these constants, `described` derives the meaning
from the names, the manifest (version 2) stores it, and engines, verification and model cards read it. This module needs
neither Keras nor an engine.

Shape letters: `B` batch, `T` tokens, `E` hidden size, `H` key and value heads, `S` cache slots, `D` head size,
`M` tokens of the encoded text, `V` vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

MAX_CAPACITY = 65_536
"""Maximum number of slots of a cache, whose memory is allocated at the start, and maximum length of a text."""


class Role(StrEnum):
    """Role of a signature."""

    FORWARD = "forward"
    """Processes whole texts in one call."""
    ENCODE = "encode"
    """Encodes a text; returns the tensors that the decoder attends to."""
    PREFILL = "prefill"
    """Writes tokens of a prompt into the caches; returns no logits."""
    SHORT_PREFILL = "short_prefill"
    """As `PREFILL`, but attends only to the first slots; faster while the text is that short."""
    DECODE = "decode"
    """Processes the next tokens of one or more texts; returns logits."""
    VERIFY = "verify"
    """Processes several tokens of one text and returns logits for each, to check guessed tokens."""
    GENERATE = "generate"
    """Generates whole texts in the graph."""
    TOKENIZE = "tokenize"
    """Converts strings to token ids."""
    ATTENTION = "attention"
    """Reads whole texts and returns the attention weights of all layers."""
    OTHER = "other"
    """Another signature."""


class Kind(StrEnum):
    """Content of a tensor."""

    IDS = "ids"
    """Token ids of a text, `(B, T)`."""
    DECODER_IDS = "decoder_ids"
    """Token ids that the decoder of an encoder-decoder reads, `(B, T)`, beside those of the encoder."""
    MASK = "mask"
    """1 for real tokens, 0 for padding, `(B, T)`."""
    SEGMENTS = "segments"
    """Index of the segment that each token belongs to (`token_type_ids`), `(B, T)`."""
    POSITIONS = "positions"
    """Positions of the tokens in their texts, `(B, T)`."""
    SLOTS = "slots"
    """Slots of the cache that the tokens are written to. If there is a `RECURRENT` state, padding has the slot -1."""
    MEMORY = "memory"
    """Hidden states of an encoded text, `(B, M, E)`."""
    MEMORY_MASK = "memory_mask"
    """1 for real tokens of an encoded text, `(B, M)`."""
    CACHE_LENGTH = "cache_length"
    """Number of tokens in the caches, `(1,)`; for buffers that have unused slots."""
    LOGITS_START = "logits_start"
    """Number of tokens at the start of the input whose logits are not computed, `(1,)`."""
    WORD_SLOTS = "word_slots"
    """Slot of the first token of each word, `(B, W)`; -1 for padding."""
    LABEL_SLOTS = "label_slots"
    """Slot of the token that marks each label, `(B, C)`; -1 for padding."""
    KEY = "key"
    """Keys of earlier tokens, `(B, H, S, D)`."""
    VALUE = "value"
    """Values of earlier tokens, `(B, H, S, D)`."""
    STATE = "state"
    """What a layer without keys and values keeps of earlier tokens, `(B, H, S, D)`, such as inputs of a convolution."""
    RECURRENT = "recurrent"
    """State that all earlier tokens have changed, without an axis of tokens, `(B, H, K, V)`; 0 before a text in an ONNX
    file, and of any content there in a TFLite file. It is copied as a whole, and no token can be discarded from it."""
    CROSS_KEY = "cross_key"
    """Keys of an encoded text, `(B, H, M, D)`."""
    CROSS_VALUE = "cross_value"
    """Values of an encoded text, `(B, H, M, D)`."""
    ADAPTER_A = "adapter_a"
    """Matrix `A` of a low-rank adapter, `(in, r)`; `(r, in)` in TFLite files."""
    ADAPTER_B = "adapter_b"
    """Matrix `B` of a low-rank adapter, or a part of it, times its scale, `(r, out)`; `(out, r)` in TFLite files."""
    ENCODER_ATTENTION = "encoder_attention"
    """Attention weights of a layer of an encoder, `(B, Q, T, T)`, where `Q` are the query heads."""
    DECODER_ATTENTION = "decoder_attention"
    """Attention weights of a layer of a decoder for its own text, `(B, Q, T, T)`."""
    CROSS_ATTENTION = "cross_attention"
    """Attention weights of a layer of a decoder for an encoded text, `(B, Q, T, M)`."""
    LOGITS = "logits"
    """Scores of the next token, `(B, T, V)`."""
    TEXT = "text"
    """Strings, `(B,)`."""
    OTHER = "other"
    """Another tensor: an output of the task, or a setting."""


KEY_AND_VALUE = (Kind.KEY, Kind.VALUE)
CACHES = (*KEY_AND_VALUE, Kind.STATE, Kind.RECURRENT)
CROSS_CACHES = (Kind.CROSS_KEY, Kind.CROSS_VALUE)
ADAPTERS = (Kind.ADAPTER_A, Kind.ADAPTER_B)
ATTENTIONS = (Kind.ENCODER_ATTENTION, Kind.DECODER_ATTENTION, Kind.CROSS_ATTENTION)


@dataclass(frozen=True)
class TensorInfo:
    """Description of an input or output.

    Attributes:
        shape: Dimensions; a string is a symbolic dimension, such as `"batch_size"`.
        dtype: `"int32"`, `"int64"`, `"float32"`, `"string"`, or for a cache also `"int8"`.
        kind: Content, one of `Kind`.
        layer: For a cache or attention weights, index of the layer, starting at 0.
        row: For a cache of a single row, index of that row in the batch.
        continues: For an output that is a new state, the input that it replaces in the next call.
        in_place: For an output that continues an input, whether both may be one buffer; `None` if unknown, as in
            bundles of earlier versions.
        margin: For the cache of a layer that reads only the last tokens, if it has fewer slots than the text has
            tokens: the number of tokens that can be discarded. In a TFLite file, slot `p` of the text is at index
            `p % S` of such a cache, and as many tokens of padding can follow a prompt. In an ONNX file, the cache has
            the last `S` slots in the order of the text, and 0 before it. `None` for a cache with a slot for each token,
            0 for one without slots.
        module: For a matrix of an adapter, path of the adapted module in `transformers`.
        part: For a matrix `B`, index of the part of its outputs.
        count: For an array of integers, number of values that an entry may have; `None` if it is not known here.
        default: For an array of integers, entry if the caller does not pass the array; -1 stands for none.
        groups: For a matrix of an adapter, number of groups of outputs of the module. Each group has an equal share of
            every part, in the order of the parts.
    """

    shape: tuple[int | str, ...]
    dtype: str
    kind: str | None = None
    layer: int | None = None
    row: int | None = None
    continues: str | None = None
    in_place: bool | None = None
    margin: int | None = None
    module: str | None = None
    part: int | None = None
    groups: int | None = None
    count: int | None = None
    default: int | None = None


@dataclass(frozen=True)
class Signature:
    """Description of a function of a model file.

    Attributes:
        file: Path of the model file, relative to the bundle.
        inputs: Inputs by name.
        outputs: Outputs by name.
        role: Role, one of `Role`.
        rows: Number of texts in one call; `None` for any number.
        tokens: Number of tokens of each text in one call; `None` for any number.
        cache_length: Number of slots that the tokens attend to, counted from the first; `None` for any number.
    """

    file: str
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    role: str | None = None
    rows: int | None = None
    tokens: int | None = None
    cache_length: int | None = None

    def named(self, *kinds: Kind) -> list[str]:
        """Returns the names of the inputs of these kinds, in the order of the signature."""
        return [name for name, info in self.inputs.items() if info.kind in kinds]

    def input(self, kind: Kind) -> str | None:
        """Returns the name of the first input of this kind, or `None`."""
        return self._first["inputs"].get(kind)

    def output(self, kind: Kind) -> str | None:
        """Returns the name of the first output of this kind, or `None`."""
        return self._first["outputs"].get(kind)

    @cached_property
    def _first(self) -> dict[str, dict[str | None, str]]:
        """Names of the first inputs and outputs by kind: steps ask for them again and again."""
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        return {side: {info.kind: n for n, info in reversed(infos.items())} for side, infos in sides.items()}

    def continued(self) -> dict[str, str]:
        """Returns the names of outputs by the inputs that they continue."""
        return {info.continues: name for name, info in self.outputs.items() if info.continues is not None}

    def in_place(self) -> frozenset[str] | None:
        """Returns the inputs that may share a buffer with the output that continues them; `None` if unknown."""
        states = [info for info in self.outputs.values() if info.continues is not None]
        if any(info.in_place is None for info in states):
            return None
        return frozenset(info.continues for info in states if info.continues is not None and info.in_place)

    def with_in_place(self, inputs: Iterable[str]) -> Signature:
        """Returns the signature with `TensorInfo.in_place` set for all outputs that continue an input.

        Args:
            inputs: Names of the inputs that may share a buffer with the output that continues them.
        """
        shared = frozenset(inputs)
        outputs = {
            name: info if info.continues is None else replace(info, in_place=info.continues in shared)
            for name, info in self.outputs.items()
        }
        return replace(self, outputs=outputs)

    def caches(self, *kinds: Kind) -> dict[int | None, list[str]]:
        """Returns the names of cache inputs by row, in the same order (layer, kind) in every signature."""
        names: dict[int | None, list[str]] = {}
        for name in sorted(self.named(*kinds), key=lambda name: (self.inputs[name].layer, self.inputs[name].kind)):
            names.setdefault(self.inputs[name].row, []).append(name)
        return names


# Names of inputs and outputs.
INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS, POSITION_IDS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
)
DECODER_INPUT_IDS = "decoder_input_ids"
TOKENS, INPUT_POS, ENCODER_MASK = "tokens", "input_pos", "encoder_mask"
ENCODER_STATES, ENCODER_ATTENTION_MASK, CACHE_LENGTH = "encoder_hidden_states", "encoder_attention_mask", "cache_length"
LOGITS_START = "logits_start"
LOGITS, LAST_HIDDEN_STATE, TEXT = "logits", "last_hidden_state", "text"
PROBABILITIES = "probabilities"
"""Output `(B, C)` after softmax or sigmoid, which is part of the graph and must not be applied again."""
PROMPT_MASK = "prompt_mask"
"""Name of the input that is 1 for tokens of a prompt, of a model for embeddings that does not pool them."""
WORD_SLOTS, LABEL_SLOTS = "word_slots", "label_slots"
"""Names of the inputs `(B, W)` and `(B, C)` with the slot of the first token of each word, and of the token that marks
each label, of a model that finds spans of named types; -1 for padding, at the end of rows."""
SPAN_LOGITS = "span_logits"
"""Output `(B, W, K, C)` of such a model: the score of the span of `k + 1` words from each word for each label."""
OWN_LENGTHS = (WORD_SLOTS, LABEL_SLOTS)
"""Names of the inputs of texts that have no entry for each token."""
SENTENCE_EMBEDDING = "sentence_embedding"
"""Output `(B, E)`, the mean of the token vectors, computed in the graph."""
TOKEN_EMBEDDINGS, TOKEN_WEIGHTS = "token_embeddings", "token_weights"
"""Outputs `(B, T, D)` and `(B, T)` with the vector of each token for retrieval, and its weight."""
EXPANSION_MASK = "expansion_mask"
"""Name of the input that is 1 for the tokens that extend a query, to which no token attends."""
SPARSE_EMBEDDING = "sparse_embedding"
"""Output `(B, V)` with the weight of each token of the vocabulary for a text, most of them 0."""

# Names of the tensors of a table of token vectors.
TABLE, TABLE_SCALES, TABLE_SKIPPED = "embeddings", "scales", "skipped"
"""float32 `(V, E)`; the scale of each row of integers, float32 `(V,)`; ids of tokens without a part in the mean,
int32 `(N,)`, which may be missing."""
TABLE_BITS = {8: "embeddings_int8", 4: "embeddings_int4"}
"""Instead of `TABLE`, uint8 levels by their number of bits: `(V, E)`, or `(V, ceil(E / 2))` with the first of two
levels in the lower half of a byte. A value is `(level - 2^(bits - 1)) * scale`."""

# Names of signatures, and of ONNX files without their suffix.
MODEL, ENCODER_MODEL, DECODER_MODEL = "model", "encoder_model", "decoder_model_merged"
ATTENTION_MODEL = "attention_model"
SERVING_DEFAULT, ON_TOKENS = "serving_default", "tokens"
ENCODE, PREFILL, DECODE, GENERATE, SAMPLE, TOKENIZE = "encode", "prefill", "decode", "generate", "sample", "tokenize"

_KINDS = {
    INPUT_IDS: Kind.IDS,
    DECODER_INPUT_IDS: Kind.DECODER_IDS,
    TOKENS: Kind.IDS,
    ATTENTION_MASK: Kind.MASK,
    TOKEN_TYPE_IDS: Kind.SEGMENTS,
    POSITION_IDS: Kind.POSITIONS,
    INPUT_POS: Kind.SLOTS,
    ENCODER_MASK: Kind.MEMORY_MASK,
    ENCODER_ATTENTION_MASK: Kind.MEMORY_MASK,
    ENCODER_STATES: Kind.MEMORY,
    CACHE_LENGTH: Kind.CACHE_LENGTH,
    LOGITS_START: Kind.LOGITS_START,
    WORD_SLOTS: Kind.WORD_SLOTS,
    LABEL_SLOTS: Kind.LABEL_SLOTS,
    LOGITS: Kind.LOGITS,
    TEXT: Kind.TEXT,
}
_ROLES = {
    ENCODER_MODEL: Role.ENCODE,
    DECODER_MODEL: Role.DECODE,
    ATTENTION_MODEL: Role.ATTENTION,
    SERVING_DEFAULT: Role.FORWARD,
    ON_TOKENS: Role.FORWARD,
    GENERATE: Role.GENERATE,
    SAMPLE: Role.GENERATE,
    TOKENIZE: Role.TOKENIZE,
}
_STATIC_CACHE = re.compile(
    r"(?P<prefix>kv_cache_k|kv_cache_v|cross_k|cross_v|state_[a-z]+)_(?P<layer>\d+)(?:_row_(?P<row>\d+))?"
)
_GROWING_CACHE = re.compile(
    r"(?:past_key_values|present)\.(?P<layer>\d+)(?:\.(?P<part>decoder|encoder))?\.(?P<half>key|value)"
)
_GROWING_STATE = re.compile(r"(?:past|present)_(?P<name>[a-z]+)\.(?P<layer>\d+)")
_STATIC_KINDS = {
    "kv_cache_k": Kind.KEY,
    "kv_cache_v": Kind.VALUE,
    "cross_k": Kind.CROSS_KEY,
    "cross_v": Kind.CROSS_VALUE,
}
_ATTENTION = re.compile(r"(?P<stack>encoder|decoder|cross)_attentions_(?P<layer>\d+)")
_PAST, _PRESENT = "past_key_values", "present"
_SIZED = re.compile(
    r"(?P<role>forward|encode|prefill|short_prefill|decode|verify|attention)(?:_rows_(?P<rows>\d+))?(?:_(?P<sizes>\d+(?:_\d+)?))?"
)


def forward_name(length: int) -> str:
    """Returns the name of the TFLite signature that processes texts of up to `length` tokens."""
    return f"forward_{length}"


def encode_name(length: int) -> str:
    """Returns the name of the TFLite signature that encodes texts of up to `length` tokens."""
    return f"{ENCODE}_{length}"


def attention_name(length: int) -> str:
    """Returns the name of the TFLite signature that returns the attention weights of texts of `length` tokens."""
    return f"attention_{length}"


def attention_output(kind: Kind, layer: int) -> str:
    """Returns the name of the output with the attention weights of a layer.

    Args:
        kind: One of `ATTENTIONS`.
        layer: Index of the layer, starting at 0.
    """
    return f"{kind.value}s_{layer}"


def prefill_name(length: int, cache_length: int | None = None) -> str:
    """Returns the name of the TFLite signature that processes `length` tokens of a prompt.

    Examples: `prefill_32`, `short_prefill_32_128`.
    """
    return f"{PREFILL}_{length}" if cache_length is None else f"short_{PREFILL}_{length}_{cache_length}"


def step_name(rows: int = 1, tokens: int = 1, cache_length: int | None = None) -> str:
    """Returns the name of a TFLite decode or verify signature.

    Examples: `decode`, `decode_128`, `decode_rows_8`, `decode_rows_8_128`, `verify_4_128`.
    """
    name = f"verify_{tokens}" if tokens > 1 else f"{DECODE}_rows_{rows}" if rows > 1 else DECODE
    return name if cache_length is None else f"{name}_{cache_length}"


def static_caches(
    layer: int, row: int | None = None, cross: bool = False, tensors: Sequence[str] = KEY_AND_VALUE
) -> tuple[str, ...]:
    """Returns the names of the tensors of a layer's cache in TFLite files and SavedModels.

    Args:
        layer: Index of the layer, starting at 0.
        row: Index of the row, if each row has a separate cache.
        cross: Whether the cache is that of the encoded text.
        tensors: What the layer calls its tensors, `CacheSpec.tensors`.
    """
    suffix = "" if row is None else f"_row_{row}"
    prefix = "cross" if cross else "kv_cache"
    names: dict[str, str] = {Kind.KEY: f"{prefix}_k", Kind.VALUE: f"{prefix}_v"}
    return tuple(f"{names.get(tensor, f'state_{tensor}')}_{layer}{suffix}" for tensor in tensors)


def growing_caches(
    layer: int | str, cross: bool | None = None, present: bool = False, tensors: Sequence[str] = KEY_AND_VALUE
) -> tuple[str, ...]:
    """Returns the names of the tensors of a layer's cache in ONNX files.

    Args:
        layer: Index of the layer, starting at 0, or a placeholder such as `"%d"`.
        cross: In an encoder-decoder, whether the cache is that of the encoded text; `None` for a decoder-only model.
        present: Whether to return the names of the outputs instead of the inputs.
        tensors: What the layer calls its tensors, `CacheSpec.tensors`.
    """
    part = "" if cross is None else ".encoder" if cross else ".decoder"
    prefix, state = (_PRESENT, "present") if present else (_PAST, "past")
    return tuple(
        f"{prefix}.{layer}{part}.{tensor}" if tensor in KEY_AND_VALUE else f"{state}_{tensor}.{layer}"
        for tensor in tensors
    )


def adapter_input(module: str, kind: Kind, part: int | None = None, dotted: bool = True) -> str:
    """Returns the name of the input for a matrix of an adapter: that of the tensor in PEFT's files.

    Args:
        module: Path of the adapted module in `transformers`.
        kind: `Kind.ADAPTER_A` or `Kind.ADAPTER_B`.
        part: Index of the part of `B`, if there are several.
        dotted: Whether the name may contain dots, as in ONNX files; they are underscores otherwise.
    """
    name = f"{module}.lora_{'A' if kind == Kind.ADAPTER_A else 'B'}.weight"
    name = name if part is None or kind == Kind.ADAPTER_A else f"{name}.{part}"
    return name if dotted else name.replace(".", "_")


def without_row(name: str) -> str:
    """Returns a tensor's name without the index of its row, if it has one."""
    match = _STATIC_CACHE.fullmatch(name)
    return name if match is None or match["row"] is None else name.removesuffix(f"_row_{match['row']}")


def without_sizes(name: str) -> str:
    """Returns a signature's name without its numbers, which signatures that differ only in sizes have in common."""
    match = _SIZED.fullmatch(name)
    return name if match is None else f"{match['role']}_rows" if match["rows"] else match["role"]


def described(name: str, signature: Signature) -> Signature:
    """Adds roles and kinds, derived from the names, to a signature; one that already has a role is returned unchanged.

    Manifests of version 1 contain names only. Names are parsed nowhere else.
    """
    if signature.role is not None:
        return signature
    inputs = {key: _described(key, info) for key, info in signature.inputs.items()}
    outputs = {key: _described(key, info, inputs) for key, info in signature.outputs.items()}
    signature = replace(signature, inputs=inputs, outputs=outputs)
    ids = next((info for info in inputs.values() if info.kind == Kind.IDS), None)
    rows, tokens = (_number(ids, axis) for axis in (0, 1))
    caches = [info for info in inputs.values() if info.kind in CACHES]
    if caches and all(info.margin is not None for info in caches):
        longest = None  # no cache limits the length of the text
    else:
        others = [info for info in inputs.values() if info.kind in CROSS_CACHES]
        lengths = [_number(info, 2) for info in (*caches, *others) if info.margin is None]
        longest = max((length for length in lengths if length is not None), default=None)
    match = _SIZED.fullmatch(name)
    if match is not None and match["role"] in (DECODE, "verify", Role.SHORT_PREFILL):
        sizes = [int(size) for size in (match["sizes"] or "").split("_") if size]
        lengths_in_name = sizes if match["role"] == DECODE else sizes[1:]
        longest = lengths_in_name[0] if lengths_in_name else longest
    role = _role(name, signature)
    return replace(signature, role=role, rows=rows, tokens=tokens, cache_length=longest)


def _described(name: str, info: TensorInfo, inputs: Mapping[str, TensorInfo] | None = None) -> TensorInfo:
    """Adds kind, layer and row to a tensor; an output continues the input of the same name, `present` the `past`."""
    if info.kind is not None:
        return info
    continues = None
    if inputs is not None:
        past = _past_of(name)
        continues = past if past in inputs else None
    row: int | None = None
    if match := _STATIC_CACHE.fullmatch(name):
        kind = _STATIC_KINDS.get(match["prefix"], Kind.STATE if info.margin != 0 else Kind.RECURRENT)
        row = None if match["row"] is None else int(match["row"])
    elif match := _GROWING_CACHE.fullmatch(name):
        kind = (CROSS_CACHES if match["part"] == "encoder" else KEY_AND_VALUE)[match["half"] == "value"]
    elif match := _GROWING_STATE.fullmatch(name):
        kind = Kind.STATE if info.margin != 0 else Kind.RECURRENT
    elif match := _ATTENTION.fullmatch(name):
        kind = Kind(f"{match['stack']}_attention")
    else:
        return replace(info, kind=_KINDS.get(name, Kind.OTHER), continues=continues)
    return replace(info, kind=kind, layer=int(match["layer"]), row=row, continues=continues)


def _past_of(name: str) -> str:
    """Returns the name of the input that an output would continue."""
    if _GROWING_STATE.fullmatch(name):
        return name.replace("present", "past", 1)
    return name.replace(_PRESENT, _PAST, 1) if name.startswith(f"{_PRESENT}.") else name


def _role(name: str, signature: Signature) -> Role:
    """Returns the role of a signature by its name, or by its tensors if the name is used for several roles."""
    if name == MODEL:
        return Role.DECODE if signature.named(*CACHES) else Role.FORWARD
    if name in _ROLES:
        return _ROLES[name]
    match = _SIZED.fullmatch(name)
    return Role.OTHER if match is None else Role(match["role"])


def _number(info: TensorInfo | None, axis: int) -> int | None:
    size = None if info is None or len(info.shape) <= axis else info.shape[axis]
    return size if isinstance(size, int) else None


def of_role(signatures: Mapping[str, Signature], *roles: Role) -> Iterator[tuple[str, Signature]]:
    """Yields the signatures of these roles with their names, in the order of the bundle."""
    return ((name, signature) for name, signature in signatures.items() if signature.role in roles)
