"""Settings of models for embeddings of texts, in the files of sentence-transformers.

`modules.json` lists the modules, each with a `config.json` in its subfolder, and `config_sentence_transformers.json`
and `sentence_bert_config.json` contain the remaining settings. Every key is mapped, ignored because it does not affect
the embeddings, or refused.

Reference: `SentenceTransformer`, `Pooling`, `Dense`, `Dropout`, `LayerNorm` and `Normalize` of sentence-transformers.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

from kerasformer.basics.arguments import BOOLEAN, STRING, Kind, check, integer, mapping, number, optional
from kerasformer.bundle import SIMILARITIES
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject, parse_json, read_bytes, read_json
from kerasformer.files.sources import inside
from kerasformer.layers.sentence import LAYER_NORM, NORMALIZE, POOLINGS, Projection, Step, VectorDropout
from kerasformer.models.config import ConfigWarning
from kerasformer.models.weight_table import Row, dense, norm

logger = logging.getLogger("kerasformer")

MODULES = "modules.json"
SETTINGS = CROSS_ENCODER = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
_OLDER = tuple(f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta".split())
"""Older names of the file with the settings of the Transformer."""

_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""Keys of older files for each pooling, in the order in which the vectors of several are concatenated."""

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Tanh": "tanh",
}
_VECTOR = {"module_input_name": ("sentence_embedding",), "module_output_name": ("sentence_embedding", None)}
_TEXT_ONLY = {
    task: {"text": {"method": "forward", "method_output_name": output}}
    for task, output in (("feature-extraction", "last_hidden_state"), ("fill-mask", "logits"))
}

Files = JsonMapping
"""Contents of JSON files by their paths relative to the folder of the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How a model for vectors of texts reads them, whatever the kind of vectors.

    Attributes:
        prompts: Texts put before an input, by name, such as `{"query": "query: "}`.
        default_prompt: Name of the prompt that is used if none is requested; optional.
        max_length: Maximum length of a text in tokens; `None` for that of the tokenizer and of the model.
        lower_case: Whether texts are converted to lower case, regardless of the tokenizer.
    """

    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None
    lower_case: bool = False

    def texts(self) -> JsonObject:
        """Returns these attributes, with which settings of another kind can be created."""
        return {each.name: getattr(self, each.name) for each in fields(TextSettings)}

    def _check(self, kinds: Mapping[str, tuple[object, Kind]]) -> None:
        """Checks these attributes and others.

        Args:
            kinds: Values and what is valid, by names in the files.
        """
        of_texts = {
            f"{SETTINGS}: prompts": (self.prompts, mapping(STRING, STRING)),
            "max_seq_length": (self.max_length, optional(integer(1))),
            "do_lower_case": (self.lower_case, BOOLEAN),
        }
        for name, (value, kind) in {**of_texts, **kinds}.items():
            check(name, value, kind, error=UnsupportedConfigError)
        if self.default_prompt is not None:
            expect(SETTINGS, "default_prompt_name", self.default_prompt, tuple(self.prompts))

    def _text_files(self, **settings: object) -> JsonObject:
        """Returns the contents of the files with these attributes.

        Args:
            settings: Further entries of `config_sentence_transformers.json`.
        """
        prompts = {"prompts": dict(self.prompts), "default_prompt_name": self.default_prompt}
        text = {"max_seq_length": self.max_length, "do_lower_case": self.lower_case}
        return {SETTINGS: {**settings, **prompts}, TRANSFORMER: text}


