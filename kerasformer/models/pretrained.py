"""What all models share: a backbone and a head, a weight table, files in Hugging Face's format, a `.keras` file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

import kerasformer
from kerasformer.bundle import Bundle, ModelInfo
from kerasformer.decoding import GenerationConfig
from kerasformer.decoding.arrays import array_of, token_array
from kerasformer.decoding.generation_config import FILE_NAME
from kerasformer.errors import CapacityError, CheckpointError, InputError
from kerasformer.files import local_path
from kerasformer.layers.attention_spec import AttentionSpec
from kerasformer.layers.core import PACKAGE, Composite, merged_lora
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config
from kerasformer.models.tensor_files import TensorFile, save_tensors
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, POSITION_IDS, TextInput
from kerasformer.models.weight_table import HEAD, Names, Row, hf_tensors, nested
from kerasformer.publishing import staging
from kerasformer.tokenization import has_tokenizer, load_tokenizer

Inputs = Mapping[str, Any]


class PretrainedModel(keras.Model):
    """A Transformer for one task.

    A subclass names its parts; `build()` creates every variable at once.

    Attributes:
        task: Hugging Face's task name.
        architecture: Class name in `transformers`, for `config.json`.
        backbone_type: The layer without head.
        bare: Saved without the prefix of the backbone's tensors, as models without head are.
        head_table: Weight table of the head, Keras paths below `head/`.
        optional_head: A checkpoint may lack the tensors of the head: they are copies of the backbone's.
        generates: Writes token after token, with a cache, rather than answering at once.
        output_name: Hugging Face's name of what `call` gives.
        tokenizer: Set by `zoo.load`.
        generation_config: Set by `zoo.load`.
        source: Folder that the weights were loaded from; set by `zoo.load`.
    """

    task: ClassVar[str]
    architecture: ClassVar[str]
    backbone_type: ClassVar[Any]
    bare: ClassVar[bool] = False
    head_table: ClassVar[Sequence[Row]] = ()
    optional_head: ClassVar[bool] = False
    is_encoder_decoder: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    output_name: ClassVar[str] = "logits"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets Keras find every model by name when it opens a `.keras` file."""
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable(PACKAGE)(cls)

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.head: Any = None
        self.tokenizer: Any = None
        self.generation_config = GenerationConfig()
        self.new_variables: tuple[str, ...] = ()
        self.source: Path | None = None
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
            self.head.build(self.head_shape())

    def head_shape(self) -> tuple[int | None, ...]:
        """Shape of what the head reads."""
        return None, None, self.config.hidden_dim

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
        """Names of the arrays that `call` takes and bundles have."""
        return tuple(each.name for each in self.backbone.text_inputs if each.in_bundles(self.config))

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Names of the arrays that `call` takes too, and bundles do not have."""
        return tuple(each.name for each in self.backbone.text_inputs if not each.in_bundles(self.config))

    def checked(self, inputs: Inputs) -> dict[str, Tensor]:
        """The inputs as int32 tensors.

        Raises:
            InputError: no dictionary, an unknown name, no `input_ids`, or shapes that do not fit each other.
            CapacityError: a text that is longer than the model.
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
        arrays = {name: ops.cast(value, "int32") for name, value in inputs.items() if value is not None}
        _check_shapes(arrays, self.max_length)
        return arrays

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; an `Encoding` of the tokenizer counts as the dictionary that it is.

        Raises:
            InputError: arrays with ids that the model does not have; tensors of a graph are not looked into.
        """
        given = _as_dict(inputs)
        if isinstance(given, dict):
            given = {name: self.ids(name, value) if is_concrete(value) else value for name, value in given.items()}
        return super().__call__(given, *args, **kwargs)

    def ids(self, name: str, value: Any) -> np.ndarray:
        """One of the arrays that `call` takes, as int32, once its values are among those that the model has.

        Raises:
            InputError: they are not.
        """
        array = array_of(ops.convert_to_numpy(value) if ops.is_tensor(value) else value)
        if array.ndim != 2 or not array.size:
            return array  # for `checked` to name
        counts = {each.name: each.count(self.config) for each in self.backbone.text_inputs}
        return token_array(name, array, counts.get(name.removeprefix("decoder_")), floats=True)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; `x` may be an `Encoding`."""
        return super().predict(_as_dict(x), *args, **kwargs)

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; `x` may be an `Encoding`."""
        return super().fit(_as_dict(x), *args, **kwargs)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; `x` may be an `Encoding`."""
        return super().evaluate(_as_dict(x), *args, **kwargs)

    def named(self, output: Any) -> dict[str, Tensor]:
        """What `call` gave, under Hugging Face's names: what bundles give, and so what pipelines read."""
        return {self.output_name: output}

    def attention_specs(self) -> dict[str, AttentionSpec]:
        """What each attention computes, by the path of its layer."""
        parts = ((layer.path, getattr(layer, "spec", None)) for layer in self._flatten_layers())
        return {path: spec for path, spec in parts if isinstance(spec, AttentionSpec)}

    def info(self, task: str | None = None) -> ModelInfo:
        """All that a pipeline or a bundle needs to know of this model."""
        config = self.config
        settings = self.generation_config.to_dict()
        if self.is_encoder_decoder:
            settings.setdefault("decoder_start_token_id", config.generation_settings()["decoder_start_token_id"])
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
            input_names=self.input_names,
            generation=settings,
        )

    has_labels: ClassVar[bool] = False

    @property
    def max_length(self) -> int | None:
        """Longest text in tokens, or `None` if positions have no end."""
        limit: int | None = self.config.longest_text
        return limit

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
        Raises:
            CheckpointError: a full disk, or a place that cannot be written to; what was there before is untouched.
        """
        folder = local_path(folder, CheckpointError)
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(f"A folder was expected, to write the checkpoint into. Received: the file {folder}")
        with staging(folder, "checkpoint", CheckpointError) as aside, merged_lora(self):
            tensors = {
                name: np.ascontiguousarray(value if dtype is None else value.astype(dtype))
                for name, value in hf_tensors(self, self.rows(self.bare))
            }
            save_tensors(tensors, aside / "model.safetensors")
            content = {"architectures": [self.architecture], **self.config.to_hf()}
            content["dtype"] = dtype or next(iter(tensors.values())).dtype.name
            _write_json(aside / "config.json", content)
            if self.generates:
                self.generation_config.save(aside)
            if self.tokenizer is not None:
                self.tokenizer.save(aside)
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(aside.iterdir()):
                path.replace(folder / path.name)
        return folder

    def save_assets(self, folder: str) -> None:
        """Puts tokenizer and generation settings into a `.keras` file, as in `save_pretrained`."""
        self.generation_config.save(folder)
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    def load_assets(self, folder: str) -> None:
        """Reads what `save_assets` wrote; an older file has no such folder."""
        if Path(folder, FILE_NAME).exists():
            self.generation_config = GenerationConfig.load(folder)
        if has_tokenizer(Path(folder)):
            self.tokenizer = load_tokenizer(folder)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Refused by models that answer at once."""
        raise InputError(
            f"A model that generates was expected: kerasformer.zoo.load(source, task='text-generation'), or "
            f"'text2text-generation'. Received: {type(self).__name__}, a model for {self.task}"
        )

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        """Refused by models that answer at once."""
        return self.generate()

    def export(  # type: ignore[override]  # Keras' own export writes files without caches and without verification
        self, destination: str | Path, format: Any = None, quantize: Any = "none", **options: Any
    ) -> Bundle:
        """Writes a verified bundle; the same as `kerasformer.export.export(model, destination, …)`.

        Args:
            destination: The folder.
            format: `"tflite"`, the default, `"onnx"` or `"saved-model"`, or a value such as `kf.export.Onnx(…)`.
            quantize: Name of a recipe, or a value such as `kf.export.Auto(…)`.
            options: Further arguments of `kerasformer.export.export`. Those of Keras' own `Model.export`, such as
                `input_signature`, are refused.
        """
        return kerasformer.export.export(self, destination, format, quantize, **options)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_hf()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> PretrainedModel:
        """A model from `get_config`, with every variable created."""
        rest = {name: value for name, value in config.items() if name not in ("config", "dtype")}
        return create(cls, cls.backbone_type.config_type.from_hf(config["config"]), config["dtype"], **rest)


