"""Low-rank adaptation of whole models: training, and loading and saving of PEFT's adapters.

An adapter may also replace biases, rows of token embeddings, and whole modules.

The weight table of a model maps the modules of `transformers`, whose names adapters contain, to Keras layers. Several
layers that are one module there, such as the query, key and value of GPT-2, share the matrix `A` of its product.

References: Hu et al. 2021, arXiv:2106.09685; Liu et al. 2024, arXiv:2402.09353 (DoRA).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.bundle.adapters import ALL_LINEAR, Adapter, AdapterConfig, Pair, read_adapter, write_adapter
from kerasformer.errors import CheckpointError, InputError
from kerasformer.files import live, sources
from kerasformer.files.publishing import move_files, staging, write_json
from kerasformer.files.reading import local_path
from kerasformer.layers.core import Embedding, LowRank
from kerasformer.models.layouts import Convolution, Interleaved, SideBySide
from kerasformer.models.variables import forget_sources, variables_by_path
from kerasformer.models.weight_table import HEAD, Row

logger = logging.getLogger("kerasformer")
_WEIGHT, _BIAS = ".weight", ".bias"
_TASK_TYPES = {
    "text-generation": "CAUSAL_LM",
    "text2text-generation": "SEQ_2_SEQ_LM",
    "text-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
    "feature-extraction": "FEATURE_EXTRACTION",
}
"""PEFT's names of tasks."""


@dataclass(frozen=True)
class Module:
    """A module of `transformers` with a matrix, and the layers that it consists of here.

    Attributes:
        name: Path of the module in the model of `transformers`.
        row: Row of the weight table.
        layers: The layers, in their order in the tensor.
    """

    name: str
    row: Row
    layers: tuple[LowRank, ...]

    @property
    def embedding(self) -> bool:
        """Whether the module is an embedding table."""
        return isinstance(self.layers[0], Embedding)

    @property
    def in_head(self) -> bool:
        """Whether the module belongs to the head."""
        return self.row.variables[0].startswith(HEAD)

    @property
    def linear(self) -> bool:
        """Whether the module is a linear layer."""
        return not self.embedding and not isinstance(self.row.layout, Convolution)

    @property
    def groups(self) -> int:
        """Number of groups of outputs, each with an equal share of every layer, see `Interleaved`."""
        return self.row.layout.groups if isinstance(self.row.layout, Interleaved) else 1

    def shapes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shapes of `A` and `B` of a product in the layout of PyTorch."""
        inputs, outputs = self.layers[0].matrix.shape[0], sum(layer.matrix.shape[1] for layer in self.layers)
        if isinstance(self.row.layout, Convolution):
            size = self.row.layout.size
            return (rank, inputs // size, size), (outputs, rank, 1)
        return (rank, inputs), (outputs, rank)

    def to_keras(self, pair: Pair) -> tuple[np.ndarray, list[np.ndarray]]:
        """Converts a product to `A` `(in, r)` of all layers, and `B` `(r, out)` of each."""
        if isinstance(self.row.layout, Convolution):
            return self.row.layout.split(pair.a, ())[0], [pair.b[..., 0].T]
        # B has the layout of the weight, with ranks in the place of its inputs.
        shapes = [(pair.rank, layer.matrix.shape[1]) for layer in self.layers]
        return pair.a.T, self.row.to_keras(pair.b if self.row.transpose else pair.b.T, shapes)

    def to_torch(self, a: np.ndarray, b: Sequence[np.ndarray], scale: float) -> Pair:
        """Converts the matrices of the layers to a product, the inverse of `to_keras`."""
        if isinstance(self.row.layout, Convolution):
            return Pair(self.row.layout.joined([a]), b[0].T[..., None], scale)
        joined = self.row.to_hf(b)
        return Pair(a.T, joined if self.row.transpose else joined.T, scale, self.embedding)

    def split(self, magnitude: np.ndarray) -> list[np.ndarray]:
        """Returns the magnitudes `(out,)` of each layer, from those of the module."""
        if isinstance(self.row.layout, Convolution):
            return [magnitude]
        shapes = [(1, layer.matrix.shape[1]) for layer in self.layers]
        return [
            part[0] for part in self.row.to_keras(magnitude[:, None] if self.row.transpose else magnitude[None], shapes)
        ]

    def joined(self, magnitudes: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the magnitudes of the module from those of each layer, the inverse of `split`."""
        if isinstance(self.row.layout, Convolution):
            return magnitudes[0]
        return self.row.to_hf([part[None] for part in magnitudes]).reshape(-1)