@dataclass(frozen=True)
class SentenceSettings(TextSettings):
    """How a model computes the embedding of a text from its hidden states, and how to use it.

    Attributes:
        pooling: One or several of `layers.sentence.POOLINGS`; the results of several are concatenated.
        steps: What follows the pooling, in order: `Projection(…)`, `VectorDropout(…)`, `"layer_norm"` and
            `"normalize"`.
        similarity: Similarity of two embeddings: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`.
        truncate_dim: Number of first entries of an embedding to keep by default; `None` for all.
        include_prompt: Whether the tokens of a prompt are pooled like those of the text.

    Raises:
        UnsupportedConfigError: a value is unsupported.
    """

    pooling: tuple[str, ...] = ("mean",)
    steps: tuple[Step, ...] = ()
    similarity: str = "cosine"
    truncate_dim: int | None = None
    include_prompt: bool = True

    def __post_init__(self) -> None:
        """Checks the values."""
        object.__setattr__(self, "pooling", (self.pooling,) if isinstance(self.pooling, str) else tuple(self.pooling))
        object.__setattr__(self, "steps", tuple(self.steps))
        expect(SETTINGS, "similarity_fn_name", self.similarity, SIMILARITIES)
        for mode in self.pooling or ("none",):
            expect("Pooling", "pooling_mode", mode, POOLINGS)
        self._check(
            {
                "truncate_dim": (self.truncate_dim, optional(integer(1))),
                "include_prompt": (self.include_prompt, BOOLEAN),
            }
        )

    @classmethod
    def default(cls, folder: Path | None = None) -> Self:
        """Returns the settings of a model without any, as in sentence-transformers: pooling by the mean.

        Args:
            folder: Folder of the checkpoint. If it was saved as a language model of class `…ForCausalLM`, the pooling
                is the state of the last token.
        """
        if folder is None:
            return cls()
        saved = read_json(inside(folder, "config.json")).get("architectures")
        is_causal = isinstance(saved, list) and bool(saved) and str(saved[0]).endswith("ForCausalLM")
        settings = cls(("lasttoken",) if is_causal else ("mean",))
        logger.warning(
            "%s has no %s, so that its pooling is unknown. Using %r without normalization, as sentence-transformers "
            "does. Pass sentence=SentenceSettings(…) to set it",
            folder,
            MODULES,
            settings.pooling[0],
        )
        return settings

    @property
    def normalized(self) -> bool:
        """Whether all embeddings have length 1."""
        return [step for step in self.steps if not isinstance(step, VectorDropout)][-1:] == [NORMALIZE]

    def dimension(self, hidden_dim: int) -> int:
        """Returns the size of an embedding, from the size of the hidden states."""
        sizes = [step.dim for step in self.steps if isinstance(step, Projection)]
        return sizes[-1] if sizes else len(self.pooling) * hidden_dim

    def rows(self) -> list[Row]:
        """Returns the weight table of the projections and layer norms, whose tensors are in files of their own."""
        projections, norms, rows = count(), count(), list[Row]()
        for folder, step in self._located():
            if isinstance(step, Projection):
                rows += dense(f"projection_{next(projections)}", f"{folder}/linear", bias=step.use_bias)
            elif step == LAYER_NORM:
                rows += norm(f"norm_{next(norms)}", f"{folder}/norm")
        return rows

    def _located(self) -> list[tuple[str, Step]]:
        """Returns the steps with their subfolders."""
        return [(f"{index}_{_module(step)}", step) for index, step in enumerate(self.steps, 2)]

    @classmethod
    def read(cls, folder: Path, hidden_dim: int) -> Self | None:
        """Reads the settings of a checkpoint; `None` for a folder without `modules.json`.

        Raises:
            UnsupportedConfigError: a module or a setting is not implemented.
            SourceError: a file cannot be read, or is outside the folder.
        """
        content = partial(file_content, folder)
        return None if content(MODULES) is None else cls.from_files(content, hidden_dim)

    @classmethod
    def from_files(cls, content: Callable[[str], object], hidden_dim: int) -> Self:
        """Creates the settings from the contents of JSON files.

        Args:
            content: Returns the content of a file by its path; `None` for a missing one.
            hidden_dim: Size of the hidden states.

        Raises:
            UnsupportedConfigError: a module or a setting is not implemented.
        """
        names, paths = _modules(content(MODULES))
        configs = [json_object(path, content(f"{path}/config.json")) for path in paths]
        size, steps = 0, list[Step]()
        for name, path, config in zip(names, paths, configs, strict=True):
            if name == "Pooling":
                pooling, size = _pooling(path, config, hidden_dim)
                include_prompt = config.get("include_prompt", True)
            elif name == "Dense":
                step = projection(path, config, size, _VECTOR)
                steps, size = [*steps, step], step.dim
            elif name == "LayerNorm":
                check_keys(path, config, required={"dimension": (size,)})
                steps.append(LAYER_NORM)
            elif name == "Dropout":
                steps.append(_dropout(path, config))
            else:
                check_keys(path, config, required=_VECTOR)
                steps.append(NORMALIZE)
        use, text = use_settings(content, "SentenceTransformer", ("truncate_dim",)), text_settings(content)
        use["similarity"] = use.pop("similarity_fn_name", None) or "cosine"
        return cls(pooling=pooling, steps=tuple(steps), include_prompt=include_prompt, **use, **text)

    def to_files(self, hidden_dim: int) -> JsonObject:
        """Returns the contents of the JSON files, which sentence-transformers and `from_files` read."""
        located = self._located()
        modules = ["Transformer", "Pooling", *(path.split("_")[1] for path, _ in located)]
        paths = ["", "1_Pooling", *(path for path, _ in located)]
        pooling: JsonObject = {"word_embedding_dimension": hidden_dim}
        pooling |= {flag: mode in self.pooling for mode, flag in _FLAGS.items()}
        pooling["include_prompt"] = self.include_prompt
        if tuple(mode for mode in _FLAGS if mode in self.pooling) != self.pooling:
            pooling["pooling_mode"] = list(self.pooling)  # an order that only newer versions support
        files: JsonObject = {
            MODULES: [
                module_entry(index, path, f"models.{module}")
                for index, (path, module) in enumerate(zip(paths, modules, strict=True))
            ],
            "1_Pooling/config.json": pooling,
            **self._text_files(model_type="SentenceTransformer", similarity_fn_name=self.similarity),
        }
        if self.truncate_dim is not None:
            files[SETTINGS]["truncate_dim"] = self.truncate_dim
        activations = {activation: name for name, activation in ACTIVATIONS.items()}
        size = len(self.pooling) * hidden_dim
        for path, step in located:
            config: JsonObject = {name: values[0] for name, values in _VECTOR.items()}
            if isinstance(step, Projection):
                config = {"in_features": size, "out_features": step.dim, "bias": step.use_bias}
                config["activation_function"] = activations[step.activation]
                size = step.dim
            elif isinstance(step, VectorDropout):
                config = {"dropout": step.rate}
            elif step == LAYER_NORM:
                config = {"dimension": size}
            files[f"{path}/config.json"] = config
        return files


