"""Several texts in one row, which do not see each other, and texts with a prefix whose tokens all see each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.basics.arguments import BOOLEAN, check, integer
from kerasformer.errors import InputError
from kerasformer.layers import (
    ConvolutionEncoderLayer,
    GlobalMultiHeadAttention,
    RecurrentLayer,
    ShortConvolution,
    Tensor,
    Visibility,
    unpacked,
)
from kerasformer.models import CausalModel, EncoderDecoderModel, EncoderOnly, PretrainedModel
from kerasformer.tools.training.objectives.batches import IGNORED, Batch, padded
from kerasformer.tools.training.objectives.vocabulary import Vocabulary
from kerasformer.tools.training.objectives.wrapped import WrappedModel

_TASKS = (
    "fill-mask",
    "replaced-token-detection",
    "token-classification",
    "feature-extraction",
    "text-generation",
    "text2text-generation",
)
"""Tasks whose models return something for each token."""


def pack(batch: Batch, vocabulary: Vocabulary, length: int, decoder_length: int | None = None) -> Batch:
    """Puts several texts of a batch into each row, so that fewer positions are padding. A `PackedModel` reads the rows.

    Each text is put into the first row with enough room for it.

    Args:
        batch: Result of an objective with a label for each token.
        vocabulary: The vocabulary.
        length: Length of the rows, at least that of the longest text.
        decoder_length: Length of the rows of the decoder; `length` by default.

    Returns:
        The arrays of the batch `(R, length)` and those of the decoder `(R, decoder_length)`, and for both sides
        `text_ids`, the number of the text of each token in its row from 1, 0 for padding, and `position_ids`, which
        start at 0 in each text (`decoder_text_ids`, `decoder_position_ids`).

    Raises:
        InputError: a text is longer than a row, or an array does not have a value for each token.

    Reference: Raffel et al. 2020, arXiv:1910.10683, section 3.1.2.
    """
    check("length", length, integer(1))
    sides = {"": length}
    if "decoder_input_ids" in batch:
        sides["decoder_"] = check("decoder_length", length if decoder_length is None else decoder_length, integer(1))
    real = {side: np.asarray(batch[f"{side}attention_mask"]) > 0 for side in sides}
    members = _first_fit(np.stack([real[side].sum(axis=1) for side in sides], axis=1), np.array(list(sides.values())))

    def rows(name: str, array: np.ndarray, fill: int) -> np.ndarray:
        side = "decoder_" if name.startswith("decoder_") or (name == "labels" and "decoder_" in sides) else ""
        if array.shape != real[side].shape or name in ("span_left", "span_right"):
            raise InputError(
                "Only arrays with a value for each token that does not depend on its slot can be packed. "
                f"Expected: shape {real[side].shape}. Received: {name} of shape {array.shape}"
            )
        merged = [np.concatenate([array[text][real[side][text]] for text in texts]) for texts in members]
        return _of_length(merged, fill, sides[side])

    fills = {f"{side}input_ids": vocabulary.pad_id for side in sides}
    packed: Batch = {name: rows(name, batch[name], fills.get(name, 0)) for name in batch if name != "labels"}
    labels = batch["labels"]
    if isinstance(labels, Mapping):
        packed["labels"] = {name: rows("labels", array, IGNORED) for name, array in labels.items()}
    else:
        packed["labels"] = rows("labels", labels, IGNORED)
    for side, size in sides.items():
        counts = [[int(real[side][text].sum()) for text in texts] for texts in members]
        numbers = [np.repeat(np.arange(1, len(row) + 1), row) for row in counts]
        positions = [np.concatenate([np.arange(count) for count in row]) for row in counts]
        packed[f"{side}text_ids"] = _of_length(numbers, 0, size)
        packed.setdefault(f"{side}position_ids", _of_length(positions, 0, size))
    return packed


def _first_fit(lengths: np.ndarray, limits: np.ndarray) -> list[list[int]]:
    """Returns the texts of each row.

    Args:
        lengths: Number of tokens of each text on each side, `(B, sides)`.
        limits: Length of a row on each side.
    """
    if (lengths > limits).any():
        raise InputError(
            f"A text must fit into a row. Expected: at most {limits.tolist()} tokens. "
            f"Received: {lengths.max(axis=0).tolist()}. Pass a larger length, or divide the texts"
        )
    members: list[list[int]] = []
    used: list[np.ndarray] = []
    for text, size in enumerate(lengths):
        row = next((row for row, taken in enumerate(used) if (taken + size <= limits).all()), len(used))
        if row == len(used):
            used.append(np.zeros_like(limits))
            members.append([])
        used[row] = used[row] + size
        members[row].append(text)
    return members


def _of_length(rows: Sequence[np.ndarray], value: int, length: int) -> np.ndarray:
    """Pads rows on the right to a length."""
    return padded([np.append(row, np.full(length - len(row), value)) for row in rows], value)


@keras.saving.register_keras_serializable("kerasformer")
class PackedModel(WrappedModel):
    """A model whose attention keeps apart the texts that `pack` put into one row, or sees all of a prefix.

    All layers are those of the model, which stays usable by itself: compile and fit the `PackedModel`, then save or
    export the model.

    Args:
        model: A model with an output for each token: an encoder for masked words, tokens or features, a decoder-only
            model, or an encoder-decoder.
        prefix_lm: Whether the model becomes a prefix language model: `prefix_lm` of its configuration is set, with
            which `generate` and likelihoods read a prompt as the training reads a prefix.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: The inputs of the model, and optionally `text_ids` and `position_ids` of `pack`, `(B, T)`;
            `decoder_text_ids` and `decoder_position_ids` for an encoder-decoder; and for a prefix language model the
            `prefix_mask` of `prefix_lm`.

    Returns:
        The output of the model `(B, T, …)`; what belongs to a text equals the output for that text alone.

    Raises:
        InputError: the model has an output for whole texts; or a layer that mixes neighbouring tokens or attends to
            fixed blocks or to global tokens (BigBird, Longformer, LED, MobileBERT, LFM2), which no mask can prevent;
            `prefix_lm` for a model that is not a decoder-only language model or has a sliding window; or in a call a
            prefix for a model without `prefix_lm`, or none for a model with it.

    Reference: Raffel et al. 2020, arXiv:1910.10683, section 3.2.1 (prefix).
    """

    def __init__(self, model: PretrainedModel, prefix_lm: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if reason := _obstacle(model):
            raise InputError(
                "Packed texts need a model whose tokens meet in attention alone, with an output for each token. "
                f"Received: {type(model).__name__}, which {reason}. Train it with one text in each row"
            )
        if check("prefix_lm", prefix_lm, BOOLEAN):
            if reason := model.prefix_obstacle():
                raise InputError(
                    "prefix_lm needs a decoder-only language model whose layers have no sliding window. "
                    f"Received: {type(model).__name__}, {reason}"
                )
            model.config = model.backbone.config = replace(model.config, prefix_lm=True)
        self.model = model

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """Applies the model."""
        arrays = {name: ops.cast(value, "int32") for name, value in inputs.items()}
        texts = {side: _text_ids(arrays, side) for side in ("", "decoder_") if f"{side}input_ids" in arrays}
        if self.model.is_encoder_decoder:
            return self._seq2seq(arrays, texts, training)
        prefix = arrays.pop("prefix_mask", None)
        if (prefix is None) == bool(self.model.config.prefix_lm):
            raise InputError(
                "A prefix language model generates as it was trained, with a prefix. Expected: prefix_mask, and "
                "PackedModel(model, prefix_lm=True). "
                f"Received: {'no ' if prefix is None else ''}prefix_mask, prefix_lm={prefix is None}"
            )
        offset = getattr(getattr(self.model.backbone, "embeddings", None), "padding_id", None)
        if offset is not None and "position_ids" in arrays:
            arrays["position_ids"] = arrays["position_ids"] + offset + 1
        if "position_ids" not in self.model.optional_names:
            arrays.pop("position_ids", None)
        arrays["attention_mask"] = ops.cast(texts[""] > 0, "int32")
        visibility = self._visibility(arrays, texts[""], prefix)
        arguments = self.model.backbone_arguments(arrays, every_token=True)
        states = self.model.backbone(arrays["input_ids"], visibility=visibility, training=training, **arguments)
        return self.model.answer(unpacked(states), arrays, training)

    def _visibility(self, arrays: Mapping[str, Tensor], text_ids: Tensor, prefix: Tensor | None) -> Visibility:
        """Returns which tokens of a row see each other."""
        same, mask = _same_text(text_ids, text_ids), arrays["attention_mask"]
        if not isinstance(self.model, CausalModel):
            visibility: Visibility = self.model.backbone.make_visibility(arrays["input_ids"], mask)
            return visibility.narrowed(same)
        visibility = Visibility.of_text(
            ops.shape(text_ids)[1],
            mask,
            causal=self.model.backbone.causal,
            positions=arrays.get("position_ids"),
        )
        if prefix is not None:
            visibility = visibility.with_prefix(prefix)
        return visibility.narrowed(same)

    def _seq2seq(self, arrays: Mapping[str, Tensor], texts: Mapping[str, Tensor], training: bool) -> Tensor:
        backbone, encoder, decoder = self.model.backbone, texts[""], texts["decoder_"]
        visibility = backbone.encoder_visibility(arrays["input_ids"], ops.cast(encoder > 0, "int32"))
        visibility = replace(visibility.narrowed(_same_text(encoder, encoder)), positions=arrays.get("position_ids"))
        memory = backbone.encode(arrays["input_ids"], visibility=visibility, training=training)
        visibility = Visibility.of_text(
            ops.shape(decoder)[1],
            ops.cast(decoder > 0, "int32"),
            causal=True,
            positions=arrays.get("decoder_position_ids"),
        ).narrowed(_same_text(decoder, decoder))
        states = backbone.decode(
            arrays["decoder_input_ids"],
            visibility=visibility,
            memory=memory,
            memory_mask=_same_text(decoder, encoder),
            training=training,
        )
        return self.model.project(states)


def _text_ids(arrays: dict[str, Tensor], side: str) -> Tensor:
    """Removes and returns the number of the text of each token; 1 for all real tokens by default."""
    ids = arrays.pop(f"{side}text_ids", None)
    mask = arrays.get(f"{side}attention_mask")
    if ids is None:
        ids = ops.ones_like(arrays[f"{side}input_ids"]) if mask is None else mask
    return ids


def _same_text(queries: Tensor, keys: Tensor) -> Tensor:
    """Returns which keys belong to the text of each query, boolean `(B, 1, T, S)`."""
    return ops.equal(ops.expand_dims(queries, (1, 3)), ops.expand_dims(keys, (1, 2)))


def _obstacle(model: PretrainedModel) -> str:
    """Returns why a model cannot read packed texts; empty if it can."""
    if model.task not in _TASKS or isinstance(model, EncoderDecoderModel) or getattr(model, "sentence", None):
        return "has an output for whole texts"
    if isinstance(model, EncoderOnly):
        return "is the encoder of an encoder-decoder"
    if getattr(getattr(model.backbone, "embeddings", None), "neighbors", 0):
        return "embeds each token with its neighbours"
    layers = list(model._flatten_layers())
    if any(isinstance(layer, ShortConvolution | ConvolutionEncoderLayer) for layer in layers):
        return "has convolutions over tokens"
    if any(isinstance(layer, RecurrentLayer) for layer in layers):
        return "has a state that all tokens change"
    if any(isinstance(layer, GlobalMultiHeadAttention) for layer in layers):
        return "attends to global tokens"
    if any(spec.blocks is not None for spec in model.attention_specs().values()):
        return "attends to blocks of tokens"
    return ""
