"""The interface of a bundle: every name on the wire, and what each signature and each tensor is for.

Foreign runtimes dictate the names: LiteRT-LM and LiteRT.js those of TFLite files, transformers.js, optimum and ONNX
Runtime GenAI those of ONNX files. They are spelled here alone. Exporters take them from here, `described` says in plain
values what they mean, the manifest (version 2) holds these values, and engines, checks and model cards read them. No
Keras and no engine is needed here.

Letters: `B` batch, `H` heads of keys and values, `S` slots of a cache, `M` tokens of an encoded text, `V` vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Role(StrEnum):
    """What a signature does."""

    FORWARD = "forward"
    """Reads whole texts and answers at once."""
    ENCODE = "encode"
    """Reads a text and returns what the decoder attends to."""
    PREFILL = "prefill"
    """Reads tokens into the caches, without logits."""
    DECODE = "decode"
    """Reads the next tokens of one or more texts, with logits."""
    VERIFY = "verify"
    """Reads several tokens of one text, with logits of each: a check of guessed tokens."""
    GENERATE = "generate"
    """Writes whole texts in the graph."""
    TOKENIZE = "tokenize"
    """Reads strings and returns ids."""
    OTHER = "other"
    """Named by somebody else."""


class Kind(StrEnum):
    """What a tensor holds."""

    IDS = "ids"
    """Token ids of a text, `(B, T)`."""
    MASK = "mask"
    """1 for real tokens, 0 for padding, `(B, T)`."""
    SEGMENTS = "segments"
    """Index of the text that a token belongs to, `(B, T)`."""
    POSITIONS = "positions"
    """Positions of the tokens in their texts, `(B, T)`."""
    SLOTS = "slots"
    """Slots of the cache that the tokens are written to."""
    MEMORY = "memory"
    """Hidden states of an encoded text, `(B, M, E)`."""
    MEMORY_MASK = "memory_mask"
    """1 for real tokens of an encoded text, `(B, M)`."""
    CACHE_LENGTH = "cache_length"
    """Number of tokens in the caches, `(1,)`; for buffers with room to spare."""
    KEY = "key"
    """Keys of earlier tokens, `(B, H, S, D)`."""
    VALUE = "value"
    """Values of earlier tokens, likewise."""
    CROSS_KEY = "cross_key"
    """Keys of an encoded text, `(B, H, M, D)`."""
    CROSS_VALUE = "cross_value"
    """Values of an encoded text, likewise."""
    LOGITS = "logits"
    """Scores of the next token, `(B, T, V)`."""
    TEXT = "text"
    """Strings, `(B,)`."""
    OTHER = "other"
    """An answer of the task, under its own name, or a setting."""


CACHES = (Kind.KEY, Kind.VALUE)
CROSS_CACHES = (Kind.CROSS_KEY, Kind.CROSS_VALUE)


@dataclass(frozen=True)
class TensorInfo:
    """One input or output.

    Attributes:
        shape: Sizes; a string is a symbolic dimension, such as `"batch_size"`.
        dtype: `"int32"`, `"int64"`, `"float32"` or `"string"`.
        kind: What it holds, see `Kind`.
        layer: Layer of a cache, from 0 on.
        row: Row of the batch that a cache belongs to, where each row has a cache of its own.
        continues: Of an output: the input that it is the next state of.
    """

    shape: tuple[int | str, ...]
    dtype: str
    kind: str | None = None
    layer: int | None = None
    row: int | None = None
    continues: str | None = None


@dataclass(frozen=True)
class Signature:
    """One function of a model file.

    Attributes:
        file: Path relative to the bundle.
        inputs: Tensors by name.
        outputs: Likewise.
        role: What it does, see `Role`.
        rows: Texts of one call; `None` for any number.
        tokens: Tokens of each text in one call; `None` for any number.
        cache_length: Slots of the caches that the tokens attend to, the first ones; `None` for any number.
    """

    file: str
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    role: str | None = None
    rows: int | None = None
    tokens: int | None = None
    cache_length: int | None = None

    def named(self, *kinds: Kind) -> list[str]:
        """Inputs of these kinds, in the order of the signature."""
        return [name for name, info in self.inputs.items() if info.kind in kinds]

    def input(self, kind: Kind) -> str | None:
        """The one input of that kind, if there is one."""
        return next(iter(self.named(kind)), None)

    def output(self, kind: Kind) -> str | None:
        """The one output of that kind, if there is one."""
        return next((name for name, info in self.outputs.items() if info.kind == kind), None)

    def continued(self) -> dict[str, str]:
        """Outputs by the inputs that they continue."""
        return {info.continues: name for name, info in self.outputs.items() if info.continues is not None}

    def caches(self, *kinds: Kind) -> dict[int | None, list[str]]:
        """Inputs of these kinds of caches by row, ordered by layer and kind: the same order in every signature."""
        found: dict[int | None, list[str]] = {}
        for name in sorted(self.named(*kinds), key=lambda name: (self.inputs[name].layer, self.inputs[name].kind)):
            found.setdefault(self.inputs[name].row, []).append(name)
        return found


# Names of inputs and outputs.
INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS, POSITION_IDS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
)
TOKENS, INPUT_POS, ENCODER_MASK = "tokens", "input_pos", "encoder_mask"
ENCODER_STATES, ENCODER_ATTENTION_MASK, CACHE_LENGTH = "encoder_hidden_states", "encoder_attention_mask", "cache_length"
LOGITS, LAST_HIDDEN_STATE, TEXT = "logits", "last_hidden_state", "text"
PROBABILITIES = "probabilities"
"""An output `(B, C)`: a softmax or sigmoid is part of the graph, and nobody applies another one."""
SENTENCE_EMBEDDING = "sentence_embedding"
"""An output `(B, E)`: the mean of the tokens' vectors is part of the graph."""