def modules_of(model: keras.Model) -> dict[str, Module]:
    """Returns the modules of a model that can have low-rank products, by their paths in `transformers`.

    A table of token embeddings that is shared is not among them: its product would change both of its uses.
    """
    layers = {
        layer.matrix.path.split("/", 1)[1]: layer for layer in _low_rank_layers(model) if layer.matrix is not None
    }
    shared = model.shared_table
    modules = {}
    for row in model.rows(saved=True):
        adaptable = tuple(layers[path] for path in row.variables if path in layers)
        is_whole = len(adaptable) == len(row.variables) > 0
        if row.copy or not is_whole or not row.tensor.endswith(_WEIGHT) or shared in adaptable or not _splits(row):
            continue
        name = row.tensor.removesuffix(_WEIGHT)
        modules[name] = Module(name, row, adaptable)
    return modules


def _low_rank_layers(model: keras.Model) -> Iterable[LowRank]:
    return (layer for layer in model._flatten_layers() if isinstance(layer, LowRank))


def _splits(row: Row) -> bool:
    """Whether the layout of a tensor combines variables along their outputs only."""
    layout = row.layout
    if isinstance(layout, SideBySide):
        return len(row.variables) == 1 or layout.axis == (0 if row.transpose else 1)
    return isinstance(layout, Convolution) or (isinstance(layout, Interleaved) and row.transpose)


@dataclass(frozen=True)
class _Rows:
    """Rows of token embeddings, or of the matrix of the scores, that an adapter replaces.

    Attributes:
        row: Row of the weight table.
        ids: Ids of the tokens.
        values: Their rows `(n, E)`.
    """

    row: Row
    ids: tuple[int, ...]
    values: np.ndarray


@dataclass(frozen=True)
class _Attached:
    """The adapter of a model.

    Attributes:
        config: Its configuration.
        modules: The adapted modules.
        replaced: Values that variables had before the adapter replaced them, by path.
        trainable: The variables that were trainable before, by `id`.
        untied: Whether the adapter gave the output a matrix of its own.
        tables: Tables of which the adapter replaced rows.
    """

    config: AdapterConfig
    modules: tuple[Module, ...]
    replaced: Mapping[str, np.ndarray]
    trainable: frozenset[int]
    untied: bool = False
    tables: tuple[_Rows, ...] = ()


