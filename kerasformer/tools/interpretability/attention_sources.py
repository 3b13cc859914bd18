"""The function `attention`, and what gives attention weights: Keras models, and bundles exported with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kerasformer import bundle
from kerasformer.basics.arguments import STRING, check, integer, optional
from kerasformer.bundle import ATTENTION_MASK, ATTENTIONS, DECODER_INPUT_IDS, INPUT_IDS, Kind, Manifest, ModelInfo
from kerasformer.engines import Step, WholeTexts
from kerasformer.errors import CapacityError, InputError
from kerasformer.files import sources
from kerasformer.generation import GenerationConfig, readable_token, request
from kerasformer.pipelines import open_source, open_step
from kerasformer.tokenization import Tokenizer, check_known
from kerasformer.tools.interpretability.attention import (
    Attention,
    LayerAttention,
    QueryKeys,
    StackAttention,
    TokenRow,
)
from kerasformer.tools.viz.attention_names import KINDS

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Weights:
    """Attention of a layer as its source gives it.

    Attributes:
        index: Index of the layer.
        weights: `(H, T, S)` float32.
        states: Queries and keys, if there are any.
    """

    index: int
    weights: np.ndarray
    states: QueryKeys | None = None


class _Source(Protocol):
    """A model that gives attention weights.

    Attributes:
        name: Name of the model.
        engine: `"keras"`, `"litert"` or `"onnx"`.
        info: Properties of the model.
        tokenizer: Its tokenizer.
        why_no_states: Why there are no queries and keys; empty if there are.
    """

    name: str
    engine: str
    info: ModelInfo
    tokenizer: Tokenizer
    why_no_states: str

    @property
    def generates(self) -> bool:
        """Whether the model generates texts."""
        ...

    def step(self) -> Step:
        """Returns the engine that generates."""
        ...

    def run(self, inputs: Arrays) -> dict[str, list[Weights]]:
        """Returns the weights of each kind for one text; inputs are int32 `(1, T)` by Hugging Face's names."""
        ...


class KerasSource:
    """A Keras model.

    Args:
        model: The model.
        name: Its name.
        tokenizer: Its tokenizer.
    """

    engine = "keras"
    why_no_states = ""

    def __init__(self, model: PretrainedModel, name: str, tokenizer: Tokenizer) -> None:
        self.model, self.name, self.tokenizer = model, name, tokenizer
        self.info = model.info()

    @property
    def generates(self) -> bool:
        """Whether the model generates texts."""
        return self.model.generates

    def step(self) -> Step:
        """Returns the engine that generates."""
        from kerasformer.models import KerasStep

        model: Any = self.model
        return KerasStep(model, jit_compile=False)  # compilation by XLA would take longer than one text

    def run(self, inputs: Arrays) -> dict[str, list[Weights]]:
        """Runs the model once."""
        from kerasformer.tools.interpretability.keras_attention import record

        return {
            kind: [Weights(each.index, each.weights, each.states) for each in layers]
            for kind, layers in record(self.model, inputs).items()
        }


class BundleSource:
    """A bundle with attention weights.

    Args:
        folder: Folder of the bundle.
        manifest: Its manifest.

    Raises:
        BundleError: it was exported without.
    """

    why_no_states = "a bundle gives attention weights alone. Pass the Keras model that it was exported from"

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.name, self.info = folder.name, manifest.info
        self._runner = WholeTexts(folder, manifest)
        self.engine = self._runner.engine
        self.tokenizer = Tokenizer.load(folder)

    @property
    def generates(self) -> bool:
        """Whether the model generates texts."""
        return bool(self.manifest.of_role(bundle.Role.DECODE))

    def step(self) -> Step:
        """Returns the engine that generates."""
        return open_step(open_source(None, self.folder, self.tokenizer))[0]

    def run(self, inputs: Arrays) -> dict[str, list[Weights]]:
        """Runs the signature of the bundle."""
        result: dict[str, list[Weights]] = {}
        kinds = dict(zip(ATTENTIONS, KINDS, strict=True))
        for info, array in self._runner.run(inputs):
            if info.kind in ATTENTIONS:
                result.setdefault(kinds[Kind(info.kind)], []).append(Weights(info.layer or 0, array[0]))
        return result