# Names of signatures, and of ONNX files without suffix.
MODEL, ENCODER_MODEL, DECODER_MODEL = "model", "encoder_model", "decoder_model_merged"
SERVING_DEFAULT, ON_TOKENS = "serving_default", "tokens"
ENCODE, PREFILL, DECODE, GENERATE, SAMPLE, TOKENIZE = "encode", "prefill", "decode", "generate", "sample", "tokenize"

_KINDS = {
    INPUT_IDS: Kind.IDS,
    TOKENS: Kind.IDS,
    ATTENTION_MASK: Kind.MASK,
    TOKEN_TYPE_IDS: Kind.SEGMENTS,
    POSITION_IDS: Kind.POSITIONS,
    INPUT_POS: Kind.SLOTS,
    ENCODER_MASK: Kind.MEMORY_MASK,
    ENCODER_ATTENTION_MASK: Kind.MEMORY_MASK,
    ENCODER_STATES: Kind.MEMORY,
    CACHE_LENGTH: Kind.CACHE_LENGTH,
    LOGITS: Kind.LOGITS,
    TEXT: Kind.TEXT,
}
_ROLES = {
    ENCODER_MODEL: Role.ENCODE,
    DECODER_MODEL: Role.DECODE,
    SERVING_DEFAULT: Role.FORWARD,
    ON_TOKENS: Role.FORWARD,
    GENERATE: Role.GENERATE,
    SAMPLE: Role.GENERATE,
    TOKENIZE: Role.TOKENIZE,
}
_STATIC_CACHE = re.compile(r"(?P<prefix>kv_cache|cross)_(?P<half>[kv])_(?P<layer>\d+)(?:_row_(?P<row>\d+))?")
_GROWING_CACHE = re.compile(
    r"(?P<prefix>past_key_values|present)\.(?P<layer>\d+)(?:\.(?P<part>decoder|encoder))?\.(?P<half>key|value)"
)
_PAST, _PRESENT = "past_key_values", "present"
_SIZED = re.compile(
    r"(?P<role>forward|encode|prefill|decode|verify)(?:_rows_(?P<rows>\d+))?(?:_(?P<sizes>\d+(?:_\d+)?))?"
)


def forward_name(length: int) -> str:
    """A TFLite signature that reads texts of up to `length` tokens at once."""
    return f"forward_{length}"


def encode_name(length: int) -> str:
    """A TFLite signature that encodes texts of up to `length` tokens."""
    return f"{ENCODE}_{length}"


def prefill_name(length: int) -> str:
    """A TFLite signature that reads `length` tokens of a prompt."""
    return f"{PREFILL}_{length}"