def file_content(folder: Path, name: str) -> object:
    """Returns the content of a JSON file of a folder; `None` if there is no such file."""
    path = inside(folder, name)
    return parse_json(read_bytes(path), str(path)) if path.is_file() else None


def module_entries(content: object) -> list[JsonObject]:
    """Returns the entries of `modules.json`.

    Raises:
        UnsupportedConfigError: they have no type or path.
    """
    if not isinstance(content, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("type"), str) and isinstance(entry.get("path"), str)
        for entry in content
    ):
        raise UnsupportedConfigError(f"{MODULES} must be a list of modules with type and path. Received: {content!r}")
    return content


def check_paths(names: Sequence[str], paths: Sequence[str]) -> None:
    """Refuses modules that are in other subfolders than those that sentence-transformers writes.

    Raises:
        UnsupportedConfigError: they are.
    """
    expected = ["", *(f"{index}_{name}" for index, name in enumerate(names) if index)]
    if list(paths) != expected:
        raise UnsupportedConfigError(
            f"{MODULES}: the Transformer must be in the folder itself, and each other module in the subfolder of its "
            f"index and class. Expected: {expected}. Received: {list(paths)}"
        )


def module_entry(index: int, path: str, module: str) -> JsonObject:
    """Returns an entry of `modules.json`."""
    return {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{module}"}


def module_names(content: object) -> list[str]:
    """Returns the names of the classes in `modules.json`; those of other packages with their modules."""
    entries = content if isinstance(content, list) else []
    types = [entry.get("type", "") if isinstance(entry, dict) else "" for entry in entries]
    return [name.split(".")[-1] if name.startswith("sentence_transformers.") else name for name in map(str, types)]


def is_sentence_model(folder: Path) -> bool:
    """Whether a folder contains a model of sentence-transformers for embeddings of texts, and not of another kind."""
    if not (folder / MODULES).is_file():
        return False
    settings = file_content(folder, SETTINGS) or {}
    return isinstance(settings, dict) and settings.get("model_type", "SentenceTransformer") == "SentenceTransformer"


def cross_encoder_entries(folder: Path) -> JsonObject:
    """Returns the entries of `config.json` that newer cross-encoders of sentence-transformers have in another file."""
    settings = file_content(folder, SETTINGS) or {}
    activation = settings.get("activation_fn") if isinstance(settings, dict) else None
    return {} if activation is None else {"sentence_transformers": {"activation_fn": activation}}


def _modules(content: object) -> tuple[list[str], list[str]]:
    """Returns the names of the classes of the modules after the Transformer, and their subfolders."""
    entries = module_entries(content)
    types, paths = [entry["type"] for entry in entries], [entry["path"] for entry in entries]
    names = module_names(content)
    known = names[:2] == ["Transformer", "Pooling"] and set(names[2:]) <= {"Dense", "Dropout", "LayerNorm", "Normalize"}
    if not known or any(entry.get("kwargs") for entry in entries):
        raise UnsupportedConfigError(
            f"{MODULES} has unsupported modules. Expected: Transformer and Pooling of sentence-transformers, then any "
            f"number of Dense, Dropout, LayerNorm and Normalize, without kwargs. Received: {', '.join(types) or 'none'}"
        )
    check_paths(names, paths)
    return names[1:], paths[1:]


def _pooling(path: str, config: JsonMapping, hidden_dim: int) -> tuple[tuple[str, ...], int]:
    """Returns the poolings, and the size of their concatenated results."""
    sizes, flags = ("word_embedding_dimension", "embedding_dimension"), tuple(_FLAGS.values())
    required = {name: (hidden_dim,) for name in sizes}
    for name in config:
        if name.startswith("pooling_mode_") and name not in flags and config[name]:
            raise UnsupportedConfigError(
                f"{path} has an unsupported pooling. Expected: {', '.join(flags)}. Received: {name}"
            )
    check_keys(path, config, required=required, known=("pooling_mode", "include_prompt", *flags))
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for mode, flag in _FLAGS.items() if config.get(flag)] or ["mean"]
    modes = (modes,) if isinstance(modes, str) else modes
    if not isinstance(modes, Sequence) or not modes:
        raise UnsupportedConfigError(f"{path}: pooling_mode must be a name or a list of names. Received: {modes!r}")
    for mode in modes:
        expect(path, "pooling_mode", mode, POOLINGS)
    return tuple(modes), len(modes) * hidden_dim


