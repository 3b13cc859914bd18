"""Interfaces of models: encoders, decoder-only models and encoder-decoders.

Export, decoding and pipelines depend on `EncoderModel`, `CausalLM` and `Seq2SeqLM`, never on an architecture.

Shape letters: `B` batch, `T` query length, `S` key length, `M` length of the encoded text, `H` heads, `D` head size,
`E` hidden, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from kerasformer.basics.options import documented
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.generation import GenerationConfig
from kerasformer.generation.streams import Callback, Stream
from kerasformer.layers import CacheSpec, LayerCache, LMHead, Visibility
from kerasformer.layers.core import Embedding, unpacked
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.tensor import Dimension, Tensor
from kerasformer.models import keras_generation
from kerasformer.models.named_arrays import Inputs
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.weight_table import Row, output_matrix, output_rows

STATES = ("hidden_states", "attentions", "cross_attentions")
"""Results that a model returns in addition to its output, on request."""


def with_states(output: Tensor, states: Outputs, encoder: Outputs | None = None) -> Tensor | Outputs:
    """Returns the output of a model, or a dictionary if its backbone returned further states."""
    requested = {name: states[name] for name in STATES if name in states}
    requested |= {f"encoder_{name}": encoder[name] for name in STATES if encoder and name in encoder}
    return {"output": output, **requested} if requested else output


class TextModel(PretrainedModel):
    """Base of models with one input text: a backbone and a head.

    Call arguments:
        inputs: Dictionary of int32 arrays `(B, T)`, named as in `input_names` and `optional_names`: `input_ids`, and
            optionally `attention_mask` (1 for real tokens), `position_ids` and further arrays of the backbone.
        return_hidden_states: Returns a dictionary with `output` and `hidden_states`, those of all layers.
        return_attention: Returns a dictionary with `output` and `attentions`, the weights of all layers.

    Returns:
        Logits or hidden states, or the dictionary.
    """

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Tensor | Outputs:
        """Applies the backbone and the head."""
        arrays = self.checked(inputs)
        flags = {"return_hidden_states": return_hidden_states, "return_attention": return_attention}
        arguments = self.backbone_arguments(arrays, every_token=any(flags.values()))
        states = unpacked(self.backbone(arrays["input_ids"], training=training, **arguments, **flags))
        return with_states(self.answer(states, arrays, training), states)

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> LayerArguments:
        """Returns the arguments of the backbone's call, except the ids; by default all inputs that the caller passed.

        Args:
            arrays: The inputs by name.
            every_token: Whether the states of all tokens are requested, even if the head uses only some.
        """
        return self.backbone.arguments(arrays)

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the output of the head for the states that the backbone returned."""
        return states["output"]


class EncoderModel(TextModel):
    """Encoder with a head, for one text.

    Attributes:
        pooled: Whether the backbone has a pooler, a dense layer over the first token; not all backbones support it.
        count: Number of first tokens that the head uses, `None` for all; the last layer computes no others.
    """

    pooled: bool = False
    count: ClassVar[int | None] = None

    def make_backbone(self) -> keras.layers.Layer:
        """Creates the backbone."""
        options = {"pooler": True} if self.pooled else {}
        return self.backbone_type(self.config, name="backbone", **options)

    def head_options(self) -> LayerArguments:
        """Returns further arguments of the head."""
        return {}

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> LayerArguments:
        """Returns all inputs that the caller passed, as arguments of the backbone."""
        arguments = super().backbone_arguments(arrays, every_token)
        if self.count is not None and not every_token:
            arguments["count"] = self.count
        return arguments | ({"return_pooled": True} if self.pooled else {})