class Adaptable(keras.Model):
    """Base of models whose modules can be adapted by low-rank products (LoRA), as those of PEFT."""

    config: Any
    _attached: _Attached | None = None

    @property
    def adapter(self) -> AdapterConfig | None:
        """Configuration of the adapter of the model, or `None`."""
        return None if self._attached is None else self._attached.config

    @property
    def adapted_modules(self) -> tuple[Module, ...]:
        """The modules that the adapter of the model adapts."""
        return () if self._attached is None else self._attached.modules

    def enable_lora(
        self,
        rank: int = 8,
        target_modules: str | Iterable[str] = ALL_LINEAR,
        *,
        alpha: float | None = None,
        rslora: bool = False,
        dora: bool = False,
        rank_pattern: Mapping[str, int] | None = None,
        alpha_pattern: Mapping[str, float] | None = None,
        exclude_modules: str | Iterable[str] = (),
        modules_to_save: Iterable[str] | None = None,
    ) -> None:
        """Freezes the model and adds a trainable low-rank product to modules, which is zero at first.

        Compile the model afterwards.

            model.enable_lora(rank=8, target_modules=["q_proj", "v_proj"])

        Args:
            rank: Rank of the products.
            target_modules: The adapted modules, by their names in `transformers`, as in PEFT: the last part of a path
                or several (`"c_attn"`, `"mlp.c_proj"`); or a regular expression that matches whole paths; or
                `"all-linear"`, all linear layers below the head.
            alpha: Numerator of the scale of the products, `alpha / rank`; `rank` by default.
            rslora: Whether the scale is `alpha / sqrt(rank)`.
            dora: Whether the length of each column of the sums of weights and products is trained, too (DoRA). Each
                call then computes the sums; `merge_adapter` saves this time.
            rank_pattern: Other ranks of some modules, by regular expressions for the ends of their paths.
            alpha_pattern: Other numerators, likewise.
            exclude_modules: Modules that are not adapted, as `target_modules`.
            modules_to_save: Modules that are trained as a whole and saved with the adapter; by default those that
                `zoo.load` initialized randomly, such as a new classification head.

        Raises:
            InputError: no module has such a name (the message lists those that exist), or the model has an adapter.
            UnsupportedConfigError: an argument has the wrong type, or is not positive.
        """
        self._check_unadapted()
        modules = modules_of(self)
        if modules_to_save is None:
            modules_to_save = _modules_with(self, self.new_variables)
        config = AdapterConfig.from_json(
            {
                "peft_type": "LORA",
                "r": rank,
                "lora_alpha": rank if alpha is None else alpha,
                "use_rslora": rslora,
                "use_dora": dora,
                "target_modules": _plain(target_modules),
                "exclude_modules": _plain(exclude_modules),
                "rank_pattern": dict(rank_pattern or {}),
                "alpha_pattern": dict(alpha_pattern or {}),
                "modules_to_save": list(modules_to_save),
            },
            "enable_lora(…)",
        )
        chosen = _chosen(config, modules)
        if not chosen:
            raise InputError(
                f"{type(self).__name__} has no such modules. Expected some of "
                f"{', '.join(sorted({name.rsplit('.', 1)[-1] for name in modules}))}, parts of the paths "
                f"{', '.join(list(modules)[:4])} …, or a regular expression for whole paths. "
                f"Received: target_modules={config.targets!r}"
            )
        unknown = [
            name
            for name in config.saved
            if not any(AdapterConfig(saved=(name,)).saves(row.tensor) for row in self.rows(saved=True))
        ]
        if unknown:
            raise InputError(
                f"{type(self).__name__} has no modules of these names. Received: modules_to_save={unknown}"
            )
        # Lists of names are what PEFT saves, too: they do not depend on which layers a library calls linear.
        targets = config.targets if config.targets != ALL_LINEAR else tuple(module.name for module in chosen)
        config = replace(config, targets=targets, task_type=_TASK_TYPES.get(self.task))
        shared = _shared_row(self)
        untied = shared is not None and config.saves(shared.tensor) and not self.is_encoder_decoder
        if untied:
            self._untie()
        self._attach(config, chosen, trainable=True, untied=untied)

    def load_adapter(self, source: str | os.PathLike[str] | Any, *, trainable: bool = False) -> None:
        """Adds the adapter in a folder to the model, instead of the one that it has.

        Args:
            source: Folder of PEFT, with `adapter_config.json` and `adapter_model.safetensors`; a hub id; or a model of
                `peft` in memory, whose adapter is read.
            trainable: Whether to train the adapter further. All other variables are frozen in either case, until
                `merge_adapter` or `unload_adapter`.

        Raises:
            InputError: `trainable`, and the adapter replaces rows of token embeddings.
            SourceError: the folder or a file is missing or damaged.
            UnsupportedConfigError: options of PEFT that are not implemented; the message lists them.
            CheckpointError: the adapter belongs to another model, or is damaged; the message lists all mismatches. The
                model is unchanged.
        """
        if live.is_adapted(source):
            with live.files_of(source, merged=False) as folder:
                self.attach_adapter(read_adapter(folder), trainable=trainable)
        else:
            self.attach_adapter(read_adapter(sources.resolve(source)), trainable=trainable)

    def attach_adapter(self, adapter: Adapter, *, trainable: bool = False) -> frozenset[str]:
        """Adds an adapter that was read before, as `load_adapter`.

        Args:
            adapter: The adapter, from `kerasformer.bundle.adapters.read_adapter`.
            trainable: As in `load_adapter`.

        Returns:
            Paths of the variables that the adapter replaces as a whole.

        Raises:
            CheckpointError: the adapter belongs to another model. The model is unchanged.
            InputError: `trainable`, and the adapter replaces rows of token embeddings. The model is unchanged.
        """
        pairs, values, tables = _matched(self, adapter)
        if trainable and tables:
            raise InputError(
                "Rows of token embeddings are not trained without the rest of the table. Expected: trainable=False, or "
                f"an adapter with modules_to_save. Received: {adapter.source}, with trainable_token_indices"
            )
        self._check_layers()
        self.unload_adapter()
        values |= _with_rows(self, tables, values, _follows(self, adapter))
        untied = self._separate(adapter, values)
        modules = modules_of(self)
        self._attach(adapter.config, [modules[name] for name in pairs], trainable, pairs, values, untied, tables)
        variables = variables_by_path(self)
        for path, value in values.items():
            variables[path].assign(value)
        return frozenset(values)

    def save_adapter(
        self, folder: str | os.PathLike[str], *, dtype: str | None = None, base_model: str | None = None
    ) -> Path:
        """Saves the adapter of the model; PEFT loads it for the same model of `transformers`.

        Args:
            folder: Destination; other files in it are kept.
            dtype: Data type of the tensors, such as `"float16"`; float32 by default.
            base_model: Preset or hub id of the model that the adapter belongs to. The folder then also gets the
                configuration of the adapted model, and `kf.load` loads both.

        Returns:
            The destination.

        Raises:
            InputError: the model has no adapter.
            CheckpointError: the disk is full or the folder is not writable; existing files are unchanged.
        """
        attached = self._required()
        destination = local_path(folder, CheckpointError)
        if destination.exists() and not destination.is_dir():
            raise CheckpointError(f"A folder was expected, for the adapter. Received: the file {destination}")
        pairs = {}
        for module in attached.modules:
            a = ops.convert_to_numpy(module.layers[0].lora_a).astype("float32")
            b = [ops.convert_to_numpy(layer.lora_b).astype("float32") for layer in module.layers]
            pair = module.to_torch(a, b, attached.config.scale_of(module.name))
            if attached.config.dora:
                magnitudes = [ops.convert_to_numpy(layer.lora_magnitude).astype("float32") for layer in module.layers]
                pair = replace(pair, magnitude=module.joined(magnitudes))
            pairs[module.name] = pair
        variables = variables_by_path(self)

        def tensor(row: Row) -> np.ndarray:
            return row.to_hf([np.asarray(variables[path]) for path in row.variables])

        config = attached.config
        saved = {row.tensor: tensor(row) for row in self.rows(saved=True) if config.saves(row.tensor)}
        biases = {row.tensor: tensor(row) for row in _bias_rows(self, config, pairs) if row.tensor not in saved}
        rows = {table.row.tensor.removesuffix(_WEIGHT): table.values for table in attached.tables}
        shared = _shared_row(self)
        if shared is not None and config.saves(shared.tensor) and not self.is_encoder_decoder:
            # PEFT would leave the output at the table of the base model.
            outputs = [replace(shared, tensor=row.tensor) for row in self.head_table if row.tied]
            outputs += _preferred(self)
            for row in outputs:
                saved[row.tensor] = tensor(row)
            names = {row.tensor.rsplit(".", 1)[0] for row in outputs}
            config = replace(config, saved=(*config.saved, *sorted(names - {*config.saved})))
        # PEFT expects to be told of weights (in, out), which only Conv1D has.
        matrices = [module for module in attached.modules if not module.embedding]
        transposed = bool(matrices) and all(not module.row.transpose for module in matrices)
        with staging(destination, "adapter", CheckpointError) as aside:
            config = replace(config, base_model=base_model)
            write_adapter(aside, Adapter(config, pairs, saved, biases, rows), transposed, dtype)
            if base_model is not None:
                base = replace(self.config, tied=True) if attached.untied else self.config
                write_json(aside / "config.json", {"architectures": [self.architecture], **base.to_hf()})
            move_files(aside, destination)
        return destination

    def merge_adapter(self) -> None:
        """Adds the products of the adapter to the weights, and removes it; the outputs stay the same.

        Raises:
            InputError: the model has no adapter.
        """
        self._required()
        self._detach(merge=True)

    def unload_adapter(self) -> None:
        """Removes the adapter, if the model has one: the outputs are those of the base model again, bit for bit."""
        if self._attached is None:
            return
        variables = variables_by_path(self)
        for path, value in self._attached.replaced.items():
            variables[path].assign(value)
        if self._attached.untied:
            self.head.tie()
            self.config = replace(self.config, tied=True)
        self._detach(merge=False)

    def _untie(self) -> None:
        """Gives the output a matrix of its own, with the values of the token embeddings, which it was tied to."""
        with keras.name_scope(self.name, caller=self):
            self.head.untie(self.shared_table)
        self.config = replace(self.config, tied=False)

    def _separate(self, adapter: Adapter, values: dict[str, np.ndarray]) -> bool:
        """Gives the output a matrix of its own if an adapter replaces the token embeddings, or the output, alone.

        Returns:
            Whether it does, in which case `values` has the matrix.
        """
        shared, output = _shared_row(self), _output_path(self)
        if shared is None or output is None:
            return False
        (table,) = shared.variables
        before = ops.convert_to_numpy(variables_by_path(self)[table])
        after = values.get(table, before)
        rows = [f"{module}{_WEIGHT}" for module in adapter.rows]
        follows = _follows(self, adapter) or shared.tensor in _canonical(self, rows)
        scores = values.pop(output).T if output in values else after if follows else before
        if np.array_equal(after, scores):
            return False
        self._untie()
        values[output] = np.ascontiguousarray(scores.T)
        return True

    def _required(self) -> _Attached:
        if self._attached is None:
            raise InputError(
                f"A model with an adapter was expected: call enable_lora or load_adapter. Received: {self.name!r}"
            )
        return self._attached

    def _check_unadapted(self) -> None:
        if self._attached is not None:
            raise InputError(
                f"The model already has an adapter: call merge_adapter or unload_adapter first. Received: {self.name!r}"
            )
        self._check_layers()

    def _check_layers(self) -> None:
        """Raises an error for layers with matrices that were added to each by itself."""
        known = {id(layer) for module in (self._attached.modules if self._attached else ()) for layer in module.layers}
        # Also those that `merged_lora` has disabled for a time.
        others = [layer.path for layer in _low_rank_layers(self) if layer.lora_a is not None and id(layer) not in known]
        if others:
            raise InputError(
                "Layers have low-rank matrices of their own, from layer.enable_lora: call layer.disable_lora first. "
                f"Received: {', '.join(others[:4])}{' …' if len(others) > 4 else ''}"
            )

    def _attach(
        self,
        config: AdapterConfig,
        modules: Sequence[Module],
        trainable: bool,
        pairs: Mapping[str, Pair] | None = None,
        values: Collection[str] = (),
        untied: bool = False,
        tables: Sequence[_Rows] = (),
    ) -> None:
        """Adds the matrices of modules, with the values of `pairs`, and remembers the variables that are replaced.

        These are those of `config.saved`, and others in `values`: an adapter may have another name for a module.
        """
        before = frozenset(id(variable) for variable in self.variables if variable.trainable)
        output = _output_path(self)
        for variable in self.variables:
            variable.trainable = False
        for module in modules:
            _add_matrices(module, config, None if pairs is None else pairs[module.name])
            for layer in module.layers:
                for variable in (layer.lora_a, layer.lora_b, layer.lora_magnitude):
                    if variable is not None:
                        variable.trainable = trainable
        variables = variables_by_path(self)
        paths = {path for row in _saved_rows(self, config) for path in row.variables} | set(values)
        for path in paths:
            variables[path].trainable = trainable
        replaced = {path: ops.convert_to_numpy(variables[path]) for path in paths if not (untied and path == output)}
        self._attached = _Attached(config, tuple(modules), replaced, before, untied, tuple(tables))
        self._forget_traces()

    def _detach(self, merge: bool) -> None:
        attached = self._required()
        for module in attached.modules:
            for layer in module.layers:
                layer.disable_lora(merge)
        if merge:
            forget_sources(self)  # `release_weights` would read the weights without the products
        for variable in self.variables:
            variable.trainable = id(variable) in attached.trainable
        self._attached = None
        self._forget_traces()

    def _forget_traces(self) -> None:
        """Discards compiled functions, which have, or lack, the products."""
        self.__dict__.pop("_compiled_functions", None)
        self.train_function = self.test_function = self.predict_function = None


