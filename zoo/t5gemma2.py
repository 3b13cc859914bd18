"""T5Gemma 2: T5Gemma with the layers of Gemma 3, one table of tokens, and one attention to both texts in the decoder.

Published checkpoints also read images; this is their text part, without the vectors of images and of the token that
ends an image.

Derived from: `t5gemma`.
Paper: Zhang et al. 2025, "T5Gemma 2: Seeing, Reading, and Understanding Longer", arXiv:2512.14856.
Reference: `transformers.models.t5gemma2`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import (
    CacheSpec,
    EncoderLayer,
    MergedAttention,
    MergedDecoderLayer,
    MultiHeadAttention,
    UnevenWindowAttention,
)
from kerasformer.models.config import hf
from kerasformer.models.config_types import Layers, Positive, Size
from kerasformer.models.encoder_decoder import Stack
from kerasformer.models.gated_encoder_decoder import GatedEncoderDecoder, PairedConfig
from kerasformer.models.task_models import EncoderFeatures, Seq2SeqLastClassification, Seq2SeqTokenClassification, heads
from kerasformer.models.weight_table import Names, Row, embedding, nested, norm, repeat
from kerasformer.zoo import gemma2, gemma3_text, t5gemma

TEXT = "encoder.text_model"  # prefix of the tensors of the encoder


@dataclass(frozen=True, kw_only=True)
class T5Gemma2Config(PairedConfig):
    """Configuration of T5Gemma 2; the defaults are those of the reference class. Fields are described in `gemma3_text`.

    Attributes:
        images: Settings of the encoder that concern images, which are only kept for other programs.
    """

    model_type = "t5gemma2"
    part_type = gemma3_text.Gemma3TextConfig
    part_model_types = {"encoder": "t5gemma2_text", "decoder": "t5gemma2_decoder"}
    part_keys = {"encoder": "encoder.text_config", "decoder": "decoder"}
    counterparts = {**PairedConfig.counterparts, **gemma2.GemmaConfig.counterparts}
    required = {**PairedConfig.required, "is_encoder_decoder": (True,)}
    ignored = PairedConfig.ignored | {"eoi_token_index", "image_token_index"}

    vocab_size: Size = hf("decoder.vocab_size", 262208)
    max_length: Size = hf("decoder.max_position_embeddings", 131072)
    intermediate_dim: Size = hf("encoder.text_config.intermediate_size", 9216)
    num_layers: Layers = hf("encoder.text_config.num_hidden_layers", 26)
    num_heads: Size = hf("encoder.text_config.num_attention_heads", 8)
    num_key_value_heads: Size = hf("encoder.text_config.num_key_value_heads", 4)
    score_scale: Size = hf("decoder.query_pre_attn_scalar", 256)
    softcap: Positive | None = hf("decoder.final_logit_softcapping", None)
    window_size: Size | None = hf("decoder.sliding_window", 4096)
    layer_types: list[str] | None = hf("encoder.text_config.layer_types", None)
    decoder_layer_types: list[str] | None = hf("decoder.layer_types", None)
    rope: dict[str, JsonObject] | None = hf("decoder.rope_parameters", None)
    images: JsonObject | None = hf("images", None)

    def __post_init__(self) -> None:
        """Validates that the window of the encoder has other tokens than the query."""
        super().__post_init__()
        if self.window_size == 1:
            raise UnsupportedConfigError("sliding_window must be at least 2. Received: sliding_window=1")

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """See `PairedConfig.from_hf`; keeps the settings of images."""
        config, encoder = super().from_hf(content), content.get("encoder") or {}
        images = {name: value for name, value in encoder.items() if name not in ("model_type", "text_config")}
        return replace(config, images=images or None)

    def to_hf(self) -> JsonObject:
        """See `PairedConfig.to_hf`."""
        content = super().to_hf()
        images = content.pop("images", {})
        return {**content, "encoder": {**images, **content["encoder"], "model_type": "t5gemma2_encoder"}}


class T5Gemma2(t5gemma.T5Gemma):
    """T5Gemma 2 without head."""

    config_type = T5Gemma2Config
    # Ignored: the vectors of images, and of the token after them.
    names = Names(
        "model.",
        (r"encoder\.(vision_tower|multi_modal_projector)\..*", r".*\.embed_tokens\.eoi_embedding"),
        {"decoder.embed_tokens.weight": f"{TEXT}.embed_tokens.weight"},
        tokens=f"{TEXT}.embed_tokens.weight",
        published={f"model.encoder.{name}.": (f"model.{TEXT}.{name}.",) for name in ("embed_tokens", "layers", "norm")},
    )

    @property
    def decoder_vocab_size(self) -> int | None:
        """Size of the decoder's token embeddings, which are separate in untied models."""
        return None if self.config.tied else int(self.config.vocab_size)

    def make_attention(self, stack: Stack, name: str, *, index: int, **options: Any) -> MultiHeadAttention:
        """Creates attention as in Gemma 3; the window of the encoder is half before and half after a token."""
        part = self.config.part(stack)
        window = part.window(index)
        kind: type[MultiHeadAttention] = MultiHeadAttention if stack == "encoder" else MergedAttention
        if window is not None and stack == "encoder":
            kind, window = MultiHeadAttention if window % 2 else UnevenWindowAttention, window // 2
        options |= {"scale": part.score_scale**-0.5, "query_key_norm": part.epsilon, "kind": kind, "window": window}
        options["rotary"] = part.rotary(part.layer_types[index])
        return GatedEncoderDecoder.make_attention(self, stack, name, index=index, **options)

    def make_layer(self, stack: Stack, index: int) -> EncoderLayer:
        """Creates a layer; that of the decoder attends to both texts at once."""
        return (EncoderLayer if stack == "encoder" else MergedDecoderLayer)(**self.layer_arguments(stack, index))

    def memory_specs(self) -> list[CacheSpec]:
        """Returns what each layer keeps of the encoded text, all of which it attends to."""
        return [replace(spec, window=None) for spec in self.decoder.memory_specs()]

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = self.layer_rows({"attention": "self_attn"})
        for path, tensor in {"query": "q", "key": "k"}.items():
            layer += norm(f"attention/{path}_norm", f"self_attn.{tensor}_norm", bias=False, offset=1.0)
        rows = embedding("tokens", f"{TEXT}.embed_tokens")
        if self.decoder_tokens is not None:
            rows += embedding("decoder_tokens", "decoder.embed_tokens")
        for stack, count in self.layer_counts.items():
            prefix = TEXT if stack == "encoder" else stack
            rows += repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{prefix}.layers.{{i}}."))
            rows += norm(f"{stack}/final_norm", f"{prefix}.norm", bias=False, offset=1.0)
        return rows


class T5Gemma2Features(EncoderFeatures, backbone=T5Gemma2):
    """Encoder of T5Gemma 2, which returns hidden states `(B, T, E)`, or embeddings of texts `(B, D)`."""

    in_transformers = False


MODELS = heads(
    T5Gemma2, t5gemma.T5GemmaSeq2SeqLM, T5Gemma2Features, Seq2SeqLastClassification, Seq2SeqTokenClassification
)