@dataclass(frozen=True)
class Reader:
    """Reads texts with a model and returns its attention.

    Attributes:
        source: The model.
        src_lang: Language of the text, for a multilingual encoder-decoder.
        tgt_lang: Language of the text that it writes.
    """

    source: _Source
    src_lang: str | None = None
    tgt_lang: str | None = None

    def read(self, a: str, b: str | None, max_new_tokens: int = 64) -> Attention:
        """Returns the attention; arguments as for `attention`."""
        tokenizer = self.source.tokenizer.for_languages(self.src_lang, self.tgt_lang)
        if self.source.info.is_encoder_decoder and self.source.generates:
            inputs, queries, keys = self._source_and_target(tokenizer, a, b, max_new_tokens)
            texts = {"encoder": (keys, keys), "decoder": (queries, queries), "cross": (queries, keys)}
        else:
            inputs, row = self._continued(tokenizer, a, b) if self.source.generates else self._encoded(tokenizer, a, b)
            texts = {"encoder": (row, row), "decoder": (row, row)}
        weights = self.source.run(inputs)
        if "cross" not in texts and weights.get("cross"):  # an encoder-decoder that does not generate
            target = _shifted_row(tokenizer, self.source.info, row)
            texts = {"encoder": (row, row), "decoder": (target, target), "cross": (target, row)}
        stacks = [
            StackAttention(
                kind,
                *texts[kind],
                tuple(LayerAttention(each.index, each.weights, each.states) for each in weights[kind]),
            )
            for kind in KINDS
            if weights.get(kind)
        ]
        if not stacks:
            raise InputError(
                f"This model has no attention weights. Expected: a model with attention. Received: {self.source.name}, "
                f"a {self.source.info.model_type}"
            )
        given = (a,) if b is None else (a, b)
        return Attention(self.source.name, self.source.engine, given, tuple(stacks), self.source.why_no_states)

    def _encoded(self, tokenizer: Tokenizer, a: str, b: str | None) -> tuple[Arrays, TokenRow]:
        """Returns the inputs of an encoder, and its tokens."""
        encoding = tokenizer(a, b) if b is not None else tokenizer(a)
        names = self.source.info.input_names
        inputs = {name: np.asarray(array) for name, array in encoding.inputs.items() if name in names}
        self._check(inputs[INPUT_IDS], self.source.info.max_length)
        return inputs, _row(tokenizer, inputs[INPUT_IDS][0], _filled(encoding.sequence_ids[0]))

    def _continued(self, tokenizer: Tokenizer, a: str, b: str | None) -> tuple[Arrays, TokenRow]:
        """Returns the inputs of a decoder, and its tokens: those of a text and of its continuation."""
        first = tokenizer.encode(a)
        second = [] if b is None else tokenizer.encode(b, add_special_tokens=False)
        ids = np.array([[*first, *second]], "int32")
        self._check(ids, self.source.info.max_length)
        segments = np.repeat([0, 1], (len(first), len(second)))
        return {INPUT_IDS: ids, ATTENTION_MASK: np.ones_like(ids)}, _row(tokenizer, ids[0], segments)

    def _source_and_target(
        self, tokenizer: Tokenizer, a: str, b: str | None, max_new_tokens: int
    ) -> tuple[Arrays, TokenRow, TokenRow]:
        """Returns the inputs of an encoder-decoder, the tokens that the decoder reads, and those of the encoder."""
        info, writer = self.source.info, tokenizer.writer
        encoding = tokenizer(info.prefix + a)
        ids, mask = encoding.input_ids, encoding.attention_mask
        self._check(ids, info.max_length)
        settings = {**info.generation, **tokenizer.target_settings(info.generation)}
        start = settings.get("decoder_start_token_id", info.start_token_id)
        if b is None:
            written = self._generated(tokenizer, settings, ids, mask, max_new_tokens)
        else:
            written = np.array(writer.encode(b), "int32")
        read = np.concatenate([[start], written[:-1]]).astype("int32")
        keys = _row(tokenizer, ids[0], np.zeros(ids.shape[1], "int32"))
        queries = _row(writer, read, np.zeros(len(read), "int32"), written)
        return {INPUT_IDS: ids, ATTENTION_MASK: mask, DECODER_INPUT_IDS: read[None]}, queries, keys

    def _generated(
        self, tokenizer: Tokenizer, settings: dict[str, Any], ids: np.ndarray, mask: np.ndarray, count: int
    ) -> np.ndarray:
        """Returns the tokens that the model writes greedily."""
        base = GenerationConfig.from_dict(settings)
        if not base.eos_token_id and self.source.info.eos_token_id:
            base = base.replace(eos_token_id=self.source.info.eos_token_id)
        step = self.source.step()
        greedy = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1}
        greedy["max_new_tokens"] = min(count, step.capacity - 1)
        output = request(greedy, base, tokenizer, open_step).generate(step, ids, mask)
        written: np.ndarray = np.asarray(output.sequences[0], "int32")
        return written

    def _check(self, ids: np.ndarray, limit: int | None) -> None:
        check_known(ids, self.source.tokenizer, self.source.info.vocab_size)
        if limit is not None and ids.shape[1] > limit:
            raise CapacityError(
                f"A text exceeds the model's maximum length. Expected at most {limit} tokens. "
                f"Received: {ids.shape[1]}. Shorten it"
            )