def set_adapter(model: keras.Model, adapter: Adapter | None) -> None:
    """Gives a model an adapter instead of the one that it has, or none."""
    if adapter is None:
        model.unload_adapter()
    else:
        model.attach_adapter(adapter)


def _add_matrices(module: Module, config: AdapterConfig, pair: Pair | None) -> None:
    """Adds low-rank matrices to the layers of a module, with the initial values of PEFT or those of a product."""
    rank = config.rank_of(module.name)
    # As `kaiming_uniform_(a=sqrt(5))` in PyTorch: uniform up to 1 / sqrt(in).
    uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    start = {"a_initializer": uniform, "b_initializer": "zeros"}
    if module.embedding:
        start = {"a_initializer": "zeros", "b_initializer": keras.initializers.RandomNormal(stddev=1.0)}
    first: LowRank | None = None
    for layer in module.layers:
        layer.enable_lora(rank, config.scale_of(module.name) * rank, shared=first, dora=config.dora, **start)
        first = first or layer
    if pair is not None:
        a, b = module.to_keras(pair)
        module.layers[0].lora_a.assign(a)
        for layer, value in zip(module.layers, b, strict=True):
            layer.lora_b.assign(value)
        if pair.magnitude is not None:
            for layer, value in zip(module.layers, module.split(pair.magnitude), strict=True):
                layer.lora_magnitude.assign(value)