def projection(path: str, config: JsonMapping, size: int, names: Mapping[str, tuple[object, ...]]) -> Projection:
    """Returns a dense layer.

    Args:
        path: Subfolder of the module.
        config: Content of its `config.json`.
        size: Size of its input.
        names: Valid names of its input and output.
    """
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    expect(path, "activation_function", activation, tuple(ACTIVATIONS))
    required = {"in_features": (size,), "bias": (True, False), "use_residual": (False,), **names}
    check_keys(path, config, required=required, known=("out_features", "activation_function"))
    size = check(f"{path}: out_features", config.get("out_features"), integer(1), error=UnsupportedConfigError)
    return Projection(size, ACTIVATIONS[activation], config.get("bias", True))


def _dropout(path: str, config: JsonMapping) -> VectorDropout:
    """Returns a dropout, which has the rate 0.2 by default."""
    check_keys(path, config, required={}, known=("dropout",))
    rate = config.get("dropout", 0.2)
    return VectorDropout(check(f"{path}: dropout", rate, number(0, 1), error=UnsupportedConfigError))


def _module(step: Step) -> str:
    """Returns the class of the module of a step."""
    if isinstance(step, Projection):
        return "Dense"
    return "Dropout" if isinstance(step, VectorDropout) else "LayerNorm" if step == LAYER_NORM else "Normalize"


