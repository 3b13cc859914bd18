"""The base class of all models: a backbone and a head, weight tables, and files of Hugging Face and Keras.

Called by `loading`, which creates a model, and by the Keras engine, which runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Unpack

import keras

import kerasformer
from kerasformer.basics.arguments import BOOLEAN, Arguments, check, shown
from kerasformer.basics.options import documented
from kerasformer.bundle import Bundle, ModelInfo
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.files.reading import JsonObject
from kerasformer.files.tensors import TensorFile
from kerasformer.generation import GenerationConfig
from kerasformer.generation.generation_config import FILE_NAME
from kerasformer.layers.attention_spec import AttentionSpec
from kerasformer.layers.core import PACKAGE, Embedding
from kerasformer.layers.layer_types import LayerConfig, LayerOptions
from kerasformer.layers.tensor import Shape
from kerasformer.models import ties
from kerasformer.models.adaptation import Adaptable
from kerasformer.models.backbone import Backbone
from kerasformer.models.config import Config
from kerasformer.models.creation import check_config, create, not_loaded_here
from kerasformer.models.model_info import model_info
from kerasformer.models.named_arrays import NamedArrays
from kerasformer.models.saving import save_checkpoint
from kerasformer.models.weight_table import HEAD, Names, Row, nested
from kerasformer.tokenization import Tokenizer, has_tokenizer

if TYPE_CHECKING:
    from kerasformer.bundle.recipes import Recipe
    from kerasformer.models.sentence_settings import SentenceSettings


class PretrainedModel(NamedArrays, Adaptable):
    """Base of Transformer models for one task: a backbone and an optional head.

    A class for an architecture specifies its backbone, as in `class BertFillMask(FillMask, backbone=Bert)`. `build()`
    creates all variables at once.

    Attributes:
        task: Hugging Face's name of the task.
        architecture: Name of the class in `transformers`, for `config.json`; by default that of the backbone with
            `architecture_suffix`.
        former_architecture: Name that the class had in early versions of `transformers`; optional.
        architecture_suffix: Suffix that the classes for this task have in `transformers`.
        class_suffix: Suffix that the classes for this task have here, after the name of the backbone.
        in_transformers: Whether `transformers` has this class.
        backbone_type: Class of the backbone.
        bare: Whether checkpoints omit the prefix of the backbone's tensors, as those of models without head.
        prefix: Prefix of the backbone's tensors in saved checkpoints, if it is not that of the architecture's `Names`.
        head_table: Weight table of the head, with Keras paths below `head/`.
        optional_head: Whether checkpoints may omit the tensors of the head, which are copies of the backbone's.
        declares_ties: Whether the configuration says if the output is tied; otherwise only the tensors do (T5).
        is_encoder_decoder: Whether the model has an encoder and a decoder and generates with both.
        generates: Whether the model generates token by token with a cache.
        has_labels: Whether the model is a classifier with named classes.
        tokenizer: Tokenizer of the checkpoint, set by `zoo.load`; optional.
        generation_config: Default generation settings, set by `zoo.load`.
        new_variables: Paths of the variables that the checkpoint did not provide, set by `zoo.load`.
        source: Folder of the checkpoint, set by `zoo.load`; optional.
        loaded_values: A few values of each weight as it was loaded, by its path; optional.
    """

    task: str
    architecture: ClassVar[str]
    former_architecture: ClassVar[str | None] = None
    architecture_suffix: ClassVar[str] = "Model"
    class_suffix: ClassVar[str]
    in_transformers: ClassVar[bool] = True
    backbone_type: ClassVar[Any]
    bare: ClassVar[bool] = False
    prefix: ClassVar[str | None] = None
    head_table: ClassVar[Sequence[Row]] = ()
    optional_head: ClassVar[bool] = False
    declares_ties: ClassVar[bool] = True
    is_encoder_decoder: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    has_labels: ClassVar[bool] = False

    def __init_subclass__(cls, backbone: type[Backbone] | None = None, **kwargs: object) -> None:
        """Registers the class, so that Keras finds it by name when it opens a `.keras` file."""
        super().__init_subclass__(**kwargs)
        if backbone is not None:
            cls.backbone_type = backbone
            if "architecture" not in vars(cls):
                cls.architecture = (backbone.architecture_prefix or backbone.__name__) + cls.architecture_suffix
        keras.saving.register_keras_serializable(PACKAGE)(cls)

    def __init__(self, config: Config, **kwargs: Unpack[LayerOptions]) -> None:
        check_config(type(self), config)
        super().__init__(**kwargs)
        self.config: Any = config
        self.head: Any = None
        self.tokenizer: Any = None
        self.generation_config = GenerationConfig()
        self.new_variables: tuple[str, ...] = ()
        self.source: Path | None = None
        self.loaded_values: Mapping[str, bytes] | None = None
        self.backbone = self.make_backbone()
        self.head = self.make_head()
        if config.prefix_lm and (reason := self.prefix_obstacle()):
            raise UnsupportedConfigError(
                "prefix_lm needs a decoder-only language model whose layers have no sliding window. "
                f"Received: prefix_lm=True for {type(self).__name__}, {reason}"
            )

    @classmethod
    def from_pretrained(cls, source: object = ..., *args: object, **kwargs: object) -> NoReturn:
        """Raises an `InputError` that names `zoo.load`."""
        raise not_loaded_here(cls, f"{cls.__name__}.from_pretrained({shown(source)})")

    @classmethod
    def from_preset(cls, source: object = ..., *args: object, **kwargs: object) -> NoReturn:
        """Raises an `InputError` that names `zoo.load`."""
        raise not_loaded_here(cls, f"{cls.__name__}.from_preset({shown(source)})")

    def prefix_obstacle(self) -> str:
        """Returns why the tokens of a prompt cannot attend to each other in both directions; empty if they can."""
        return "which is not a decoder-only language model"

    def make_backbone(self) -> keras.layers.Layer:
        """Creates the backbone, named `backbone`."""
        return self.backbone_type(self.config, name="backbone")

    def make_head(self) -> keras.layers.Layer | None:
        """Creates the head, named `head`; `None` for a model without head."""
        return None

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates all variables."""
        self.backbone.build(None)
        if self.head is not None:
            self.head.build(self.head_shape())

    def head_shape(self) -> tuple[int | None, ...]:
        """Returns the shape of the input of the head."""
        return None, None, self.config.output_dim

    def rows(self, saved: bool = False) -> list[Row]:
        """Returns the weight table of the model.

        Args:
            saved: Whether the tensors have their names in saved checkpoints, with the prefix that the class of
                `transformers` has; by default all classes of an architecture have the same prefix.
        """
        prefix: str = self.backbone_type.names.prefix
        if saved and (self.bare or self.prefix is not None):
            prefix = self.prefix or ""
        return [*nested(self.backbone.rows(), "backbone/", prefix), *nested(self.head_rows(), HEAD)]

    def head_rows(self) -> list[Row]:
        """Returns the rows of `head_table` that apply to this model."""
        return list(self.head_table)

    @classmethod
    def ties(cls, config: Any) -> dict[str, str]:
        """Returns the tensors that equal another one in a tied model, by name, with the name of that one.

        These are tables of tokens and the output matrix; see `ties.py`.
        """
        names: Names = cls.backbone_type.names
        tokens = names.prefix + cls.tied_tensor(config)
        outputs = {row.tensor: tokens for row in cls.head_table if row.tied}
        return {**cls.backbone_type.tied_tables(config), **outputs}

    @classmethod
    def tied_tensor(cls, config: Any) -> str:
        """Returns the name of the token embeddings to which an output may be tied, without the prefix."""
        return str(cls.backbone_type.names.tokens)

    @classmethod
    def missing_ties(cls, config: Any) -> dict[str, str]:
        """Returns those of `ties` that a checkpoint may omit: the output matrix only if it is tied."""
        outputs = {row.tensor for row in cls.head_table if row.tied}
        omits = getattr(config, "tied", True) or not cls.declares_ties
        return {name: original for name, original in cls.ties(config).items() if omits or name not in outputs}

    @classmethod
    def config_for(cls, config: Any, tensors: TensorFile) -> Config:
        """Returns the configuration with settings that only the tensors of a checkpoint reveal.

        By default, that is whether the tensors of `ties` are equal. Those that differ although the configuration ties
        them are separate in the model, with a warning.

        Raises:
            CheckpointError: tensors differ of which the architecture has only one.
        """
        return ties.observed(cls, config, tensors)

    @classmethod
    def parts(cls, tensors: TensorFile) -> Arguments:
        """Returns constructor arguments for optional parts, depending on the tensors of a checkpoint."""
        return {}

    @classmethod
    def options(
        cls, task: str, config: Config, folder: Path | None = None, sentence: SentenceSettings | None = None
    ) -> Arguments:
        """Returns constructor arguments that depend on the task, for a class that performs several.

        Args:
            task: The requested task.
            config: Configuration of the architecture.
            folder: Folder of the checkpoint, optional.
            sentence: Settings of embeddings from the caller, for sentence-similarity.

        Raises:
            InputError: settings of embeddings for another task.
        """
        if sentence is not None:
            raise InputError(f"sentence is only for sentence-similarity. Received: sentence=… for {task}")
        return {}

    def attention_specs(self) -> dict[str, AttentionSpec]:
        """Returns the description of each attention layer by its path."""
        parts = ((layer.path, getattr(layer, "spec", None)) for layer in self._flatten_layers())
        return {path: spec for path, spec in parts if isinstance(spec, AttentionSpec)}

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information about the model that pipelines and bundles need."""
        return model_info(self, task or self.task)

    @property
    def shared_table(self) -> Embedding | None:
        """The table of token embeddings if it is also the matrix of the scores, or that of the other stack."""
        return None

    @property
    def task_prefixes(self) -> dict[str, str]:
        """Prefixes of input texts by task, as configured in the checkpoint; see `ModelInfo.task_prefixes`."""
        specific = self.config.task_specific_params or {}
        general = {"": self.config.prefix} if self.generates and self.config.prefix else {}
        prefixes = {task: values["prefix"] or "" for task, values in specific.items() if "prefix" in values}
        # An empty prefix is one only where it takes the place of that of all tasks.
        return general | {task: text for task, text in prefixes.items() if text or general}

    @property
    def task_settings(self) -> dict[str, JsonObject]:
        """Generation settings by task, as configured in the checkpoint."""
        specific = self.config.task_specific_params or {}
        settings = {task: {k: v for k, v in values.items() if k != "prefix"} for task, values in specific.items()}
        return {task: values for task, values in settings.items() if values}

    def set_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Sets the tokenizer.

        Raises:
            InputError: it is none of this package.
        """
        if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
            raise InputError(
                "A kerasformer.Tokenizer was expected, such as Tokenizer.load(tokenizer) for one of transformers. "
                f"Received: {type(tokenizer).__name__}"
            )
        self.tokenizer = tokenizer

    def extra_files(self) -> JsonObject:
        """Returns the contents of further JSON files of a checkpoint by their paths."""
        return {}

    def save_pretrained(self, folder: str | Path, *, dtype: str | None = None, overwrite: bool = False) -> Path:
        """Saves the model in Hugging Face's format; `transformers` loads it with equal outputs.

        Args:
            folder: Destination. Files are written to a temporary folder and moved; other files in `folder` are kept. A
                model of the same class and configuration is replaced, as when saving after each epoch. A folder without
                README.md also gets the card, the licence and the notices of the checkpoint that the model was loaded
                from; or, if its weights were changed, a card that names this one as its base.
            dtype: Data type of the tensors, such as `"float16"`; by default that of the variables.
            overwrite: Whether to replace a model of another class or configuration, too.

        Returns:
            The destination.

        Raises:
            CheckpointError: the disk is full or the folder is not writable; or it has another model or a bundle.
                Existing files are unchanged.
        """
        return save_checkpoint(self, folder, dtype, check("overwrite", overwrite, BOOLEAN))

    def save_assets(self, folder: str) -> None:
        """Saves the tokenizer and the generation settings in a `.keras` file."""
        self.generation_config.save(folder)
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    def load_assets(self, folder: str) -> None:
        """Loads the result of `save_assets`, which older files do not have."""
        if Path(folder, FILE_NAME).exists():
            self.generation_config = GenerationConfig.load(folder)
        if has_tokenizer(Path(folder)):
            self.tokenizer = Tokenizer.load(folder)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Raises an `InputError`, except in generative models."""
        raise InputError(
            "A model that generates was expected. Load one by kerasformer.zoo.load(source, task='text-generation') or "
            f"'text2text-generation'. Received: {type(self).__name__}, a model for {self.task}"
        )

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        """Raises an `InputError`, except in generative models."""
        return self.generate()

    @documented(ExportOptions)
    def export(  # type: ignore[override]  # `keras.Model.export` supports neither caches nor verification
        self,
        folder: str | Path,
        format: str | None = None,
        quantize: str | Recipe = "none",
        **options: Unpack[ExportOptions],
    ) -> Bundle:
        """Exports the model as a verified bundle, see `kerasformer.export.export`.

        Args:
            folder: Folder of the bundle.
            format: `"litert"` (the default), `"onnx"`, `"saved_model"` for TensorFlow, or `"table"` for static
                embeddings.
            quantize: Name of a recipe, such as `"int8"`, or a `kerasformer.export.Recipe`.
            options: See `kerasformer.export.ExportOptions`. Arguments of `keras.Model.export`, such as
                `input_signature`, are unsupported.

        Returns:
            The bundle.
        """
        return kerasformer.export.export(self, folder, format, quantize, **options)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_hf()}

    @classmethod
    def from_config(cls, config: LayerConfig, custom_objects: Mapping[str, type] | None = None) -> PretrainedModel:
        """Creates a model from the result of `get_config`, and its variables."""
        arguments = {name: value for name, value in config.items() if name not in ("config", "dtype")}
        return create(cls, cls.backbone_type.config_type.from_hf(config["config"]), config["dtype"], **arguments)