def _chosen(config: AdapterConfig, modules: Mapping[str, Module]) -> list[Module]:
    """Returns the modules that a configuration adapts."""
    if config.targets != ALL_LINEAR:
        return [module for name, module in modules.items() if config.adapts(name)]
    everything = replace(config, targets=".*")
    return [
        module
        for name, module in modules.items()
        if everything.adapts(name) and not (module.embedding or module.in_head)
    ]


def _matched(model: keras.Model, adapter: Adapter) -> tuple[dict[str, Pair], dict[str, np.ndarray], list[_Rows]]:
    """Returns the products of an adapter by the module's name, the values of replaced variables, and replaced rows.

    Adapters may come from a class of `transformers` for another task, which names the same modules differently.

    Raises:
        CheckpointError: it does not match; the message lists all mismatches.
    """
    modules = modules_of(model)
    names = model.backbone.checkpoint_names()
    heads = {row.tensor for row in model.head_rows()}
    table, saved_table = model.rows(), model.rows(saved=True)
    own = {ours.tensor: theirs.tensor for ours, theirs in zip(table, saved_table, strict=True)}

    def located(tensor: str) -> str | None:
        return tensor if tensor in own.values() else own.get(names.canonical(tensor, heads))

    problems, pairs = [], {}
    for path, pair in adapter.pairs.items():
        tensor = located(path + _WEIGHT)
        module = modules.get((tensor or "").removesuffix(_WEIGHT))
        if tensor is None and names.is_ignored(names.canonical(path + _WEIGHT, heads)):
            continue  # a part that this task does not use, such as a pooler
        if module is None:
            reason = "it is a shared table, or no matrix" if tensor else "unknown module"
            problems.append(f"{path} cannot be adapted: {reason}")
            continue
        if module.name in pairs:
            problems.append(f"{path}: a second product of {module.name}")
            continue
        if module.embedding != pair.embedding or module.shapes(pair.rank) != (pair.a.shape, pair.b.shape):
            expected = module.shapes(pair.rank)
            problems.append(
                f"{path}: expected A {expected[0]} and B {expected[1]}. Received: {pair.a.shape} and {pair.b.shape}"
            )
            continue
        if pair.magnitude is not None and pair.magnitude.shape != (pair.b.shape[0],):
            problems.append(f"{path}: expected {pair.b.shape[0]} magnitudes. Received: {len(pair.magnitude)}")
            continue
        pairs[module.name] = pair
    if not problems and adapter.config.targets != ALL_LINEAR:
        # A file without a part of its layers would answer, too, but wrongly.
        missing = [module.name for module in _chosen(adapter.config, modules) if module.name not in pairs]
        problems += [f"missing: the product of {name}, one of target_modules" for name in missing]
    values: dict[str, np.ndarray] = {}
    variables = variables_by_path(model)
    rows = {row.tensor: row for row in saved_table if not row.copy}
    copies = _copies(model)

    def row_of(name: str) -> Row | None:
        return rows.get(located(name) or "") or copies.get(names.canonical(name, heads | copies.keys()))

    for name, tensor_value in {**adapter.base, **adapter.saved, **adapter.biases}.items():
        row = row_of(name)
        if row is None and name in adapter.biases and names.is_ignored(names.canonical(name, heads)):
            continue
        shapes = [] if row is None else [_shape_of(model, variables, path) for path in row.variables]
        if row is not None and row.shape(shapes) == tensor_value.shape and model.is_encoder_decoder:
            shared = _shared_row(model)
            if shared is not None and row.variables == shared.variables and name not in adapter.base:
                before = model._attached.replaced if model._attached is not None else {}
                path = row.variables[0]
                if not np.array_equal(before.get(path, np.asarray(variables[path])), tensor_value):
                    problems.append(f"{name} differs from {shared.tensor}, of which encoder and decoder have one")
                continue
        if row is None or row.shape(shapes) != tensor_value.shape:
            size = "no tensor of that name" if row is None else row.shape(shapes)
            problems.append(f"{name}, saved with the adapter: expected {size}. Received: {tensor_value.shape}")
            continue
        values |= zip(row.variables, row.to_keras(tensor_value, shapes), strict=True)
    if not problems:
        missing = [row.tensor for row in _saved_rows(model, adapter.config) if not values.keys() >= set(row.variables)]
        problems += [f"missing: {name}, one of modules_to_save" for name in missing]
        missing = [
            row.tensor
            for row in _bias_rows(model, adapter.config, pairs)
            if row.tensor.removesuffix(_BIAS) in pairs and not values.keys() >= set(row.variables)
        ]
        if adapter.biases or adapter.config.bias == "all":
            problems += [f"missing: {name}, a trained bias" for name in missing]
        elif missing:  # older versions of PEFT do not save them
            logger.warning("%s has no trained biases, and those of the base model are used", adapter.source)
    tables = []
    for path, new in adapter.rows.items():
        row, ids = row_of(path + _WEIGHT), adapter.config.rows_of(path)
        last = max(ids, default=0)
        size = () if row is None else row.shape([_shape_of(model, variables, name) for name in row.variables])
        if row is None or len(row.variables) != 1 or len(size) != 2 or new.shape[1] != size[1] or last >= size[0]:
            table_size = f"ids below {size[0]}, rows of {size[1]}" if len(size) == 2 else "a table of tokens"
            problems.append(f"{path}: expected {table_size}. Received: ids up to {last}, rows {new.shape}")
        else:
            tables.append(_Rows(row, ids, new))
    if problems:
        raise adapter.mismatch(type(model).__name__, problems, modules)
    return pairs, values, tables