class ProjectingModel(PretrainedModel):
    """Base of models with a language modelling head, whose output matrix may be the table of token embeddings."""

    optional_head = True
    head_table: ClassVar[Sequence[Row]] = (output_matrix("lm_head.weight"),)

    @property
    def output_vocab_size(self) -> int:
        """Number of scores of each token."""
        return int(self.config.vocab_size)

    def make_head(self) -> keras.layers.Layer:
        """Creates the language modelling head, with the call arguments of `LMHead`."""
        return LMHead(self.output_vocab_size, tied=self.config.tied, name="head", **self.head_options())

    @property
    def shared_table(self) -> Embedding | None:
        """The table of token embeddings if the head is tied to it."""
        table: Embedding | None = self.backbone.tokens if self.head.tied else None
        return table

    def head_options(self) -> LayerArguments:
        """Returns further arguments of `LMHead`."""
        return {"kernel_initializer": self.backbone.initializer}

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head, without its kernel if it is tied."""
        return output_rows(self.head_table, self.config.tied)

    def project(self, hidden: Tensor) -> Tensor:
        """Computes logits `(B, T, V)` from hidden states `(B, T, E)`."""
        return self.head(hidden, embedding=self.backbone.tokens)


class _GenerativeModel(ProjectingModel):
    """Base of generative models: a language modelling head, and generation with a cache."""

    generates = True

    def cache_specs(self) -> list[CacheSpec]:
        """Returns what each layer keeps of earlier tokens."""
        specs: list[CacheSpec] = self.backbone.cache_specs()
        return specs

    def cache_shapes(
        self, batch: Dimension, length: Dimension, margin: int | None = None
    ) -> list[tuple[Dimension, ...]]:
        """Returns the shape `(B, H, S, D)` of the tensors of each layer's cache; see `CacheSpec.shape`."""
        return [spec.shape(batch, length, margin) for spec in self.cache_specs()]

    @property
    def rewinds(self) -> bool:
        """Whether tokens can be discarded from the caches: no layer has a state without an axis of tokens."""
        return not any(spec.states for spec in self.cache_specs())

    @documented(GenerationConfig)
    def generate(self, inputs: Any = None, *, input_ids: Any = None, attention_mask: Any = None, **options: Any) -> Any:
        """Generates texts or tokens.

            model.generate("Once upon a time", max_new_tokens=40, top_p=0.9, seed=1)

        Settings that are not passed are those of `model.generation_config`. Further arguments are those of
        `kerasformer.generation.request` (`stop`, `negative_prompt`, `assistant`, …), `jit_compile=False` to disable
        XLA, and for texts of a multilingual model `src_lang` and `tgt_lang`.

        Args:
            inputs: A text, a list of texts, ids `(B, P)`, or the tokenizer's result, `input_ids` and `attention_mask`.
            input_ids: The same as `inputs`, as `transformers` calls ids, so that `generate(**encoded)` works.
            attention_mask: 1 for real tokens, `(B, P)`, if `inputs` are ids; optional.
            options: See `GenerationConfig`.

        Returns:
            For a text, the generated text (a decoder-only model includes the prompt); for a list, a list of texts; for
            ids, a list of int32 arrays of the new tokens. With `return_dict_in_generate` or `output_scores`, a
            `GenerationOutput`.
        """
        if (inputs is None) == (input_ids is None):
            raise InputError(
                "Texts or ids were expected, once: model.generate(text) or model.generate(input_ids=…). "
                f"Received: {'neither' if inputs is None else 'both'}"
            )
        return keras_generation.generate(self, input_ids if inputs is None else inputs, attention_mask, options)

    def stream(self, text: str, *, callback: Callback | None = None, **settings: Any) -> Stream:
        """Generates from a text and yields the new text in pieces, without the prompt.

        Args:
            text: The prompt, or the input text of an encoder-decoder.
            callback: Function that is called with each piece, optional.
            settings: As for `generate`; beam search is unsupported.
        """
        return keras_generation.stream(self, text, callback, settings)


class CausalModel(TextModel):
    """Decoder-only model with a head, for one text."""


