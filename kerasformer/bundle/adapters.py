"""Low-rank adapters in the format of PEFT: `adapter_config.json`, and pairs of matrices by the module they adapt.

An adapter adds `scale * B @ A` to the weights of some modules of a model; DoRA scales the sum to magnitudes. It may
also replace biases, rows of token embeddings, and whole modules. Modules have their names in `transformers`, and
matrices the layout of PyTorch. This file needs neither Keras nor PyTorch, since bundles read adapters, too.

References: Hu et al. 2021, arXiv:2106.09685; Liu et al. 2024, arXiv:2402.09353 (DoRA).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np

from kerasformer.basics.arguments import (
    STRING,
    Kind,
    any_of,
    check,
    integer,
    kind_of,
    mapping,
    number,
    one_of,
    sequence,
)
from kerasformer.errors import CheckpointError, InputError, SourceError, UnsupportedConfigError
from kerasformer.files.base_models import ADAPTER_CONFIG
from kerasformer.files.publishing import write_json
from kerasformer.files.reading import read_json
from kerasformer.files.sources import inside
from kerasformer.files.tensors import Safetensors, TensorFile, TorchFile, save_tensors

WEIGHTS, TORCH_WEIGHTS = "adapter_model.safetensors", "adapter_model.bin"
ALL_LINEAR = "all-linear"
_ROOT = "base_model.model."
"""Prefix of the names of tensors in adapters: PEFT's own modules around the model."""
_LONGEST_PATTERN = 2000  # characters of a regular expression in an adapter, which may be anyone's
_LAYER, _END = r"(?:^|.*?\.){}\.(?P<index>\d+)\.", r"(.*\.)?({})$"
"""Regular expressions of PEFT around those in a configuration: of a list of layers, and of the end of a path."""
_HALF = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<half>[AB])(?:\.default)?(?:\.weight)?")
_OF_BASE = re.compile(r"(?P<module>(?!.*\.lora_).+?)(?:\.token_adapter)?(?:\.base_layer)?\.weight")
"""Names of tensors of the base model, which PEFT saves with adapters for token embeddings."""
_BIAS = re.compile(r"(?P<module>(?!.*\.lora_).+?)(?:\.token_adapter)?(?:\.base_layer)?\.bias")
"""Names of trained biases, which are those of the adapted modules within PEFT's own."""
_UNUSED = re.compile(r".+\.(original_module\.\w+|token_adapter\.trainable_tokens_original(\.default)?)")
"""Names of tensors of the base model that others of the adapter replace."""
_MAGNITUDE = re.compile(r"(?P<module>.+)\.lora_magnitude_vector(?:\.default)?(?:\.weight)?")
_ROWS = re.compile(r"(?P<module>.+)\.token_adapter\.trainable_tokens_delta(?:\.default)?")