def _with_rows(
    model: keras.Model, tables: Sequence[_Rows], values: Mapping[str, np.ndarray], follows: bool
) -> dict[str, np.ndarray]:
    """Returns the values of the variables of tables with replaced rows.

    Args:
        model: The model, without an adapter.
        tables: The rows.
        values: Values of variables that the adapter replaces as a whole.
        follows: Whether a tied output has the token embeddings among them.
    """
    variables, shared, results = variables_by_path(model), _shared_row(model), {}
    for table in tables:
        (path,) = table.row.variables
        # A tied model has no matrix of the scores.
        own = path in variables or shared is None
        name = path if own or shared is None else shared.variables[0]
        value = values.get(name) if own or follows else None
        value = ops.convert_to_numpy(variables[name]) if value is None else value
        whole = value.copy() if own else value.T.copy()
        rows = whole.T if table.row.transpose else whole
        rows[list(table.ids)] = table.values
        results[path] = whole
    return results


def _follows(model: keras.Model, adapter: Adapter) -> bool:
    """Whether a tied output has the token embeddings that an adapter replaces as a whole."""
    shared = _shared_row(model)
    return adapter.follows or (shared is not None and shared.tensor in _canonical(model, adapter.base))


def _bias_rows(model: keras.Model, config: AdapterConfig, adapted: Collection[str]) -> list[Row]:
    """Returns the rows of the biases that an adapter of these modules replaces."""
    biases = [row for row in model.rows(saved=True) if row.tensor.endswith(_BIAS) and not row.copy]
    if config.bias == "lora_only":
        return [row for row in biases if row.tensor.removesuffix(_BIAS) in adapted]
    return biases if config.bias == "all" else []