class CausalLM(CausalModel, _GenerativeModel):
    """Decoder-only language model, which returns logits `(B, T, V)` and generates texts.

    Args:
        config: Configuration of the architecture.
        kwargs: Arguments of `PretrainedModel`.

    Raises:
        UnsupportedConfigError: tokens attend to later tokens.
    """

    task = "text-generation"
    architecture_suffix = "ForCausalLM"
    class_suffix = "CausalLM"

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        if not self.backbone.causal:
            raise UnsupportedConfigError(
                f"This {config.model_type} cannot generate texts, since its tokens attend to later tokens. "
                "Expected: task='sentence-similarity', 'feature-extraction' or another task without generation. "
                f"Received: task={self.task!r}"
            )

    def prefix_obstacle(self) -> str:
        """See `PretrainedModel.prefix_obstacle`."""
        windows = any(spec.window is not None for spec in self.cache_specs())
        return "whose layers read only the last tokens of a text" if windows else ""

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the logits of all tokens."""
        return self.project(states["output"])

    def decode(
        self, tokens: Tensor, visibility: Visibility, caches: Sequence[LayerCache]
    ) -> tuple[Tensor, tuple[LayerCache, ...]]:
        """Computes the logits of tokens whose predecessors are in the caches.

        Args:
            tokens: `(B, T)` int32.
            visibility: Slots and positions of the tokens, and the slots of the caches that they attend to.
            caches: One `LayerCache` for each layer.

        Returns:
            `(logits (B, T, V), updated caches)`.
        """
        hidden, new = self.decode_states(tokens, visibility, caches)
        return self.project(hidden), new

    def decode_states(
        self, tokens: Tensor, visibility: Visibility, caches: Sequence[LayerCache]
    ) -> tuple[Tensor, tuple[LayerCache, ...]]:
        """Computes the states that `project` turns into logits; arguments are those of `decode`.

        Returns:
            `(hidden states (B, T, E), updated caches)`.
        """
        states = self.backbone(tokens, visibility=visibility, caches=caches, return_cache=True)
        return states["output"], states["caches"]


class DecoderProjectingModel(ProjectingModel):
    """Encoder-decoder whose head computes logits from the hidden states of the decoder, with the table of its texts."""

    @property
    def shared_table(self) -> Embedding | None:
        """The table of token embeddings if both stacks have it, or that of the decoder if the head is tied to it."""
        shared = self.backbone.decoder_tokens is None or self.head.tied
        table: Embedding | None = self.backbone.output_tokens if shared else None
        return table

    def project(self, hidden: Tensor) -> Tensor:
        """Computes logits `(B, T, V)` from the hidden states `(B, T, E)` of the decoder."""
        return self.head(hidden, embedding=self.backbone.output_tokens)


class Seq2SeqLM(DecoderProjectingModel, _GenerativeModel):
    """Encoder-decoder language model, which returns logits `(B, T, V)` and generates texts from texts.

    Call arguments:
        inputs: Dictionary of int32 arrays: `input_ids` `(B, M)`, `decoder_input_ids` `(B, T)`, and optionally
            `attention_mask` and `decoder_attention_mask`.
        return_hidden_states: Returns a dictionary with `output`, the decoder's `hidden_states` and the
            `encoder_hidden_states`.
        return_attention: Returns a dictionary with `output`, the decoder's `attentions` and `cross_attentions`
            `(B, H, T, M)`, and the `encoder_attentions`.

    Returns:
        Logits `(B, T, V)`, or the dictionary.

    Raises:
        InputError: `decoder_input_ids` are missing.
    """

    task = "text2text-generation"
    architecture_suffix = "ForConditionalGeneration"
    class_suffix = "Seq2SeqLM"
    is_encoder_decoder = True

    @property
    def output_vocab_size(self) -> int:
        """Number of scores of each token; the decoder may have a vocabulary of its own (Marian)."""
        return int(self.backbone.output_tokens.input_dim)

    def value_counts(self) -> dict[str, int | None]:
        """See `PretrainedModel.value_counts`."""
        counts = super().value_counts()
        masks = {"decoder_attention_mask": counts.get("attention_mask")}
        return {**counts, **masks, "decoder_input_ids": self.output_vocab_size}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the arrays that `call` accepts, those of the decoder last."""
        return (*super().input_names, "decoder_input_ids", "decoder_attention_mask")

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Tensor | Outputs:
        """Applies the encoder, the decoder and the head."""
        arrays = self.checked(inputs)
        if "decoder_input_ids" not in arrays:
            raise InputError(f"{type(self).__name__} requires decoder_input_ids. Received: {', '.join(inputs)}")
        flags = {"return_hidden_states": return_hidden_states, "return_attention": return_attention}
        encoded = unpacked(
            self.backbone.encode(
                arrays["input_ids"], attention_mask=arrays.get("attention_mask"), training=training, **flags
            )
        )
        states = self.backbone.decode(
            arrays["decoder_input_ids"],
            visibility=Visibility.of_text(
                ops.shape(arrays["decoder_input_ids"])[1], arrays.get("decoder_attention_mask"), causal=True
            ),
            memory=encoded["output"],
            memory_mask=arrays.get("attention_mask"),
            training=training,
            **flags,
        )
        states = unpacked(states)
        return with_states(self.project(states["output"]), states, encoded)

    def encode(self, ids: Tensor, attention_mask: Tensor | None = None, training: bool = False) -> Tensor:
        """Returns the hidden states `(B, M, E)` of the input text."""
        return self.backbone.encode(ids, attention_mask=attention_mask, training=training)

    def memory_specs(self) -> list[CacheSpec]:
        """Returns what the cross attention of each layer keeps of the encoded text."""
        specs: list[CacheSpec] = self.backbone.memory_specs()
        return specs

    def project_memory(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Projects the encoded text to the cross-attention keys and values `(B, G, M, D)` of each decoder layer."""
        return self.backbone.project_memory(memory)

    def decode(
        self,
        tokens: Tensor,
        visibility: Visibility,
        caches: Sequence[LayerCache],
        memory_mask: Tensor | None,
        cross_caches: Sequence[LayerCache],
        memory: Tensor | None = None,
    ) -> tuple[Tensor, tuple[LayerCache, ...], tuple[LayerCache, ...]]:
        """Computes the logits of tokens whose predecessors are in the caches.

        Args:
            tokens: `(B, T)` int32.
            visibility: Slots of the tokens, and the slots of the caches that they attend to; the decoder's text starts
                at slot 0 in every row.
            caches: One `LayerCache` for the self attention of each layer.
            memory_mask: 1 for real tokens of the encoded text, `(B, M)`; optional.
            cross_caches: One `LayerCache` for the cross attention of each layer, with the result of `project_memory` or
                with a part of it that `memory` completes.
            memory: Hidden states of the encoder that are not in `cross_caches` yet; optional.

        Returns:
            `(logits (B, T, V), updated caches, updated cross caches)`.
        """
        states = self.backbone.decode(
            tokens,
            visibility=visibility,
            caches=caches,
            memory=memory,
            memory_mask=memory_mask,
            cross_caches=cross_caches,
            return_cache=True,
        )
        return self.project(states["output"]), states["caches"], states["cross_caches"]
