"""Base classes of all models and backbones: weight tables, and files in the formats of Hugging Face and Keras."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, Unpack

import keras
import numpy as np
from keras import ops
from keras.src.tree.tree_api import register_tree_node_class

import kerasformer
from kerasformer.basics.arguments import BOOLEAN, Arguments, check, shown
from kerasformer.basics.options import documented
from kerasformer.basics.tasks import FEATURE_EXTRACTION
from kerasformer.bundle import Bundle, LanguageInfo, ModelInfo
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.engines.arrays import as_array, token_array
from kerasformer.errors import CapacityError, CheckpointError, InputError, KerasformerError, UnsupportedConfigError
from kerasformer.files.publishing import MANIFEST, move_files, staging, write_json
from kerasformer.files.reading import JsonObject, local_path, read_json
from kerasformer.files.tensors import TensorFile, save_tensors
from kerasformer.generation import GenerationConfig
from kerasformer.generation.generation_config import FILE_NAME
from kerasformer.layers.attention_spec import AttentionSpec
from kerasformer.layers.core import PACKAGE, Composite, Embedding, merged_lora
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.tensor import Shape, Tensor, is_concrete
from kerasformer.models import ties
from kerasformer.models.adaptation import Adaptable
from kerasformer.models.config import Config
from kerasformer.models.origin import README, Origin
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, POSITION_IDS, TextInput
from kerasformer.models.weight_table import HEAD, Names, Row, head_tensors, nested
from kerasformer.models.weights import hf_tensors
from kerasformer.tokenization import Encoding, Tokenizer, has_tokenizer
from kerasformer.tokenization.languages import MultilingualTokenizer

if TYPE_CHECKING:
    from kerasformer.bundle.recipes import Recipe
    from kerasformer.models.sentence_settings import SentenceSettings

logger = logging.getLogger("kerasformer")

Inputs = Mapping[str, Tensor]
_Model = TypeVar("_Model", bound="PretrainedModel")

# So that every Keras model takes an encoding as it takes a dictionary of arrays.
register_tree_node_class(Encoding)
if keras.backend.backend() == "jax":
    import jax

    jax.tree_util.register_pytree_node(
        Encoding, lambda encoding: (encoding.tree_flatten()[0], tuple(sorted(encoding))), Encoding.tree_unflatten
    )


_FLAGS = {"output_attentions": "return_attention", "output_hidden_states": "return_hidden_states"}
"""Arguments of a model's call by their names in `transformers`."""
_OTHERS = {
    "labels": "the loss is that of model.compile and model.fit or model.evaluate, see kf.training.dataset",
    "return_dict": "the result is a tensor; with return_hidden_states or return_attention, it is a dictionary",
    "inputs_embeds": "a model reads input_ids",
    "past_key_values": "model.generate keeps the caches",
    "use_cache": "model.generate keeps the caches",
}
"""Arguments of models of `transformers` without a counterpart, and what to do instead."""


