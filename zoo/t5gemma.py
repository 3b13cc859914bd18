"""T5Gemma: T5 with the layers of Gemma 2, and separate token embeddings of encoder and decoder.

Derived from: `t5`.
Paper: Zhang et al. 2025, "Encoder-Decoder Gemma: Improving the Quality-Efficiency Trade-Off via Adaptation",
arXiv:2504.06225. Reference: `transformers.models.t5gemma`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonObject
from kerasformer.files.tensors import TensorFile
from kerasformer.layers import MultiHeadAttention
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Positive, Size
from kerasformer.models.contracts import Seq2SeqLM
from kerasformer.models.encoder_decoder import Stack
from kerasformer.models.gated_encoder_decoder import GatedEncoderDecoder, PairedConfig
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, output_matrix, repeat
from kerasformer.zoo import gemma2


@dataclass(frozen=True, kw_only=True)
class T5GemmaConfig(PairedConfig):
    """Configuration of T5Gemma; the defaults are those of the reference class. Fields are described in `gemma2`."""

    model_type = "t5gemma"
    part_type: ClassVar[type[Config]] = gemma2.Gemma2Config
    part_model_types = {"encoder": "t5_gemma_module", "decoder": "t5_gemma_module"}
    counterparts = {**PairedConfig.counterparts, **gemma2.GemmaConfig.counterparts}

    both_stacks: bool = hf("is_encoder_decoder", True)
    score_scale: Size = hf("decoder.query_pre_attn_scalar", 256)
    score_softcap: Positive | None = hf("decoder.attn_logit_softcapping", 50.0)
    softcap: Positive | None = hf("decoder.final_logit_softcapping", 30.0)
    window_size: Size | None = hf("decoder.sliding_window", 4096)
    layer_types: list[str] | None = hf("encoder.layer_types", None)
    decoder_layer_types: list[str] | None = hf("decoder.layer_types", None)
    rope: JsonObject | None = hf("decoder.rope_parameters", None)


class T5Gemma(GatedEncoderDecoder):
    """T5Gemma without head."""

    config_type: ClassVar[type[PairedConfig]] = T5GemmaConfig
    names = Names("model.", tokens="decoder.embed_tokens.weight")

    @property
    def decoder_vocab_size(self) -> int | None:
        """Size of the decoder's token embeddings, which are not those of the encoder."""
        return int(self.config.vocab_size)

    def make_attention(self, stack: Stack, name: str, *, index: int, **options: Any) -> MultiHeadAttention:
        """Creates attention as in Gemma 2; cross attention has neither positions nor a window."""
        part = self.config.part(stack)
        options |= {"scale": part.score_scale**-0.5, "softcap": part.score_softcap}
        if name == "attention":
            options |= {"rotary": part.rotary, "window": part.window(index)}
        return super().make_attention(stack, name, index=index, **options)

    def layer_rows(self, parts: Mapping[str, str]) -> list[Row]:
        """Returns the weight table of a layer with these kinds of attention, by the names of their tensors.

        All norms multiply by `1 + w`, where `w` is the tensor.
        """
        rows = []
        for part, tensor in {**parts, "feed_forward": "feedforward"}.items():
            rows += norm(f"{part}_norm", f"pre_{tensor}_layernorm", bias=False, offset=1.0)
            rows += norm(f"{part}_output_norm", f"post_{tensor}_layernorm", bias=False, offset=1.0)
        for part, tensor in parts.items():
            for path in ("query", "key", "value", "output"):
                rows += dense(f"{part}/{path}", f"{tensor}.{path[0]}_proj", bias=self.config.attention_bias)
        for path, name in {"gate": "gate", "up": "up", "output": "down"}.items():
            rows += dense(f"feed_forward/{path}", f"mlp.{name}_proj", bias=False)
        return rows

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        rows = []
        for stack, count in self.layer_counts.items():
            kinds = {"attention": "self_attn", "cross_attention": "cross_attn"}
            layer = self.layer_rows(dict(list(kinds.items())[: 1 + (stack == "decoder")]))
            rows += embedding("tokens" if stack == "encoder" else "decoder_tokens", f"{stack}.embed_tokens")
            rows += repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{stack}.layers.{{i}}."))
            rows += norm(f"{stack}/final_norm", f"{stack}.norm", bias=False, offset=1.0)
        return rows


class T5GemmaSeq2SeqLM(Seq2SeqLM, backbone=T5Gemma):
    """T5Gemma for text-to-text generation."""

    head_table: ClassVar[Sequence[Row]] = (output_matrix("lm_head.out_proj.weight"),)

    def head_options(self) -> LayerArguments:
        """Adds the soft limit of the logits."""
        return {**super().head_options(), "softcap": self.config.softcap}


class _Encoder(task_models.EncoderOnly):
    """Model with the encoder alone."""

    def __init__(self, config: T5GemmaConfig, **kwargs: Any) -> None:
        super().__init__(replace(config, both_stacks=False), **kwargs)

    @classmethod
    def config_for(cls, config: Any, tensors: TensorFile) -> Config:
        """See `PretrainedModel.config_for`; refuses a classifier with a decoder, which this one is not."""
        if "score.out_proj.weight" in tensors and any(".decoder." in name for name in tensors):
            raise UnsupportedConfigError(
                f"{cls.__name__} has the encoder alone. Expected: is_encoder_decoder=false, and no tensors of a "
                f"decoder. Received: {tensors}"
            )
        return super().config_for(config, tensors)


class T5GemmaFeatures(_Encoder, task_models.EncoderFeatures, backbone=T5Gemma):
    """Encoder of T5Gemma, which returns hidden states `(B, T, E)`, or embeddings of texts `(B, D)`."""

    bare = True


class T5GemmaTextClassification(_Encoder, task_models.TextClassification, backbone=T5Gemma):
    """Encoder of T5Gemma, for text classification from the state of the last token."""

    count = None
    head_table = dense("output", "score.out_proj")

    def vector(self, states: Outputs, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns the state of the last real token of each text, `(B, E)`."""
        return task_models.last_states(states["output"], inputs, self.config.pad_token_id)


class T5GemmaTokenClassification(_Encoder, task_models.TokenClassification, backbone=T5Gemma):
    """Encoder of T5Gemma, for token classification."""

    head_table = dense("output", "score.out_proj")


MODELS = task_models.heads(
    T5Gemma, T5GemmaSeq2SeqLM, T5GemmaFeatures, T5GemmaTextClassification, T5GemmaTokenClassification
)