def use_settings(content: Callable[[str], object], model_type: str, known: Sequence[str] = ()) -> JsonObject:
    """Returns the prompts and other entries of `config_sentence_transformers.json`.

    Args:
        content: Returns the content of a file by its path; `None` for a missing one.
        model_type: Class of the model in sentence-transformers, which a file may lack.
        known: Names of further entries, which are returned if the file has them.
    """
    settings = json_object(SETTINGS, content(SETTINGS))
    known = ("similarity_fn_name", *known)
    check_keys(
        SETTINGS,
        settings,
        required={"model_type": (model_type,)},
        known=("prompts", "default_prompt_name", *known),
        ignored=("__version__", "requirements"),
    )
    prompts = json_object(f"prompts in {SETTINGS}", settings.get("prompts"))
    return {
        "prompts": {name: "" if text is None else text for name, text in prompts.items()},
        "default_prompt": settings.get("default_prompt_name"),
        **{name: settings[name] for name in known if name in settings},
    }


def text_settings(
    content: Callable[[str], object], task: str = "feature-extraction", known: Sequence[str] = ()
) -> JsonObject:
    """Returns maximum length, lower case and other entries of `sentence_bert_config.json`.

    Args:
        content: Returns the content of a file by its path; `None` for a missing one.
        task: Task of the Transformer.
        known: Names of further entries, which are returned if the file has them.
    """
    settings = json_object(TRANSFORMER, next(filter(None, map(content, (TRANSFORMER, *_OLDER))), None))
    lengths = {"query_length", "document_length", "query_expansion"}.difference(known)
    required = {
        "transformer_task": (task,),
        "module_output_name": ("token_embeddings",),
        "modality_config": (_TEXT_ONLY[task],),
        **dict.fromkeys(sorted(lengths), (None,)),
        **dict.fromkeys(("processing_kwargs", "model_args", "tokenizer_args", "config_args"), ({}, None)),
    }
    check_keys(
        TRANSFORMER,
        settings,
        required=required,
        known=("max_seq_length", "do_lower_case", *known),
        ignored=("unpad_inputs",),
    )
    return {
        "max_length": settings.get("max_seq_length"),
        "lower_case": settings.get("do_lower_case") or False,
        **{name: settings[name] for name in known if name in settings},
    }


def json_object(name: str, content: object) -> JsonObject:
    """Returns a JSON object; a missing one is empty."""
    if content is not None and not isinstance(content, dict):
        raise UnsupportedConfigError(f"{name} must be a JSON object. Received: {content!r:.200}")
    return content or {}


def check_keys(
    name: str,
    content: JsonMapping,
    required: Mapping[str, tuple[object, ...]],
    known: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> None:
    """Refuses unsupported values, and warns of unknown keys."""
    for key, values in required.items():
        if key in content:
            expect(name, key, content[key], values)
    if unknown := sorted(set(content) - {*required, *known, *ignored}):
        warnings.warn(
            f"{name} has unsupported keys, which are ignored: {', '.join(unknown)}. If one of them affects the "
            "embeddings, they will be wrong.",
            ConfigWarning,
            stacklevel=2,
        )


def expect(name: str, key: str, value: object, values: Sequence[object]) -> None:
    """Raises `UnsupportedConfigError` for a value of a file that is not implemented."""
    if value not in values:
        expected = " or ".join(map(repr, values)) or "none"
        raise UnsupportedConfigError(f"{name} supports only {key}={expected}. Received: {key}={value!r:.200}")