def step_name(rows: int = 1, tokens: int = 1, cache_length: int | None = None) -> str:
    """A TFLite signature with logits: `decode`, `decode_128`, `decode_rows_8`, `decode_rows_8_128`, `verify_4_128`."""
    name = f"verify_{tokens}" if tokens > 1 else f"{DECODE}_rows_{rows}" if rows > 1 else DECODE
    return name if cache_length is None else f"{name}_{cache_length}"


def static_caches(layer: int, row: int | None = None, cross: bool = False) -> tuple[str, str]:
    """Keys and values of a layer in TFLite files and SavedModels; `row` where each row has a cache of its own."""
    suffix = "" if row is None else f"_row_{row}"
    prefix = "cross" if cross else "kv_cache"
    return f"{prefix}_k_{layer}{suffix}", f"{prefix}_v_{layer}{suffix}"


def growing_caches(layer: int | str, cross: bool | None = None, present: bool = False) -> tuple[str, str]:
    """Keys and values of a layer in ONNX files.

    Args:
        layer: From 0 on, or a placeholder such as `"%d"`.
        cross: Those of the encoded text or of the decoder, in an encoder-decoder; `None` in a decoder.
        present: The outputs.
    """
    part = "" if cross is None else ".encoder" if cross else ".decoder"
    prefix = _PRESENT if present else _PAST
    return f"{prefix}.{layer}{part}.key", f"{prefix}.{layer}{part}.value"


def described(name: str, signature: Signature) -> Signature:
    """The signature with what its names mean; one that is described already is returned as it is.

    Manifests of version 1 hold names alone, and this is the one place that takes names apart.
    """
    if signature.role is not None:
        return signature
    inputs = {key: _described(key, info) for key, info in signature.inputs.items()}
    outputs = {key: _described(key, info, inputs) for key, info in signature.outputs.items()}
    signature = replace(signature, inputs=inputs, outputs=outputs)
    ids = next((info for info in inputs.values() if info.kind == Kind.IDS), None)
    rows, tokens = (_number(ids, axis) for axis in (0, 1))
    lengths = [_number(info, 2) for info in inputs.values() if info.kind in (*CACHES, *CROSS_CACHES)]
    longest = max((length for length in lengths if length is not None), default=None)
    found = _SIZED.fullmatch(name)
    if found is not None and found["role"] in (DECODE, "verify"):
        sizes = [int(size) for size in (found["sizes"] or "").split("_") if size]
        limited = sizes[1:] if found["role"] == "verify" else sizes
        longest = limited[0] if limited else longest
    role = _role(name, signature)
    return replace(signature, role=role, rows=rows, tokens=tokens, cache_length=longest)


def _described(name: str, info: TensorInfo, inputs: Mapping[str, TensorInfo] | None = None) -> TensorInfo:
    """A tensor with what its name means; an output continues the input of its own name, or the past of a present."""
    if info.kind is not None:
        return info
    continues = None
    if inputs is not None:
        past = name.replace(_PRESENT, _PAST, 1) if name.startswith(f"{_PRESENT}.") else name
        continues = past if past in inputs else None
    if found := _STATIC_CACHE.fullmatch(name):
        cross, key = found["prefix"] == "cross", found["half"] == "k"
        row = None if found["row"] is None else int(found["row"])
    elif found := _GROWING_CACHE.fullmatch(name):
        cross, key, row = found["part"] == "encoder", found["half"] == "key", None
    else:
        return replace(info, kind=_KINDS.get(name, Kind.OTHER), continues=continues)
    kind = (CROSS_CACHES if cross else CACHES)[not key]
    return replace(info, kind=kind, layer=int(found["layer"]), row=row, continues=continues)


def _role(name: str, signature: Signature) -> Role:
    """The role of a signature by its name, and where several have one name, by its tensors."""
    if name == MODEL:
        return Role.DECODE if signature.named(*CACHES) else Role.FORWARD
    if name in _ROLES:
        return _ROLES[name]
    found = _SIZED.fullmatch(name)
    return Role.OTHER if found is None else Role(found["role"])


def _number(info: TensorInfo | None, axis: int) -> int | None:
    size = None if info is None or len(info.shape) <= axis else info.shape[axis]
    return size if isinstance(size, int) else None


def of_role(signatures: Mapping[str, Signature], *roles: Role) -> Iterator[tuple[str, Signature]]:
    """Signatures of these roles by name, in the order of the bundle."""
    return ((name, signature) for name, signature in signatures.items() if signature.role in roles)