def _saved_rows(model: keras.Model, config: AdapterConfig) -> list[Row]:
    return [row for row in model.rows(saved=True) if not row.copy and config.saves(row.tensor)]


def _shared_row(model: keras.Model) -> Row | None:
    """Returns the row of the token embeddings if they are also the matrix of the scores, or of the other stack."""
    if model.shared_table is None:
        return None
    path = model.shared_table.embeddings.path.split("/", 1)[1]
    return next(row for row in model.rows(saved=True) if path in row.variables and not row.copy)


def _output_path(model: keras.Model) -> str | None:
    """Returns the path of the matrix of the scores, which a tied head lacks; `None` if it cannot have one."""
    output = next((row for row in model.head_table if row.tied), None)
    return HEAD + output.variables[0] if output is not None and hasattr(model.head, "untie") else None


def _copies(model: keras.Model) -> dict[str, Row]:
    """Returns the rows of tensors that a tied model has no variables of, by their names."""
    shared, output = _shared_row(model), _output_path(model)
    biases = {row.tensor: row for row in _preferred(model)}
    if shared is None:
        return biases
    tensors = {row.tensor for row in model.head_table if row.tied}
    own = {name: replace(shared, tensor=name) for name in model.ties(model.config) if name not in tensors}
    if output is not None and not model.is_encoder_decoder:
        own |= {name: Row((output,), name, transpose=True) for name in tensors}
    return {**own, **biases}


