"""The base of all models, and the three contracts by which everything else knows a model: encode, decode, translate.

Export, decoding and pipelines see `EncoderModel`, `CausalLM` and `Seq2SeqLM`, never an architecture.
Shape letters: `B` batch, `T` query length, `S` key length, `M` length of the encoded text, `H` heads, `D` head size,
`E` hidden, `V` vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import keras
import numpy as np
from keras import ops

from kerasformer.bundle import ModelInfo
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError, require
from kerasformer.layers import LayerCache, causal_mask, padding_mask
from kerasformer.layers.primitives import Tensor
from kerasformer.swap import staging
from kerasformer.zoo._config import Config
from kerasformer.zoo._tensors import TensorFile
from kerasformer.zoo._weights import Names, Row, hf_tensors, nested

HEAD = "head/"
"""Path below the model under which the variables of a task's head lie."""

Inputs = Mapping[str, Any]


class PretrainedModel(keras.Model):
    """A Transformer for one task.

    A subclass names its parts; `build()` creates every variable at once.

    Attributes:
        task: Hugging Face's task name.
        architecture: Class name in `transformers`, for `config.json`.
        backbone_type: The layer without head.
        optional_names: Arrays that it takes too, and no pipeline gives.
        bare: Saved without the prefix of the backbone's tensors, as models without head are.
        head_table: Weight table of the head, Keras paths below `head/`.
        generates: Writes token after token, with a cache, rather than answering at once.
        output_name: Hugging Face's name of what `call` gives.
        tokenizer: Set by `zoo.load`.
        generation_config: Set by `zoo.load`.
    """

    task: ClassVar[str]
    architecture: ClassVar[str]
    backbone_type: ClassVar[Any]
    optional_names: ClassVar[tuple[str, ...]] = ("position_ids",)
    bare: ClassVar[bool] = False
    head_table: ClassVar[Sequence[Row]] = ()
    is_encoder_decoder: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    output_name: ClassVar[str] = "logits"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets Keras find every model by name when it opens a `.keras` file."""
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable("kerasformer")(cls)

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.head: Any = None
        self.tokenizer: Any = None
        self.generation_config = GenerationConfig()
        self.new_variables: tuple[str, ...] = ()
        self._generator: Any = None
        self.backbone = self.make_backbone()
        self.head = self.make_head()

    def make_backbone(self) -> keras.layers.Layer:
        """The layer without head."""
        return self.backbone_type(self.config, name="backbone")

    def make_head(self) -> keras.layers.Layer | None:
        """The layer above the backbone, named `head`; `None` if the backbone is all."""
        return None

    def build(self, input_shape: Any = None) -> None:
        """Creates every variable."""
        self.backbone.build(None)
        if self.head is not None:
            self.head.build((None, None, self.config.hidden_dim))

    def rows(self, bare: bool = False) -> list[Row]:
        """The weight table of this model; `bare` leaves the prefix of the backbone's tensors out."""
        prefix = "" if bare else self.backbone_type.names.prefix
        return [*nested(self.backbone.rows(), "backbone/", prefix), *nested(self.head_rows(), HEAD)]

    def head_rows(self) -> list[Row]:
        """Those rows of `head_table` that this model has."""
        return list(self.head_table)

    @classmethod
    def parts(cls, tensors: TensorFile) -> dict[str, Any]:
        """Constructor arguments for parts that a checkpoint with these tensors, a collection of names, has or lacks."""
        return {}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Arrays that `call` takes."""
        names: tuple[str, ...] = self.backbone_type.input_names
        return names

    def checked(self, inputs: Inputs) -> dict[str, Tensor]:
        """The inputs as int32 tensors.

        Raises:
            InputError: no dictionary, an unknown name, or no `input_ids`.
        """
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"{type(self).__name__} takes a dictionary of int32 arrays, {', '.join(self.input_names)}. "
                f"Received: {type(inputs).__name__}"
            )
        allowed = {*self.input_names, *self.optional_names}
        unknown = sorted(set(inputs) - allowed)
        missing = sorted({"input_ids"} - set(inputs))
        if unknown or missing:
            raise InputError(
                f"{type(self).__name__} takes {', '.join(self.input_names)}. Received: {', '.join(inputs) or 'nothing'}"
            )
        return {name: ops.cast(value, "int32") for name, value in inputs.items() if value is not None}

    def named(self, output: Any) -> dict[str, Tensor]:
        """What `call` gave, under Hugging Face's names: what bundles give, and so what pipelines read."""
        return {self.output_name: output}

    def info(self, task: str | None = None) -> ModelInfo:
        """All that a pipeline or a bundle needs to know of this model."""
        config, settings = self.config, self.generation_config.to_dict()
        eos = settings.get("eos_token_id", config.eos_token_id)
        return ModelInfo(
            task=task or self.task,
            model_type=config.model_type,
            name=self.name,
            labels=config.labels if self.has_labels else (),
            problem_type=config.problem_type if self.has_labels else None,
            max_length=self.max_length,
            vocab_size=config.vocab_size,
            is_encoder_decoder=self.is_encoder_decoder,
            pad_token_id=settings.get("pad_token_id", config.pad_token_id),
            bos_token_id=settings.get("bos_token_id", config.bos_token_id),
            decoder_start_token_id=settings.get("decoder_start_token_id"),
            eos_token_id=() if eos is None else tuple(np.atleast_1d(eos).tolist()),
            task_prefixes=self.task_prefixes,
            input_names=self.input_names,
            generation=settings,
        )

    has_labels: ClassVar[bool] = False

    @property
    def max_length(self) -> int | None:
        """Longest text in tokens, or `None` if positions have no end."""
        return getattr(self.config, "max_length", None)

    @property
    def task_prefixes(self) -> dict[str, str]:
        """What the checkpoint puts before a text, by task."""
        specific = self.config.task_specific_params or {}
        return {task: values["prefix"] for task, values in specific.items() if values.get("prefix")}

    def save_pretrained(self, folder: str | Path, *, dtype: str | None = None) -> Path:
        """Writes the model in Hugging Face's format; `transformers` loads the folder to equal outputs.

        Args:
            folder: Each file is written aside and moved into place; other files there are left alone.
            dtype: `"float16"` halves the file; `None` keeps the variables' own.
        """
        folder = Path(folder)
        safetensors_numpy = require("safetensors.numpy", "tensorflow")
        with staging(folder) as aside:
            tensors = {
                name: np.ascontiguousarray(value if dtype is None else value.astype(dtype))
                for name, value in hf_tensors(self, self.rows(self.bare))
            }
            safetensors_numpy.save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})
            content = {"architectures": [self.architecture], **self.config.to_hf()}
            content["dtype"] = dtype or next(iter(tensors.values())).dtype.name
            _write_json(aside / "config.json", content)
            if isinstance(self, CausalLM | Seq2SeqLM):
                _write_json(aside / "generation_config.json", self.generation_config.to_dict())
            if self.tokenizer is not None:
                self.tokenizer.save(aside)
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(aside.iterdir()):
                path.replace(folder / path.name)
        return folder

    def export(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Keras' own export would write a file without cache and without check."""
        raise InputError(
            "model.export is not supported. Use kerasformer.export.export(model, folder, format='tflite' or 'onnx')"
        )

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_hf()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> PretrainedModel:
        """A model from `get_config`, with every variable created."""
        rest = {name: value for name, value in config.items() if name not in ("config", "dtype")}
        return create(cls, cls.backbone_type.config_type.from_hf(config["config"]), config["dtype"], **rest)


def create(kind: type[PretrainedModel], config: Config, dtype: Any = None, build: bool = True, **kwargs: Any) -> Any:
    """A model with this dtype policy, with every variable created if `build`."""
    with _policy(dtype):
        model = kind(config, **kwargs)
    if build:
        model.build()
    return model


@contextmanager
def _policy(dtype: Any) -> Iterator[None]:
    """Layers that are made here have this dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(before if dtype is None else dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class Backbone(keras.layers.Layer):
    """A Transformer without head.

    Attributes:
        config_type: Its configuration.
        names: How checkpoints spell its tensors.
        input_names: Arrays that describe a text.
    """

    config_type: ClassVar[type[Config]]
    names: ClassVar[Names] = Names()
    input_names: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def rows(self) -> list[Row]:
        """The weight table, Keras paths below the backbone."""
        raise InputError(f"{type(self).__name__} has no weight table")


def packed(output: Tensor, states: Any, hidden_states: bool, attention: bool) -> Any:
    """The one tensor that a model gives, or a dictionary if more was asked for."""
    if not (hidden_states or attention):
        return output
    result = {"output": output}
    if hidden_states:
        result["hidden_states"] = states.hidden_states
    if attention:
        result["attentions"] = states.attentions
    return result


class EncoderModel(PretrainedModel):
    """Reads a text at once: a backbone that sees both ways, and a head.

    Attributes:
        pooled: Has a pooler, a dense layer with tanh over the first token; for backbones that may have one.

    Call arguments:
        inputs: Dictionary of int32 `(B, T)`: `input_ids`; optional `attention_mask` (1 for real tokens) and
            `token_type_ids`.
        return_hidden_states: Gives a dictionary with `output` and all `hidden_states`.
        return_attention: Likewise with the attention weights.

    Returns:
        One tensor: logits or hidden states.
    """

    pooled: bool = False

    def make_backbone(self) -> keras.layers.Layer:
        """The layer without head."""
        options = {"pooler": True} if self.pooled else {}
        return self.backbone_type(self.config, name="backbone", **options)

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Any:
        """Applies backbone and head."""
        arrays = self.checked(inputs)
        mask = arrays.get("attention_mask")
        # Not every backbone has segments, or positions to give.
        names = {"token_type_ids": "segments", "position_ids": "positions"}
        places = {argument: arrays[name] for name, argument in names.items() if name in arrays}
        states = self.backbone(
            arrays["input_ids"],
            attention_mask=None if mask is None else padding_mask(mask),
            training=training,
            **places,
        )
        output = self.answer(states, arrays, training)
        return packed(output, states, return_hidden_states, return_attention)

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Any:
        """What the head makes of the backbone's output."""
        return states.output


class _Generates(PretrainedModel):
    """What the two kinds of generating models share."""

    def cache_shape(self, batch: Any, length: Any) -> tuple[Any, ...]:
        """Shape `(B, H, S, D)` of the keys (and of the values) of one layer."""
        return self.backbone.cache_shape(batch, length)

    @property
    def num_cache_layers(self) -> int:
        """Layers that have a cache."""
        return int(self.backbone.num_cache_layers)

    def generate(self, inputs: Any, *, attention_mask: Any = None, **settings: Any) -> Any:
        """Generates from texts or ids.

        Args:
            inputs: A text, a list of texts, or ids `(B, P)`.
            attention_mask: `(B, P)` for ids, 1 for real tokens.
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`.

        Returns:
            For a text, the text (a decoder's begins with the prompt); for a list, a list; for ids, a list of int32
            arrays of the new tokens.
        """
        from kerasformer.zoo._engine import generate

        return generate(self, inputs, attention_mask, settings)


class CausalLM(_Generates):
    """Continues a text: a backbone that sees the past alone.

    Call arguments:
        inputs: Dictionary of int32 `(B, T)`: `input_ids`; optional `attention_mask` and `position_ids`.
        return_hidden_states: Gives a dictionary with `output` and all `hidden_states`.
        return_attention: Likewise with the attention weights.

    Returns:
        Logits `(B, T, V)`.
    """

    task = "text-generation"
    generates = True

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Any:
        """Logits of every place."""
        states = self.run_backbone(self.checked(inputs), training)
        return packed(self.project(states.output), states, return_hidden_states, return_attention)

    def run_backbone(self, arrays: Mapping[str, Tensor], training: bool) -> Any:
        """The backbone over a whole text, without a cache."""
        ids = arrays["input_ids"]
        mask = causal_mask(ops.shape(ids)[1])
        if "attention_mask" in arrays:
            mask = ops.logical_and(mask, padding_mask(arrays["attention_mask"]))
        return self.backbone(ids, positions=arrays.get("position_ids"), attention_mask=mask, training=training)

    def project(self, hidden: Tensor) -> Tensor:
        """Logits `(B, T, V)` of hidden states `(B, T, E)`; tied to the token embeddings where there is no head."""
        return self.backbone.tokens.project(hidden) if self.head is None else self.head(hidden)

    def decode(
        self, tokens: Tensor, positions: Tensor, attention_mask: Tensor, caches: Sequence[LayerCache]
    ) -> tuple[Tensor, tuple[LayerCache, ...]]:
        """Some tokens, with all before them in the caches.

        Args:
            tokens: `(B, T)` int32.
            positions: `(B, T)` or `(1, T)` int32: where the tokens stand in their own text.
            attention_mask: Boolean, broadcastable to `(B, 1, T, S)`, over the positions of the caches.
            caches: One `LayerCache` a layer.

        Returns:
            `(logits (B, T, V), caches)`.
        """
        states = self.backbone(tokens, positions=positions, attention_mask=attention_mask, caches=caches)
        return self.project(states.output), states.caches


class Seq2SeqLM(_Generates):
    """Writes a text from another: an encoder, and a decoder that attends to it.

    Call arguments:
        inputs: Dictionary of int32: `input_ids` `(B, M)`, `decoder_input_ids` `(B, T)`; optional `attention_mask`
            and `decoder_attention_mask`.
        return_hidden_states: Gives a dictionary with `output` and the decoder's `hidden_states`.
        return_attention: Likewise with the decoder's attention weights.

    Returns:
        Logits `(B, T, V)`.
    """

    task = "text2text-generation"
    optional_names = ()
    is_encoder_decoder = True
    generates = True

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
        mask = causal_mask(ops.shape(arrays["decoder_input_ids"])[1])
        if "decoder_attention_mask" in arrays:
            mask = ops.logical_and(mask, padding_mask(arrays["decoder_attention_mask"]))
        memory_mask = arrays.get("attention_mask")
        states = self.backbone.decode(
            arrays["decoder_input_ids"],
            attention_mask=mask,
            memory=self.encode(arrays["input_ids"], memory_mask, training),
            memory_mask=None if memory_mask is None else padding_mask(memory_mask),
            training=training,
        )
        return packed(self.project(states.output), states, return_hidden_states, return_attention)

    def encode(self, ids: Tensor, attention_mask: Tensor | None = None, training: bool = False) -> Tensor:
        """Hidden states `(B, M, E)` of the text to read."""
        mask = None if attention_mask is None else padding_mask(attention_mask)
        return self.backbone.encode(ids, attention_mask=mask, training=training).output

    def project_memory(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each decoder layer's keys and values `(B, H, M, D)` of the encoded text."""
        return self.backbone.project_memory(memory)

    def project(self, hidden: Tensor) -> Tensor:
        """Logits `(B, T, V)` of the decoder's hidden states `(B, T, E)`."""
        return self.backbone.tokens.project(hidden) if self.head is None else self.head(hidden)

    def decode(
        self,
        tokens: Tensor,
        positions: Tensor,
        attention_mask: Tensor,
        caches: Sequence[LayerCache],
        memory_mask: Tensor,
        cross_caches: Sequence[LayerCache],
        memory: Tensor | None = None,
    ) -> tuple[Tensor, tuple[LayerCache, ...], tuple[LayerCache, ...]]:
        """Some tokens, with all before them in the caches.

        Args:
            tokens: `(B, T)` int32.
            positions: `(T,)` int32; a decoder's text begins at 0 in every row.
            attention_mask: Boolean, broadcastable to `(B, 1, T, S)`, over the positions of the caches.
            caches: One `LayerCache` a layer, of the self attention.
            memory_mask: Boolean, broadcastable to `(B, 1, T, M)`.
            cross_caches: One a layer: what `project_memory` gave, or a part of it that `memory` completes.
            memory: Hidden states of the encoder that are not in `cross_caches` yet, or `None`.

        Returns:
            `(logits (B, T, V), caches, cross caches)`.
        """
        states = self.backbone.decode(
            tokens,
            positions=positions,
            attention_mask=attention_mask,
            caches=caches,
            memory=memory,
            memory_mask=memory_mask,
            cross_caches=cross_caches,
        )
        return self.project(states.output), states.caches, states.cross_caches