class PretrainedModel(Adaptable):
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
        output_name: Hugging Face's name of the output of `call`.
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
    output_name: str = "logits"

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
        raise _not_loaded_here(cls, f"{cls.__name__}.from_pretrained({shown(source)})")

    @classmethod
    def from_preset(cls, source: object = ..., *args: object, **kwargs: object) -> NoReturn:
        """Raises an `InputError` that names `zoo.load`."""
        raise _not_loaded_here(cls, f"{cls.__name__}.from_preset({shown(source)})")

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
        all_ties, outputs = cls.ties(config), {row.tensor for row in cls.head_table if row.tied}
        if not all_ties:
            return config
        located = cls.backbone_type.names.located(tensors, head_tensors(cls.head_table))
        pairs = ties.different(tensors, located, all_ties)
        biases = {row.tensor: row.preferred for row in cls.head_table if row.preferred is not None}
        tied = getattr(config, "tied", True)
        for used, unused in ties.different(tensors, located, biases) if tied else ():
            logger.warning("%s: %s is not used, since %s differs from it.", tensors, unused, used)
        if not pairs:
            is_copy = outputs & located.keys() if cls.declares_ties else outputs
            return dataclasses.replace(config, tied=True) if is_copy and not tied else config
        of_tables = [pair for pair in pairs if pair[1] not in outputs]
        declared = [pair for pair in pairs if tied and (cls.declares_ties or pair in of_tables)]
        names = ", ".join(f"{other} and {first}" for first, other in declared)
        if declared:
            logger.warning("%s: %s are tied by the configuration and differ. The model has both.", tensors, names)
        return cls.backbone_type.untied(config, bool(of_tables), f"{tensors}: {names} differ")

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

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the input arrays of `call` and of bundles."""
        return tuple(text_input.name for text_input in self.backbone.text_inputs if text_input.in_bundles(self.config))

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Names of the optional input arrays of `call`, which bundles do not have."""
        return tuple(
            text_input.name for text_input in self.backbone.text_inputs if not text_input.in_bundles(self.config)
        )

    def checked(self, inputs: Inputs) -> dict[str, Tensor]:
        """Validates the inputs and converts them to int32 tensors.

        Raises:
            InputError: not a dictionary, an unknown name, no `input_ids`, or shapes that do not match.
            CapacityError: a text exceeds the maximum length of the model.
        """
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"{type(self).__name__} expects a dictionary of int32 arrays: {', '.join(self.input_names)}. "
                f"Received: {type(inputs).__name__}"
            )
        allowed = {*self.input_names, *self.optional_names}
        unknown = sorted(set(inputs) - allowed)
        missing = sorted({"input_ids"} - set(inputs))
        if unknown or missing:
            raise InputError(
                f"{type(self).__name__} expects {', '.join(self.input_names)}. "
                f"Received: {', '.join(inputs) or 'nothing'}"
            )
        arrays = {name: ops.cast(value, "int32") for name, value in inputs.items() if value is not None}
        decoder = {name: array for name, array in arrays.items() if name.startswith("decoder_")}
        check_shapes({name: array for name, array in arrays.items() if name not in decoder}, self.max_length)
        check_shapes(decoder, self.max_answer_length)
        return arrays

    def __call__(self, inputs: object = None, *args: object, **kwargs: Any) -> Tensor | Outputs:
        """As in Keras; also accepts an `Encoding` of the tokenizer, and its arrays by name as in `transformers`.

        Raises:
            InputError: ids outside the valid range, which is not checked for symbolic tensors; or an argument of
                `transformers` that has no counterpart here.
        """
        named = {name: kwargs.pop(name) for name in (*self.input_names, *self.optional_names) if name in kwargs}
        for theirs, ours in _FLAGS.items():
            if theirs in kwargs:
                kwargs[ours] = kwargs.pop(theirs)
        if others := _OTHERS.keys() & kwargs.keys():
            raise InputError(" ".join(f"{name} is not an argument here: {_OTHERS[name]}." for name in sorted(others)))
        if named:
            first = {} if inputs is None else inputs if isinstance(inputs, Mapping) else {"input_ids": inputs}
            inputs = {**first, **named}
        arrays = _as_dict(inputs)
        if isinstance(arrays, dict):
            arrays = {name: self.ids(name, value) if is_concrete(value) else value for name, value in arrays.items()}
        return super().__call__(arrays, *args, **kwargs)

    def ids(self, name: str, value: object) -> np.ndarray:
        """Converts an input array of `call` to int32 and checks the range of its values.

        Raises:
            InputError: a value is outside the range, such as a token id beyond the vocabulary.
        """
        array = as_array(ops.convert_to_numpy(value) if ops.is_tensor(value) else value)
        if array.ndim != 2 or not array.size:
            return array  # `checked` raises the error
        least = min(
            (text_input.default for text_input in self.backbone.text_inputs if text_input.name == name), default=0
        )
        return token_array(name, array, self.value_counts().get(name), least=least, floats=True)

    def value_counts(self) -> dict[str, int | None]:
        """Returns the number of allowed values of each input array; `None` if it is unlimited."""
        return {text_input.name: text_input.count(self.config) for text_input in self.backbone.text_inputs}

    def predict(self, x: object, *args: object, **kwargs: object) -> np.ndarray | dict[str, np.ndarray]:
        """As in Keras; also accepts an `Encoding` of the tokenizer."""
        return super().predict(_as_dict(x), *args, **kwargs)

    def fit(self, x: object = None, *args: object, **kwargs: object) -> keras.callbacks.History:
        """As in Keras; also accepts an `Encoding` of the tokenizer."""
        return super().fit(_as_dict(x), *args, **kwargs)

    def evaluate(self, x: object = None, *args: object, **kwargs: object) -> float | list[float] | dict[str, float]:
        """As in Keras; also accepts an `Encoding` of the tokenizer."""
        return super().evaluate(_as_dict(x), *args, **kwargs)

    def named(self, output: Tensor) -> dict[str, Tensor]:
        """Returns the output of `call` by Hugging Face's names, as bundles return it to pipelines."""
        return {self.output_name: output}

    def named_outputs(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the outputs by Hugging Face's names, without dropout."""
        return self.named(self(inputs, training=False))

    def attention_specs(self) -> dict[str, AttentionSpec]:
        """Returns the description of each attention layer by its path."""
        parts = ((layer.path, getattr(layer, "spec", None)) for layer in self._flatten_layers())
        return {path: spec for path, spec in parts if isinstance(spec, AttentionSpec)}

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information about the model that pipelines and bundles need."""
        config = self.config
        settings = self.generation_config.to_dict()
        if self.is_encoder_decoder:
            settings.setdefault("decoder_start_token_id", config.generation_settings()["decoder_start_token_id"])
            if getattr(self.tokenizer, "tgt_lang", None) is not None:
                settings |= self.tokenizer.target_settings(settings)
        eos = settings.get("eos_token_id", config.eos_token_id)
        return ModelInfo(
            task=task or self.task,
            model_type=config.model_type,
            name=type(self).__name__,
            labels=config.labels if self.has_labels else (),
            problem_type=config.problem_type if self.has_labels else None,
            max_length=self.max_length,
            vocab_size=config.vocab_size,
            num_segments=getattr(config, "num_segments", None) or None,
            is_encoder_decoder=self.is_encoder_decoder,
            pad_token_id=settings.get("pad_token_id", config.pad_token_id),
            bos_token_id=settings.get("bos_token_id", config.bos_token_id),
            decoder_start_token_id=settings.get("decoder_start_token_id"),
            eos_token_id=() if eos is None else tuple(np.atleast_1d(eos).tolist()),
            task_prefixes=self.task_prefixes,
            task_settings=self.task_settings,
            input_names=self.input_names,
            generation=settings,
            score_activation=config.score_activation if self.has_labels else None,
            languages=self._languages(),
        )

    def _languages(self) -> LanguageInfo | None:
        if not isinstance(self.tokenizer, MultilingualTokenizer):
            return None
        return LanguageInfo(**self.tokenizer.language_info())

    has_labels: ClassVar[bool] = False

    @property
    def max_length(self) -> int | None:
        """Maximum length of a text in tokens; `None` if it is unlimited."""
        limit: int | None = self.config.longest_text
        return limit

    @property
    def max_answer_length(self) -> int | None:
        """Maximum length of the text that a decoder reads or generates, in tokens; `None` if it is unlimited."""
        limit: int | None = self.config.longest_answer
        return limit

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
        folder = local_path(folder, CheckpointError)
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(
                f"A folder was expected, in which to write the checkpoint. Received: the file {folder}"
            )
        self._check_folder(folder, check("overwrite", overwrite, BOOLEAN))
        with staging(folder, "checkpoint", CheckpointError) as aside, merged_lora(self):
            files: dict[str, dict[str, np.ndarray]] = {}
            for name, value in hf_tensors(self, self.rows(saved=True)):
                subfolder, _, tensor = name.rpartition("/")
                tensors = files.setdefault(subfolder, {})
                tensors[tensor] = np.ascontiguousarray(value if dtype is None else value.astype(dtype))
            for subfolder, tensors in files.items():
                (aside / subfolder).mkdir(exist_ok=True)
                save_tensors(tensors, aside / subfolder / "model.safetensors")
            content = {"architectures": [self.architecture], **self.config.to_hf()}
            content["dtype"] = dtype or next(iter(files[""].values())).dtype.name
            for name, entries in {"config.json": content, **self.extra_files()}.items():
                (aside / name).parent.mkdir(exist_ok=True)
                write_json(aside / name, entries)
            if self.generates:
                self.generation_config.save(aside)
            if self.tokenizer is not None:
                self.tokenizer.save(aside)
            if not (folder / README).exists():  # a card that somebody may have written
                Origin.of_model(self).write_checkpoint(aside, self)
            move_files(aside, folder)
        return folder

    def _check_folder(self, folder: Path, overwrite: bool) -> None:
        """Checks that the folder has no other model that would be lost.

        Raises:
            CheckpointError: it does, or it is a bundle.
        """
        if (folder / MANIFEST).exists():
            raise CheckpointError(f"A folder without a bundle was expected. Received: the bundle {folder}")
        if overwrite or not (folder / "config.json").exists():
            return
        expected, architecture = self.config.model_type, self.architecture
        try:
            content = read_json(folder / "config.json")
            if not content:
                return
            names = ", ".join(map(str, content.get("architectures") or ["no class"]))
            received = f"{content.get('model_type')!r}, {names}"
            if content.get("model_type") == expected and names == architecture:
                other = type(self.config).from_hf(content)
                different = [
                    field.name
                    for field in dataclasses.fields(other)
                    if getattr(other, field.name) != getattr(self.config, field.name)
                ]
                if not different:
                    return
                received += f", with other values of {', '.join(different)}"
        except KerasformerError as error:
            received = str(error)
        raise CheckpointError(
            f"The folder has another model, which would be replaced. Received: {folder}: {received}; model to save: "
            f"{expected!r}, {architecture}. Choose another folder, or pass overwrite=True to replace it"
        )

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
            format: `"litert"` (the default), `"onnx"`, or `"saved_model"` for TensorFlow.
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


def check_config(called_class: type, config: Config) -> None:
    """Checks the first argument of a model class, which others pass the name of a checkpoint.

    Raises:
        InputError: it is no configuration.
    """
    if not isinstance(config, Config):
        raise _not_loaded_here(called_class, f"{called_class.__name__}({shown(config)})")


def _not_loaded_here(called_class: type, received: str) -> InputError:
    task = getattr(called_class, "task", FEATURE_EXTRACTION)
    return InputError(
        f"A checkpoint, a preset or a hub id is loaded by kerasformer.zoo.load(source, {task!r}), and a model with "
        f"random weights is created by kerasformer.zoo.build. Received: {received}"
    )


def _as_dict(inputs: object) -> object:
    """Converts mappings to dictionaries, the only mappings that Keras does not treat as tensors."""
    return dict(inputs) if isinstance(inputs, Mapping) and not isinstance(inputs, dict) else inputs


def check_shapes(arrays: Mapping[str, Tensor], max_length: int | None) -> None:
    """Validates shapes, for which errors of the backends would be unclear; unknown dimensions are accepted."""
    shapes = {name: _known_shape(array) for name, array in arrays.items()}
    for name, shape in shapes.items():
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"{name} must be (batch, length) with at least one token. Received: shape {shape}")
        expected = shapes.get("decoder_input_ids" if name.startswith("decoder_") else "input_ids", shape)
        if any(a not in (None, 1, b) and b is not None for a, b in zip(shape, expected, strict=False)):
            raise InputError(f"{name} must have the shape of its ids, {expected}. Received: shape {shape}")
        if max_length is not None and (shape[1] or 0) > max_length:
            raise CapacityError(
                f"A text is longer than the model. Expected at most {max_length} tokens. Received: {shape[1]}. "
                "Truncate it, or read it in windows."
            )


def _known_shape(array: Tensor) -> tuple[int | None, ...]:
    """Returns the shape of an array; dimensions that are symbolic, as those of JAX, are `None`."""
    return tuple(size if isinstance(size, int) else None for size in array.shape)


def normal(deviation: float) -> LayerConfig:
    """Returns a normal initializer, serialized, so that each kernel draws different random numbers."""
    return keras.initializers.serialize(keras.initializers.RandomNormal(stddev=deviation))


def fan_in(variance: float) -> LayerConfig:
    """Returns a normal initializer whose variance is divided by the fan-in of a kernel, serialized as in `normal`."""
    return keras.initializers.serialize(keras.initializers.VarianceScaling(variance, "fan_in", "untruncated_normal"))


def create(
    model_class: type[_Model],
    config: Config,
    dtype: str | keras.DTypePolicy | None = None,
    build: bool = True,
    **kwargs: Any,
) -> _Model:
    """Creates a model with a dtype policy, and its variables if `build` is true."""
    with _policy(dtype):
        model = model_class(config, **kwargs)
    if build:
        model.build()
    return model


@contextmanager
def _policy(dtype: str | keras.DTypePolicy | None) -> Iterator[None]:
    """Context in which layers are created with a dtype policy; `None` for the current policy."""
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(previous if dtype is None else keras.dtype_policies.get(dtype))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)


class Backbone(Composite):
    """Base of Transformers without head.

    Attributes:
        config_type: Class of the configuration.
        names: Names of the tensors in checkpoints.
        architecture_prefix: Prefix of the model classes in `transformers`; the name of the backbone's class by default.
        input_arrays: Input arrays of the model, in the order in which bundles declare them.
        heads_differ: Whether a head computes something that follows from its index and the number of heads, as with
            ALiBi, so that none can be removed.
    """

    config_type: ClassVar[type[Config]]
    names: ClassVar[Names] = Names()
    architecture_prefix: ClassVar[str] = ""
    input_arrays: ClassVar[tuple[TextInput, ...]] = (INPUT_IDS, ATTENTION_MASK, POSITION_IDS)
    heads_differ: ClassVar[bool] = False

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
        with _policy(config.get("dtype")):
            return cls(**{**config, "config": cls.config_type.from_hf(config["config"])})