def _preferred(model: keras.Model) -> list[Row]:
    """Returns rows with the names of tensors that `transformers` uses instead of those of the weight table."""
    rows = model.rows(saved=True)
    return [replace(row, tensor=row.preferred) for row in rows if row.preferred is not None and not row.copy]


def _shape_of(model: keras.Model, variables: Mapping[str, keras.Variable], path: str) -> Sequence[int]:
    if path in variables or model.shared_table is None:
        return tuple(variables[path].shape)
    return tuple(reversed(model.shared_table.embeddings.shape))


def _canonical(model: keras.Model, tensors: Iterable[str]) -> set[str]:
    """Returns the names of tensors in the saved weight table of a model."""
    names, saved = model.backbone.checkpoint_names(), model.rows(saved=True)
    own = {ours.tensor: theirs.tensor for ours, theirs in zip(model.rows(), saved, strict=True)}
    heads = {row.tensor for row in model.head_rows()}
    return {own.get(names.canonical(name, heads), name) for name in tensors}


def _modules_with(model: keras.Model, paths: Iterable[str]) -> list[str]:
    wanted = set(paths)
    tensors = [row.tensor for row in model.rows(saved=True) if wanted & set(row.variables) and not row.copy]
    return sorted({name.rsplit(".", 1)[0] for name in tensors})


def _plain(names: str | Iterable[str]) -> str | list[str]:
    return names if isinstance(names, str) else list(names)