def _as_dict(inputs: Any) -> Any:
    """Keras looks into dictionaries, and takes any other mapping for a tensor."""
    return dict(inputs) if isinstance(inputs, Mapping) and not isinstance(inputs, dict) else inputs


def is_concrete(value: Any) -> bool:
    """Whether these are numbers, rather than a tensor of a graph that is being traced."""
    if not ops.is_tensor(value):
        return isinstance(value, np.ndarray | list | tuple)
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(value, jax.core.Tracer)
    return hasattr(value, "numpy") and not isinstance(value, keras.KerasTensor)


def _check_shapes(arrays: Mapping[str, Tensor], max_length: int | None) -> None:
    """Refuses what TensorFlow would name by an operation, and JAX not at all; lengths that are not known yet pass."""
    for name, array in arrays.items():
        shape = tuple(array.shape)
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"{name} must be (batch, length) with at least one token. Received: shape {shape}")
        ids = arrays.get("decoder_input_ids" if name.startswith("decoder_") else "input_ids")
        wanted = shape if ids is None else tuple(ids.shape)
        if any(a not in (None, 1, b) and b is not None for a, b in zip(shape, wanted, strict=False)):
            raise InputError(f"{name} must have the shape of its ids, {wanted}. Received: shape {shape}")
        if max_length is not None and (shape[1] or 0) > max_length:
            raise CapacityError(
                f"A text is longer than the model. Expected at most {max_length} tokens. Received: {shape[1]}. "
                "Truncate it, or read it in windows."
            )