def shifted(info: ModelInfo, ids: np.ndarray) -> np.ndarray:
    """Returns what the decoder of an encoder-decoder that does not generate reads of a text.

    Args:
        info: Properties of the model.
        ids: Token ids, int32 `(1, T)`.
    """
    start = info.decoder_start_token_id
    return np.concatenate([ids[:, -1:] if start is None else np.full_like(ids[:, :1], start), ids[:, :-1]], axis=1)


def _shifted_row(tokenizer: Tokenizer, info: ModelInfo, row: TokenRow) -> TokenRow:
    segments = np.concatenate([row.segments[:1], row.segments[:-1]])
    return _row(tokenizer.writer, shifted(info, row.ids[None])[0], segments)


def _row(tokenizer: Tokenizer, ids: np.ndarray, segments: np.ndarray, written: np.ndarray | None = None) -> TokenRow:
    separators = {token for token in (tokenizer.sep_token_id, tokenizer.eos_token_id) if token is not None}
    return TokenRow(
        _readable(tokenizer, ids),
        np.asarray(ids, "int32"),
        np.asarray(segments, "int32"),
        np.isin(ids, list(separators)),
        None if written is None else _readable(tokenizer, written),
    )


def _readable(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> tuple[str, ...]:
    return tuple(readable_token(tokenizer, int(token)) for token in ids)


def _filled(sequence_ids: np.ndarray) -> np.ndarray:
    """Returns the text of each token, where special tokens, which are -1, belong to the text before them."""
    segments, last = [], 0
    for text in sequence_ids.tolist():
        last = last if text < 0 else text
        segments.append(last)
    return np.array(segments, "int32")


def open_attention(
    source: str | os.PathLike[str] | PretrainedModel, src_lang: str | None = None, tgt_lang: str | None = None
) -> Reader:
    """Opens a model for reading its attention.

    Args:
        source: Keras model, checkpoint folder, preset, hub id or bundle.
        src_lang: Language of the text, for a multilingual encoder-decoder.
        tgt_lang: Language of the text that it writes.

    Raises:
        BundleError: a bundle without attention weights.
        InputError: another object.
        SourceError: the source was not found.
        TokenizerError: the source has no tokenizer.
    """
    if isinstance(source, str | os.PathLike):
        folder = sources.resolve(source)
        if sources.kind(folder) == "bundle":
            return Reader(bundle.load(folder, BundleSource), src_lang, tgt_lang)
    opened = open_source(None, source)
    model: Any = opened.model
    name = type(model.model).__name__
    if isinstance(source, str | os.PathLike):
        name = Path(source).absolute().name if Path(source).exists() else str(source)  # no folders of the machine
    return Reader(KerasSource(model.model, name, opened.tokenizer), src_lang, tgt_lang)


def attention(
    source: str | os.PathLike[str] | PretrainedModel,
    a: str,
    b: str | None = None,
    *,
    max_new_tokens: int = 64,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> Attention:
    """Computes the attention weights of a model while it reads a text or a pair of texts.

        kf.attention("sentiment-bert", "time flies like an arrow").heads()

    Args:
        source: Keras model, checkpoint folder, preset, hub id, or a bundle that was exported with
            `outputs=("attentions",)`.
        a: The text. If the task of an encoder-decoder has a prefix, it is read before the text, as in a pipeline.
        b: For an encoder: the second text of a pair. For a decoder: a continuation of the text. For an encoder-decoder:
            the text that the decoder writes; by default, the one that it generates greedily.
        max_new_tokens: Largest number of tokens that an encoder-decoder generates.
        src_lang: Language of `a`, for a multilingual encoder-decoder.
        tgt_lang: Language of the text that it writes, likewise.

    Returns:
        The weights, with methods that draw them.

    Raises:
        BundleError: the bundle was exported without attention weights.
        CapacityError: a text is longer than the model can read.
        InputError: an empty text, or a model without attention weights.
        SourceError: the source was not found.
        TokenizerError: the source has no tokenizer.
    """
    a, b = check("a", a, STRING), check("b", b, optional(STRING))
    check("max_new_tokens", max_new_tokens, integer(1))
    for name, text in (("a", a), ("b", b)):
        if text is not None and not text.strip():
            raise InputError(f"A text must have words. Received: {name}={text!r}")
    return open_attention(source, src_lang, tgt_lang).read(a, b, max_new_tokens)