_NAMES = {
    "rank": "r",
    "alpha": "lora_alpha",
    "targets": "target_modules",
    "excluded": "exclude_modules",
    "layers": "layers_to_transform",
    "layers_pattern": "layers_pattern",
    "rank_pattern": "rank_pattern",
    "alpha_pattern": "alpha_pattern",
    "rslora": "use_rslora",
    "dora": "use_dora",
    "bias": "bias",
    "tokens": "trainable_token_indices",
    "saved": "modules_to_save",
    "dropout": "lora_dropout",
    "task_type": "task_type",
    "base_model": "base_model_name_or_path",
}
"""Keys in `adapter_config.json` by attribute of `AdapterConfig`."""
_IGNORED = frozenset(
    {
        "peft_type", "auto_mapping", "peft_version", "revision", "inference_mode", "fan_in_fan_out",
        "init_lora_weights", "megatron_config", "megatron_core", "loftq_config", "eva_config", "lora_ga_config",
        "corda_config", "qalora_group_size", "runtime_config", "ensure_weight_tying",
    }
)  # fmt: skip
"""Keys without effect on what a trained adapter computes; some are checked by `_unsupported`."""
_CHANGED_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Values of `init_lora_weights` with which PEFT changes the weights of the base model, too."""


def _pattern(within: str = "{}") -> Kind:
    """A regular expression that is valid where it is used, in the place of the braces."""

    def convert(value: object) -> str:
        text: str = STRING.convert(value)
        try:
            re.compile(text[:_LONGEST_PATTERN])
            re.compile(within.format(text[:_LONGEST_PATTERN]))
        except (RecursionError, re.error) as error:
            raise ValueError from error
        return text

    expected = f"a valid regular expression of at most {_LONGEST_PATTERN} characters"
    return Kind(expected, convert).where(lambda text: len(text) <= _LONGEST_PATTERN, expected)


def _several(kind: Kind) -> Kind:
    """One value of a kind, or a list of them; a tuple."""
    return any_of(Kind(kind.expected, lambda value: (kind.convert(value),)), sequence(kind))


_COUNT, _NUMBER = integer(1, 2**31 - 1), number(-(2**31), 2**31)
_ROWS_OF_ONE = _several(integer(0)).where(lambda rows: len(set(rows)) == len(rows), "different ids of tokens")
_ALL = Kind(repr(ALL_LINEAR), lambda value: one_of(ALL_LINEAR).convert(STRING.convert(value).lower()))
_Names = Annotated[str | tuple[str, ...], any_of(_ALL, _pattern(), sequence(STRING))]
_Rows = Annotated[tuple[int, ...] | Mapping[str, tuple[int, ...]], any_of(_ROWS_OF_ONE, mapping(STRING, _ROWS_OF_ONE))]


@dataclass(frozen=True)
class AdapterConfig:
    """Content of `adapter_config.json`.

    Attributes:
        rank: Rank of the products.
        alpha: Numerator of their scale, `alpha / rank`.
        targets: Names of the adapted modules, each the last part of a path or several (`"c_attn"`); a regular
            expression that matches whole paths; or `"all-linear"`.
        excluded: Modules that are not adapted, likewise.
        layers: Indices of the adapted layers; all by default.
        layers_pattern: Names of the lists that these indices refer to.
        rank_pattern: Other ranks, by regular expressions for the ends of paths.
        alpha_pattern: Other numerators, likewise.
        rslora: Whether the scale is `alpha / sqrt(rank)` (Kalajdzievski 2023, arXiv:2312.03732).
        dora: Whether the products have magnitudes (DoRA).
        bias: Which biases the adapter replaces: `"none"`, `"all"`, or `"lora_only"`, those of the adapted modules.
        tokens: Rows of token embeddings that the adapter replaces, or these by the end of the module's path.
        saved: Modules that the adapter replaces as a whole, such as a new classification head.
        dropout: Dropout rate of the inputs of the products in training with PEFT; without effect in Keras.
        task_type: PEFT's name of the task, such as `"CAUSAL_LM"`; optional.
        base_model: Name of the base model; optional.
    """

    rank: Annotated[int, _COUNT] = 8
    alpha: Annotated[float, _NUMBER] = 8
    targets: _Names = ALL_LINEAR
    excluded: _Names = ()
    layers: Annotated[tuple[int, ...], _several(integer())] = ()
    layers_pattern: Annotated[tuple[str, ...], _several(_pattern(_LAYER))] = ()
    rank_pattern: Annotated[Mapping[str, int], mapping(_pattern(_END), _COUNT)] = field(default_factory=dict)
    alpha_pattern: Annotated[Mapping[str, float], mapping(_pattern(_END), _NUMBER)] = field(default_factory=dict)
    rslora: bool = False
    dora: bool = False
    bias: Literal["none", "all", "lora_only"] = "none"
    tokens: _Rows = ()
    saved: Annotated[tuple[str, ...], _several(STRING)] = ()
    dropout: Annotated[float, _NUMBER] = 0.0
    task_type: str | None = None
    base_model: str | None = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: str = ADAPTER_CONFIG) -> AdapterConfig:
        """Creates a configuration from the content of `adapter_config.json`.

        Args:
            content: The content.
            source: Name of the file for error messages.

        Raises:
            UnsupportedConfigError: another kind of adapter, options that are unsupported or unknown, or values of a
                wrong type; one error lists all of them.
        """
        problems = list(_unsupported(content))
        values, hints = dict[str, Any](), get_type_hints(cls, include_extras=True)
        for attribute, key in _NAMES.items():
            if content.get(key) is None:
                continue
            try:
                values[attribute] = check(key, content[key], kind_of(hints[attribute]))
            except InputError as error:
                problems.append(str(error))
        if problems:
            raise UnsupportedConfigError(
                f"{source} describes an adapter that is unsupported ({len(problems)} problems):\n  "
                + "\n  ".join(problems)
            )
        return cls(**values)

    def to_json(self, transposed: bool = False) -> dict[str, Any]:
        """Returns the content of `adapter_config.json`.

        Args:
            transposed: Whether the adapted weights are `(in, out)`, as those of `Conv1D` in GPT-2.
        """
        plain = {key: _plain(getattr(self, attribute)) for attribute, key in _NAMES.items()}
        optional = (
            "exclude_modules",
            "layers_to_transform",
            "layers_pattern",
            "modules_to_save",
            "trainable_token_indices",
        )
        return {
            "peft_type": "LORA",
            **plain,
            **{key: plain[key] or None for key in optional},
            "fan_in_fan_out": transposed,
            "inference_mode": True,
            "init_lora_weights": True,
        }

    def adapts(self, module: str) -> bool:
        """Whether a module is adapted, by the rules of PEFT; `"all-linear"` must be replaced by names before."""
        if _named(self.excluded, module) or self.saves(module):
            return False
        if not _named(self.targets, module):
            return False
        if isinstance(self.targets, str) or module in self.targets or not self.layers:
            return True
        lists = self.layers_pattern or (r"[^.]*",)
        found = (re.match(_LAYER.format(name), module) for name in lists)
        return next((int(match["index"]) in self.layers for match in found if match), False)

    def saves(self, module: str) -> bool:
        """Whether the adapter replaces a module, or one that contains it: its path ends with one of the names."""
        return any(re.search(rf"{re.escape(name)}($|\.)", module) for name in self.saved)

    def rows_of(self, module: str) -> tuple[int, ...]:
        """Returns the rows of a module that the adapter replaces."""
        if not isinstance(self.tokens, Mapping):
            return self.tokens
        return next((rows for name, rows in self.tokens.items() if _named((name,), module)), ())

    def rank_of(self, module: str) -> int:
        """Returns the rank of the product of a module."""
        return int(_by_pattern(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str) -> float:
        """Returns the factor of the product of a module."""
        alpha, rank = float(_by_pattern(self.alpha_pattern, module, self.alpha)), self.rank_of(module)
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank


def _named(names: str | Collection[str], module: str) -> bool:
    if isinstance(names, str):
        return re.fullmatch(names, module) is not None
    return module in names or any(module.endswith(f".{name}") for name in names)


def _by_pattern(patterns: Mapping[str, Any], module: str, default: Any) -> Any:
    return next((value for key, value in patterns.items() if re.match(_END.format(key), module)), default)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _unsupported(content: Mapping[str, Any]) -> Iterable[str]:
    """Yields a line for each option that changes what the adapter computes and is not implemented."""
    kind = content.get("peft_type")
    if kind != "LORA":
        yield f"peft_type: only low-rank adapters are supported, 'LORA'. Received: {kind!r}"
        return
    start = content.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASES):
        yield (
            f"init_lora_weights: {start!r} changes the base model. Convert the adapter with PEFT, "
            "save_pretrained(…, path_initial_model_for_weight_conversion=…)"
        )
    for key, value in content.items():
        if key not in _IGNORED and key not in _NAMES.values() and value not in (None, False, [], {}, "", 0):
            yield f"{key}: unsupported. Received: {value!r:.200}. Merge the adapter in PEFT: merge_and_unload()"


@dataclass(frozen=True)
class Pair:
    """Low-rank product `scale * B @ A` of a module, in float32.

    Attributes:
        a: `(r, in)`; `(r, in, size)` for a convolution.
        b: `(out, r)`; `(out, r, 1)` for a convolution. For an embedding table `(V, E)` they are `(r, V)` and `(E, r)`,
            and the product is transposed.
        scale: Factor of the product.
        embedding: Whether the module is an embedding table.
        magnitude: Lengths of the rows of the sum of weight and product, `(out,)`; for an embedding table, of its
            columns `(E,)`. `None` without DoRA.
    """

    a: np.ndarray
    b: np.ndarray
    scale: float
    embedding: bool = False
    magnitude: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """Rank of the product."""
        return int(self.a.shape[0])


@dataclass(frozen=True)
class Adapter:
    """An adapter: its configuration, and its matrices.

    Attributes:
        config: Configuration.
        pairs: Products by the path of the module in the adapted model of `transformers`, as `transformer.h.0.mlp.c_fc`.
        saved: Tensors that the adapter replaces, by name.
        biases: Biases that the adapter replaces, by name.
        rows: Rows `(n, E)` that the adapter replaces, by the path of a module of token embeddings, or of scores.
        base: Tensors of the base model that are saved with the adapter, such as resized token embeddings, by name.
        follows: Whether an output that is tied to token embeddings stays so if the adapter replaces them.
        source: Name of the folder for error messages.
    """

    config: AdapterConfig
    pairs: Mapping[str, Pair]
    saved: Mapping[str, np.ndarray] = field(default_factory=dict)
    biases: Mapping[str, np.ndarray] = field(default_factory=dict)
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    base: Mapping[str, np.ndarray] = field(default_factory=dict)
    follows: bool = False
    source: str = "the adapter"

    def products(self) -> Adapter:
        """Returns the adapter without the modules that it replaces as a whole."""
        return replace(self, config=replace(self.config, saved=()), saved={}, base={})

    def mismatch(self, model: str, problems: Sequence[str], available: Iterable[str] = ()) -> CheckpointError:
        """Returns the error for an adapter that does not fit a model.

        Args:
            model: Name of the model.
            problems: One line for each problem.
            available: Modules that an adapter could have; their last parts are listed.
        """
        lines = "\n  ".join(problems)
        kinds = sorted({name.rsplit(".", 1)[-1] for name in available})
        known = f"\nModules that can be adapted: {', '.join(kinds)}" if kinds else ""
        return CheckpointError(f"{self.source} does not match {model} ({len(problems)} problems):\n  {lines}{known}")


def read_adapter(folder: Path) -> Adapter:
    """Reads an adapter from a folder; no code in it is executed.

    Args:
        folder: Folder with `adapter_config.json` and `adapter_model.safetensors` (or `.bin`, if PyTorch is installed).

    Raises:
        SourceError: a file is missing or damaged.
        UnsupportedConfigError: the adapter has options that are not implemented.
        CheckpointError: tensors are damaged, not finite, unknown, or not in pairs of the rank in the configuration; one
            error lists all problems.
    """
    if not (folder / ADAPTER_CONFIG).is_file():
        raise SourceError(
            f"The folder of an adapter was expected, with {ADAPTER_CONFIG} and {WEIGHTS}. Received: {folder}"
        )
    content = read_json(inside(folder, ADAPTER_CONFIG))
    config = AdapterConfig.from_json(content, str(folder / ADAPTER_CONFIG))
    problems: list[str] = []
    halves: dict[str, dict[str, np.ndarray]] = {}
    embeddings: set[str] = set()
    magnitudes: dict[str, np.ndarray] = {}
    saved: dict[str, np.ndarray] = {}
    biases: dict[str, np.ndarray] = {}
    rows: dict[str, np.ndarray] = {}
    base: dict[str, np.ndarray] = {}
    file = _weights(folder)
    for name in file.names():
        path = name.removeprefix(_ROOT)
        if _UNUSED.fullmatch(path):
            continue
        if problem := file.problem(name):
            problems.append(f"{name} is a tensor {problem}")
            continue
        tensor = file.read(name).astype("float32", copy=False)
        if not np.isfinite(tensor).all():
            problems.append(f"{name} contains NaN or infinity")
        if match := _HALF.fullmatch(path):
            found = halves.setdefault(match["module"], {})
            if match["half"] in found:
                problems.append(f"{name} is a second lora_{match['half']} of {match['module']}")
            found[match["half"]] = tensor
            if match["embedding"]:
                embeddings.add(match["module"])
        elif config.dora and (match := _MAGNITUDE.fullmatch(path)):
            magnitudes[match["module"]] = tensor.reshape(-1)  # (1, out, 1) of a convolution
        elif match := _ROWS.fullmatch(path):
            rows[match["module"]] = tensor
        elif config.saves(path):
            saved[re.sub(r"\.modules_to_save(\.default)?\.", ".", path)] = tensor
        elif config.bias != "none" and (match := _BIAS.fullmatch(path)):
            biases[f"{match['module']}.bias"] = tensor
        elif match := _OF_BASE.fullmatch(path):
            base[f"{match['module']}.weight"] = tensor
        else:
            problems.append(f"unknown tensor: {name}")
    pairs = {}
    for module, found in halves.items():
        problem = _pair_problem(module, found, config.rank_of(module))
        if problem is None:
            pairs[module] = Pair(
                found["A"], found["B"], config.scale_of(module), module in embeddings, magnitudes.pop(module, None)
            )
        else:
            problems.append(problem)
    if config.dora:
        problems += [f"{module} has no lora_magnitude_vector" for module, p in pairs.items() if p.magnitude is None]
    problems += [f"{module} has a lora_magnitude_vector without lora_A and lora_B" for module in magnitudes]
    problems += _row_problems(config, rows)
    if not halves:
        problems.append("no low-rank matrices, lora_A and lora_B")
    if problems:
        raise CheckpointError(f"{file} cannot be used ({len(problems)} problems):\n  " + "\n  ".join(problems))
    return Adapter(config, pairs, saved, biases, rows, base, content.get("ensure_weight_tying") is True, str(folder))


def _weights(folder: Path) -> TensorFile:
    if (folder / WEIGHTS).is_file():
        return Safetensors(folder, [WEIGHTS])
    if (folder / TORCH_WEIGHTS).is_file():
        return TorchFile(folder, [TORCH_WEIGHTS])
    raise SourceError(f"The weights of an adapter are missing. Expected: {folder / WEIGHTS}")


def _pair_problem(module: str, found: Mapping[str, np.ndarray], rank: int) -> str | None:
    if missing := {"A", "B"} - set(found):
        return f"{module} has no lora_{missing.pop()}"
    a, b = found["A"], found["B"]
    if min(a.ndim, b.ndim) < 2 or a.shape[0] != rank or b.shape[1] != rank:
        return f"{module}: expected lora_A ({rank}, …) and lora_B (…, {rank}). Received: {a.shape} and {b.shape}"
    return None


def _row_problems(config: AdapterConfig, rows: Mapping[str, np.ndarray]) -> Iterable[str]:
    """Yields a line for each module whose rows are not those of the configuration."""
    for module, values in rows.items():
        expected = len(config.rows_of(module))
        if values.ndim != 2 or len(values) != expected:
            yield f"{module}: expected {expected} trained rows, (tokens, E). Received: {values.shape}"
    if config.tokens and not rows:
        yield "no trained rows, the tensor trainable_tokens_delta"


def write_adapter(folder: Path, adapter: Adapter, transposed: bool = False, dtype: str | None = None) -> None:
    """Writes an adapter; PEFT reads it.

    Args:
        folder: Existing folder.
        adapter: The adapter.
        transposed: See `AdapterConfig.to_json`.
        dtype: Data type of the tensors; by default that of the arrays.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    tensors = {_ROOT + name: value for name, value in adapter.saved.items()}
    for module, pair in adapter.pairs.items():
        names = ("lora_embedding_A", "lora_embedding_B") if pair.embedding else ("lora_A.weight", "lora_B.weight")
        for name, value in zip(names, (pair.a, pair.b), strict=True):
            tensors[f"{_ROOT}{module}.{name}"] = np.ascontiguousarray(value)
        if pair.magnitude is not None:
            magnitude = pair.magnitude if pair.a.ndim == 2 else pair.magnitude[None, :, None]
            tensors[f"{_ROOT}{module}.lora_magnitude_vector"] = magnitude
    for name, value in adapter.biases.items():
        module = name.removesuffix(".bias")
        tensors[f"{_ROOT}{module}{'.base_layer' if module in adapter.pairs else ''}.bias"] = value
    for module, value in adapter.rows.items():
        tensors[f"{_ROOT}{module}.token_adapter.trainable_tokens_delta"] = value
    save_tensors({name: value.astype(dtype or value.dtype) for name, value in tensors.items()}, folder / WEIGHTS)
    write_json(folder / ADAPTER_CONFIG, adapter.config.to_json(transposed))