def normal(deviation: float) -> dict[str, Any]:
    """A normal distribution, serialized: each kernel that is made with it gets random numbers of its own."""
    return keras.initializers.serialize(keras.initializers.RandomNormal(stddev=deviation))


def fan_in(variance: float) -> dict[str, Any]:
    """A normal distribution whose variance is divided by the inputs of a kernel; serialized as in `normal`."""
    return keras.initializers.serialize(keras.initializers.VarianceScaling(variance, "fan_in", "untruncated_normal"))


def by_task(*kinds: type[PretrainedModel]) -> dict[str, type[PretrainedModel]]:
    """The models of an architecture, each under its task."""
    return {kind.task: kind for kind in kinds}


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
    keras.config.set_dtype_policy(before if dtype is None else keras.dtype_policies.get(dtype))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class Backbone(Composite):
    """A Transformer without head.

    Attributes:
        config_type: Its configuration.
        names: How checkpoints spell its tensors.
        inputs: Arrays that describe a text, in the order in which bundles declare them.
    """

    config_type: ClassVar[type[Config]]
    names: ClassVar[Names] = Names()
    inputs: ClassVar[tuple[TextInput, ...]] = (INPUT_IDS, ATTENTION_MASK, POSITION_IDS)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets Keras find every backbone by name when it opens a `.keras` file."""
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable(PACKAGE)(cls)

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.autocast = False  # ids that come as floats would be rounded to half precision

    @property
    def text_inputs(self) -> tuple[TextInput, ...]:
        """Those of `inputs` that a model of this configuration takes."""
        return tuple(each for each in self.inputs if each.count(self.config) != 0)

    def checkpoint_names(self) -> Names:
        """How checkpoints name the tensors of this backbone."""
        return self.names

    def rows(self) -> list[Row]:
        """The weight table, Keras paths below the backbone."""
        raise InputError(f"{type(self).__name__} has no weight table")

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """`(B, T)` to `(B, T, E)`."""
        return (*(input_shape or (None, None)), self.config.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "config": self.config.to_hf()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Backbone:
        """A backbone from `get_config`, not built yet."""
        with _policy(config.get("dtype")):
            return cls(**{**config, "config": cls.config_type.from_hf(config["config"])})
