"""Extraction of spans of named types: a head for encoders that read the names of the types before the text.

Reference: Zaratiana et al. 2023, "GLiNER: Generalist Model for Named Entity Recognition using Bidirectional
Transformer", arXiv:2311.08526; `UniEncoderSpanModel` of the package `gliner`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Unpack

import keras

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from kerasformer.bundle import SPAN_LOGITS, ModelInfo, SpanInfo
from kerasformer.files.gliner import CONFIG, ENCODER
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import SpanHead
from kerasformer.layers.layer_types import LayerConfig, LayerOptions, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config
from kerasformer.models.contracts import EncoderModel
from kerasformer.models.layouts import SideBySide
from kerasformer.models.named_arrays import BATCH
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.models.span_settings import SpanSettings
from kerasformer.models.text_inputs import LABEL_SLOTS, WORD_SLOTS, TextInput
from kerasformer.models.weight_table import Row, dense

_SPANS, _LABELS = "span_rep_layer.span_rep_layer", "prompt_rep_layer"


def _two_layers(path: str, tensor: str) -> list[Row]:
    return [*dense(f"{path}/inner", f"{tensor}.0"), *dense(f"{path}/outer", f"{tensor}.3")]


def _lstm(path: str, suffix: str) -> list[Row]:
    return [
        Row((f"{path}/input_kernel",), f"rnn.lstm.weight_ih_l0{suffix}", transpose=True),
        Row((f"{path}/input_bias",), f"rnn.lstm.bias_ih_l0{suffix}"),
        Row((f"{path}/kernel",), f"rnn.lstm.weight_hh_l0{suffix}", transpose=True),
        Row((f"{path}/bias",), f"rnn.lstm.bias_hh_l0{suffix}"),
    ]


class SpanExtraction(EncoderModel):
    """Encoder that scores the spans of a text for labels, whose names it reads before the text.

    Args:
        config: Configuration of the encoder.
        spans: Settings of the head, or the content of `gliner_config.json`; those of `gliner_small-v2.1` by default.
        kwargs: Arguments of `PretrainedModel`.

    Call arguments:
        inputs: Dictionary of int32 arrays: `input_ids` and `attention_mask` `(B, T)`, `word_slots` `(B, W)` with the
            slot of the first token of each word of the text, and `label_slots` `(B, C)` with the slot of the token that
            marks each label. Both are padded by -1 at the end.

    Returns:
        `(B, W, K, C)`: the score of the span of `k + 1` words that starts with a word, for each label. Its sigmoid is
        the probability that the span is of the type.
    """

    task = ZERO_SHOT_TOKENS
    class_suffix = "SpanExtraction"
    architecture_suffix = "ForSpanExtraction"
    in_transformers = False
    prefix = ENCODER
    output_name = SPAN_LOGITS
    output_axes = (BATCH, WORD_SLOTS.axis, None, LABEL_SLOTS.axis)
    head_table: ClassVar[Sequence[Row]] = (
        *dense("projection", "token_rep_layer.projection"),
        *_lstm("words/forward", ""),
        *_lstm("words/backward", "_reverse"),
        *_two_layers("start", f"{_SPANS}.project_start"),
        *_two_layers("end", f"{_SPANS}.project_end"),
        # Columns for the first word, then for the last one.
        Row(("span_start/kernel", "span_end/kernel"), f"{_SPANS}.out_project.0.weight", True, SideBySide(1)),
        Row(("span_start/bias",), f"{_SPANS}.out_project.0.bias"),
        # The output layer of spans projects labels, so that its weight is not transposed.
        Row(("span_output/kernel",), f"{_SPANS}.out_project.3.weight"),
        Row(("offset",), f"{_SPANS}.out_project.3.bias"),
        *_two_layers("label", _LABELS),
    )

    def __init__(
        self, config: Config, spans: SpanSettings | JsonMapping | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        self.spans = SpanSettings.from_file(spans) if isinstance(spans, Mapping) else spans or SpanSettings()
        super().__init__(config, **kwargs)

    @classmethod
    def options(
        cls, task: str, config: Config, folder: Path | None = None, sentence: SentenceSettings | None = None
    ) -> Arguments:
        """Returns the settings of the head, if the folder has any."""
        options = super().options(task, config, folder, sentence)
        return {**options, "spans": None if folder is None else SpanSettings.read(folder)}

    @property
    def text_inputs(self) -> tuple[TextInput, ...]:
        """Descriptions of the arrays of the encoder, without segments, and of the slots of words and labels."""
        arrays = tuple(each for each in super().text_inputs if each.name != "token_type_ids")
        return (*arrays, WORD_SLOTS, LABEL_SLOTS)

    def make_head(self) -> keras.layers.Layer:
        """Creates the head."""
        spans = self.spans
        return SpanHead(
            spans.hidden_dim,
            spans.max_width,
            recurrent=bool(spans.recurrent_layers),
            label_offset=0 if spans.reads_label_token else 1,
            dropout=spans.dropout,
            projects=spans.hidden_dim != self.config.output_dim,
            name="head",
        )

    def head_rows(self) -> list[Row]:
        """Returns the rows of the parts that the head has."""
        absent = [name for name, part in (("projection", self.head.projection), ("words", self.head.lstm)) if not part]
        return [row for row in self.head_table if row.variables[0].split("/")[0] not in absent]

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        slots = {name: inputs[name] for name in (WORD_SLOTS.name, LABEL_SLOTS.name)}
        return self.head(states["output"], **slots, training=training)

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information about the model that pipelines and bundles need."""
        spans = self.spans
        described = SpanInfo(spans.max_width, spans.max_words, spans.label_token, spans.separator)
        return replace(super().info(task), spans=described)

    def extra_files(self) -> JsonObject:
        """Returns the file by which `gliner` reads the model."""
        return {CONFIG: self.spans.to_file(self.config.to_hf())}

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "spans": self.extra_files()[CONFIG]}
