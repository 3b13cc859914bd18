"""The three contracts by which everything else knows a model: encode, decode, translate.

Export, decoding and pipelines see `EncoderModel`, `CausalLM` and `Seq2SeqLM`, never an architecture.
Shape letters: `B` batch, `T` query length, `S` key length, `M` length of the encoded text, `H` heads, `D` head size,
`E` hidden, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.generation.streams import Callback, Stream
from kerasformer.layers import LayerCache, LMHead, Visibility
from kerasformer.layers.core import unpacked
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import Inputs, PretrainedModel
from kerasformer.models.tensor_files import TensorFile
from kerasformer.models.weight_table import Row

STATES = ("hidden_states", "attentions", "cross_attentions")
"""What a model gives beside its output, if it is asked to."""


def with_states(output: Any, states: Mapping[str, Any], encoder: Mapping[str, Any] | None = None) -> Any:
    """The one tensor that a model gives, or a dictionary if more was asked of its backbone."""
    asked = {name: states[name] for name in STATES if name in states}
    asked |= {f"encoder_{name}": encoder[name] for name in STATES if encoder and name in encoder}
    return {"output": output, **asked} if asked else output


class TextModel(PretrainedModel):
    """Reads one text: a backbone, and a head.

    Call arguments:
        inputs: Dictionary of int32 `(B, T)`, by the names of `input_names` and `optional_names`: `input_ids`; optional
            `attention_mask` (1 for real tokens), `position_ids` and what else the backbone takes.
        return_hidden_states: Returns a dictionary with `output` and all `hidden_states`.
        return_attention: Likewise with the attention weights.

    Returns:
        One tensor, logits or hidden states, or the dictionary.
    """

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Any:
        """Applies backbone and head."""
        arrays = self.checked(inputs)
        wanted = {"return_hidden_states": return_hidden_states, "return_attention": return_attention}
        arguments = self.backbone_arguments(arrays, every_token=any(wanted.values()))
        states = unpacked(self.backbone(arrays["input_ids"], training=training, **arguments, **wanted))
        return with_states(self.answer(states, arrays, training), states)

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> dict[str, Any]:
        """Arguments of the backbone's call, beside the ids.

        Args:
            arrays: The inputs by name.
            every_token: The states of all tokens were asked for, whatever the head reads.
        """
        raise NotImplementedError

    def answer(self, states: Mapping[str, Any], inputs: Mapping[str, Tensor], training: bool) -> Any:
        """Output of the head for the states that the backbone returned."""
        return states["output"]


class EncoderModel(TextModel):
    """Reads a text at once: a backbone that sees both ways, and a head.

    Attributes:
        pooled: The backbone has a pooler, a dense layer over the first token; for backbones that may have one.
        count: Number of first tokens that the head reads, if not all: the last layer does not compute the others.
    """

    pooled: bool = False
    count: ClassVar[int | None] = None

    def make_backbone(self) -> keras.layers.Layer:
        """The layer without head."""
        options = {"pooler": True} if self.pooled else {}
        return self.backbone_type(self.config, name="backbone", **options)

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> dict[str, Any]:
        """Every array that the backbone takes and the caller gave."""
        given = [each for each in self.backbone.text_inputs if each.name in arrays and each.name != "input_ids"]
        arguments: dict[str, Any] = {each.argument: arrays[each.name] for each in given}
        if self.count is not None and not every_token:
            arguments["count"] = self.count
        return arguments | ({"return_pooled": True} if self.pooled else {})


class _Generates(PretrainedModel):
    """What the two kinds of generating models share: scores of the vocabulary, and generation with a cache.

    Args:
        config: Of the architecture; its `tied` is `tie_word_embeddings`.
        tied: The output is the table of the token embeddings, as the tensors of a checkpoint say; the configuration's
            by default.
        kwargs: Of `PretrainedModel`.
    """

    generates = True
    optional_head = True
    head_table: ClassVar[Sequence[Row]] = (Row(("kernel",), "lm_head.weight", transpose=True),)

    def __init__(self, config: Any, tied: bool | None = None, **kwargs: Any) -> None:
        super().__init__(config if tied is None else config.with_tied_output(tied), **kwargs)

    @classmethod
    def parts(cls, tensors: TensorFile) -> dict[str, Any]:
        """Whether the output is tied, where a checkpoint holds the output and the token embeddings: if they are equal.

        Where it lacks the output, `tie_word_embeddings` decides.
        """
        names = cls.backbone_type.names
        output = next(row.tensor for row in cls.head_table if row.variables == ("kernel",))
        located = names.located(tensors, {output})
        pair = [located.get(name) for name in (output, names.prefix + names.tokens)]
        if pair[0] is None:
            return {}
        if pair[1] is None or tensors.shape(pair[0]) != tensors.shape(pair[1]):
            return {"tied": False}
        return {"tied": np.array_equal(tensors.read(pair[0]), tensors.read(pair[1]))}

    def make_head(self) -> LMHead:
        """The output, tied or with a kernel of its own."""
        config = self.config
        return LMHead(config.vocab_size, tied=config.tied, name="head", **self.head_options())

    def head_options(self) -> dict[str, Any]:
        """Further arguments of `LMHead`."""
        return {"kernel_initializer": self.backbone.initializer}

    def head_rows(self) -> list[Row]:
        """The rows of the head, without those of a tied matrix."""
        return [row for row in self.head_table if not (self.config.tied and row.variables == ("kernel",))]

    def project(self, hidden: Tensor) -> Tensor:
        """Logits `(B, T, V)` of hidden states `(B, T, E)`."""
        return self.head(hidden, embedding=self.backbone.tokens)

    def cache_shapes(self, batch: Any, length: Any) -> list[tuple[Any, ...]]:
        """Shape `(B, G, S, D)` of the keys (and of the values) of each layer with a cache."""
        shapes: list[tuple[Any, ...]] = self.backbone.cache_shapes(batch, length)
        return shapes

    def generate(self, inputs: Any, *, attention_mask: Any = None, **settings: Any) -> Any:
        """Generates from texts or ids.

        Args:
            inputs: A text, a list of texts, or ids `(B, P)`.
            attention_mask: `(B, P)` for ids, 1 for real tokens.
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`,
                what `kerasformer.generation.request` knows beside them (`stop`, `negative_prompt`, `assistant`, …), and
                `jit_compile=False` to do without XLA.

        Returns:
            For a text, the text (a decoder's begins with the prompt); for a list, a list; for ids, a list of int32
            arrays of the new tokens. With `return_dict_in_generate` or `output_scores` the `GenerationOutput` instead.
        """
        from kerasformer.models.keras_engine import generate

        return generate(self, inputs, attention_mask, settings)

    def stream(self, text: str, *, callback: Callback | None = None, **settings: Any) -> Stream:
        """Generates from a text piece by piece: the new text alone, as it comes.

        Args:
            text: The prompt, or what an encoder-decoder reads.
            callback: Is given each piece.
            settings: As for `generate`; without beams.
        """
        from kerasformer.models.keras_engine import stream

        return stream(self, text, callback, settings)


class CausalModel(TextModel):
    """Reads a text with a backbone that sees the past alone, and a head."""

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> dict[str, Any]:
        """The visibility of a causal text."""
        length, mask = ops.shape(arrays["input_ids"])[1], arrays.get("attention_mask")
        positions = arrays.get("position_ids")
        return {"visibility": Visibility.of_text(length, mask, causal=True, positions=positions)}


class CausalLM(CausalModel, _Generates):
    """Continues a text: a `CausalModel` that gives logits `(B, T, V)`, and generates."""

    task = "text-generation"

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Logits of every place."""
        return self.project(states["output"])

    def decode(
        self, tokens: Tensor, visibility: Visibility, caches: Sequence[LayerCache]
    ) -> tuple[Tensor, tuple[LayerCache, ...]]:
        """Some tokens, with all before them in the caches.

        Args:
            tokens: `(B, T)` int32.
            visibility: Slots and positions of the tokens, and the slots of the caches that they see.
            caches: One `LayerCache` for each layer.

        Returns:
            `(logits (B, T, V), caches)`.
        """
        states = self.backbone(tokens, visibility=visibility, caches=caches, return_cache=True)
        return self.project(states["output"]), states["caches"]


class Seq2SeqLM(_Generates):
    """Writes a text from another: an encoder, and a decoder that attends to it.

    Call arguments:
        inputs: Dictionary of int32: `input_ids` `(B, M)`, `decoder_input_ids` `(B, T)`; optional `attention_mask`
            and `decoder_attention_mask`.
        return_hidden_states: Gives a dictionary with `output`, the decoder's `hidden_states` and the
            `encoder_hidden_states`.
        return_attention: Likewise with the decoder's `attentions` and `cross_attentions` `(B, H, T, M)`, and the
            `encoder_attentions`.

    Returns:
        Logits `(B, T, V)`.
    """

    task = "text2text-generation"
    is_encoder_decoder = True

    @property
    def input_names(self) -> tuple[str, ...]:
        """Arrays that `call` takes: the encoder's, and the decoder's."""
        return (*super().input_names, "decoder_input_ids", "decoder_attention_mask")

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Any:
        """Logits of every place of the decoder."""
        arrays = self.checked(inputs)
        if "decoder_input_ids" not in arrays:
            raise InputError(f"{type(self).__name__} needs decoder_input_ids. Received: {', '.join(inputs)}")
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
        """Hidden states `(B, M, E)` of the text to read."""
        return self.backbone.encode(ids, attention_mask=attention_mask, training=training)

    def memory_shapes(self, batch: Any, length: Any) -> list[tuple[Any, ...]]:
        """Shape `(B, G, M, D)` of the keys (and of the values) of each layer's encoded text."""
        shapes: list[tuple[Any, ...]] = self.backbone.memory_shapes(batch, length)
        return shapes

    def project_memory(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each decoder layer's keys and values `(B, H, M, D)` of the encoded text."""
        return self.backbone.project_memory(memory)

    def project(self, hidden: Tensor) -> Tensor:
        """Logits `(B, T, V)` of the decoder's hidden states `(B, T, E)`."""
        return self.head(hidden, embedding=self.backbone.output_tokens)

    def decode(
        self,
        tokens: Tensor,
        visibility: Visibility,
        caches: Sequence[LayerCache],
        memory_mask: Tensor | None,
        cross_caches: Sequence[LayerCache],
        memory: Tensor | None = None,
    ) -> tuple[Tensor, tuple[LayerCache, ...], tuple[LayerCache, ...]]:
        """Some tokens, with all before them in the caches.

        Args:
            tokens: `(B, T)` int32.
            visibility: Slots of the tokens, and the slots of the caches that they see; a decoder's text begins at slot
                0 in every row.
            caches: One `LayerCache` for each layer's self attention.
            memory_mask: 1 for real tokens of the encoded text, `(B, M)`.
            cross_caches: One for each layer: the result of `project_memory`, or a part of it that `memory` completes.
            memory: Hidden states of the encoder that are not in `cross_caches` yet, or `None`.

        Returns:
            `(logits (B, T, V), caches, cross caches)`.
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
