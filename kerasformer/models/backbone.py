"""The base class of all backbones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import keras

from kerasformer.errors import CheckpointError, InputError
from kerasformer.layers.core import PACKAGE, Composite
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.tensor import Shape, Tensor
from kerasformer.models.config import Config
from kerasformer.models.creation import check_config, dtype_policy
from kerasformer.models.named_arrays import Inputs
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, POSITION_IDS, TextInput
from kerasformer.models.weight_table import Names, Row


class Backbone(Composite):
    """Base of Transformers without head.

    Attributes:
        config_type: Class of the configuration.
        names: Names of the tensors in checkpoints.
        architecture_prefix: Prefix of the model classes in `transformers`; the name of the backbone's class by default.
        input_arrays: Input arrays of the model, in the order in which bundles declare them.
        heads_differ: Whether a head computes something that follows from its index and the number of heads, as with
            ALiBi, so that none can be removed.
        is_table: Whether there is nothing but a table of token vectors, so that a text needs no runtime.
    """

    config_type: ClassVar[type[Config]]
    names: ClassVar[Names] = Names()
    architecture_prefix: ClassVar[str] = ""
    input_arrays: ClassVar[tuple[TextInput, ...]] = (INPUT_IDS, ATTENTION_MASK, POSITION_IDS)
    heads_differ: ClassVar[bool] = False
    is_table: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Registers the class, so that Keras finds it by name when it opens a `.keras` file."""
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable(PACKAGE)(cls)

    def __init__(self, config: Config, **kwargs: Unpack[LayerOptions]) -> None:
        check_config(type(self), config)
        super().__init__(**kwargs)
        self.config: Any = config
        self.autocast = False  # floating-point ids would be rounded to half precision

    @property
    def text_inputs(self) -> tuple[TextInput, ...]:
        """The arrays of `input_arrays` that apply to this configuration."""
        return tuple(text_input for text_input in self.input_arrays if text_input.count(self.config) != 0)

    def __call__(self, ids: object, *args: object, **kwargs: object) -> Tensor | Outputs:
        """As in Keras; also accepts an `Encoding` of the tokenizer, or another mapping of input arrays.

        Raises:
            InputError: a mapping with an unknown name or without `input_ids`.
        """
        if isinstance(ids, Mapping):
            arrays = ids
            known = [text_input.name for text_input in self.text_inputs]
            if "input_ids" not in arrays or set(arrays) - set(known):
                raise InputError(
                    f"{type(self).__name__} expects {', '.join(known)}. Received: {', '.join(arrays) or 'nothing'}"
                )
            ids, kwargs = arrays["input_ids"], {**self.arguments(arrays), **kwargs}
        return super().__call__(ids, *args, **kwargs)

    def arguments(self, arrays: Inputs) -> LayerArguments:
        """Returns the arguments of the call for input arrays by name, except the ids."""
        passed = (text_input for text_input in self.text_inputs if text_input.name != "input_ids")
        return {
            text_input.argument: arrays[text_input.name]
            for text_input in passed
            if arrays.get(text_input.name) is not None
        }

    def checkpoint_names(self) -> Names:
        """Returns the names of the tensors in checkpoints."""
        return self.names

    @classmethod
    def tied_tables(cls, config: Any) -> dict[str, str]:
        """Returns the tables that equal another one, by name, with the name of that one."""
        names = cls.names
        return {names.prefix + copy: names.prefix + original for copy, original in names.copies.items()}

    @classmethod
    def untied(cls, config: Any, tables: bool, problem: str) -> Config:
        """Returns the configuration of a model whose output is not the table of token embeddings.

        Args:
            config: The configuration.
            tables: Whether encoder and decoder also have separate tables.
            problem: The problem of the tensors for the error message.

        Raises:
            CheckpointError: the architecture has no such models.
        """
        if not any(field.name == "tied" for field in dataclasses.fields(config)):
            raise CheckpointError(
                f"{problem}. {config.model_type} has one matrix for them. Expected: equal tensors, or one of them"
            )
        return dataclasses.replace(config, tied=False)

    def rows(self) -> list[Row]:
        """Returns the weight table, with Keras paths below the backbone."""
        raise InputError(f"{type(self).__name__} has no weight table")

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Maps `(B, T)` to `(B, T, E)`."""
        return (*(input_shape or (None, None)), self.config.output_dim)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "config": self.config.to_hf()}

    @classmethod
    def from_config(cls, config: LayerConfig) -> Backbone:
        """Creates a backbone from the result of `get_config`, without building it."""
        with dtype_policy(config.get("dtype")):
            return cls(**{**config, "config": cls.config_type.from_hf(config["config"])})
