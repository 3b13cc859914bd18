"""Creation of models: `load`, `build`, and the list of architectures, to which `register` adds others."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import keras

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.tasks import (
    NEEDS,
    PRETRAINING,
    SENTENCE_SIMILARITY,
    TEXT_RANKING,
    task_of_model,
    tasks_of_class,
    without_languages,
)
from kerasformer.bundle.architectures import DECODER, ENCODER, ENCODER_DECODER, Architecture, add, find, installed
from kerasformer.errors import (
    CheckpointError,
    InputError,
    KerasformerError,
    MissingHeadError,
    SourceError,
    UnsupportedConfigError,
)
from kerasformer.files import live, readers, sources
from kerasformer.files.adapters import Adapter, read_adapter, with_bases
from kerasformer.files.reading import JsonMapping, read_json
from kerasformer.files.tensors import JoinedTensors, ReplacedTensors, TensorFile, open_tensors, without_wrappers
from kerasformer.generation import GenerationConfig
from kerasformer.models.answer_scores import AnswerScore, is_answer_score
from kerasformer.models.config import Config
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.encoder_decoder import EncoderDecoder
from kerasformer.models.head_request import HeadRequest
from kerasformer.models.pretrained import Backbone, PretrainedModel, create
from kerasformer.models.sentence_settings import SentenceSettings, cross_encoder_entries, is_sentence_model
from kerasformer.models.task_models import CausalClassification
from kerasformer.models.ties import completed
from kerasformer.models.variables import forget_sources, sampled_values
from kerasformer.models.weight_table import head_tensors
from kerasformer.models.weights import build_within_memory, load_weights
from kerasformer.process import quiet_runtimes
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.fitting import vocabulary_warning

logger = logging.getLogger("kerasformer")

_BRANCHES = {BidirectionalEncoder: ENCODER, CausalDecoder: DECODER, EncoderDecoder: ENCODER_DECODER}
"""Kinds of architectures by the base classes of their backbones."""


_registered: dict[str, ModuleType] = {}
"""Modules of other packages by `model_type`."""


def architectures() -> tuple[str, ...]:
    """Returns the `model_type` of all architectures: those of `kerasformer.zoo` and those of other packages."""
    return tuple(models())


@cache
def zoo_modules() -> tuple[str, ...]:
    """Returns the names of the modules of `kerasformer.zoo`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(sources.zoo_folder())])))


def architecture(model_type: str) -> ModuleType:
    """Imports the module of an architecture.

    Raises:
        UnsupportedConfigError: the architecture is unsupported, or the package that adds it is faulty.
    """
    name = model_type.replace("-", "_")
    if name in zoo_modules():
        return importlib.import_module(f"kerasformer.zoo.{name}")
    if model_type not in _registered and model_type in installed():
        _register_installed(model_type)
    if model_type not in _registered:
        find(model_type)
    return _registered[model_type]


def models() -> dict[str, tuple[str, ...]]:
    """Returns the tasks of each architecture, by its `model_type`."""
    names = [_backbone(name).config_type.model_type for name in zoo_modules()]
    names += sorted({*_registered, *installed()} - {*names})
    return {name: tuple(architecture(name).MODELS) for name in names}


def register(module: ModuleType) -> str:
    """Adds an architecture of another package to those of `kerasformer.zoo`, for this process.

    `load`, `build` and `models` then know it by its `model_type`. An installed package can do without this call: an
    entry point of the group `kerasformer.architectures` has the `model_type` as its name and the module as its value,
    and is imported when the architecture is used:

        [project.entry-points."kerasformer.architectures"]
        my_model = "my_package.my_model"

    Args:
        module: A module like those of `kerasformer.zoo`, with the model classes by task in `MODELS`. The first line of
            its docstring is the name of the architecture, or `name: summary`.

    Returns:
        The `model_type` of the architecture.

    Raises:
        InputError: the module has no valid `MODELS`, or its `model_type` is that of another architecture.
    """
    backbone = _checked_backbone(module)
    model_type = str(backbone.config_type.model_type)
    existing = _registered.get(model_type)
    if existing is None and model_type.replace("-", "_") in zoo_modules():
        existing = architecture(model_type)
    if existing not in (None, module):
        raise InputError(
            f"model_type {model_type!r} of {module.__name__} is that of an architecture that exists already, in "
            f"{existing.__name__}. Expected: another model_type of {backbone.config_type.__name__}"
        )
    if existing is None:
        add(describe(module))
        _registered[model_type] = module
    return model_type


def describe(module: ModuleType) -> Architecture:
    """Returns what the docstring and the classes of an architecture's module say about it."""
    text = module.__doc__ or ""
    title, _, summary = (text.splitlines() or [""])[0].partition(": ")
    parent = re.search(r"^Derived from: `([\w-]+)`", text, re.MULTILINE)
    paper = re.search(r"^Paper: (.+?)\.(?:\s+Reference: .*)?$", text, re.MULTILINE | re.DOTALL)
    citation = " ".join(paper[1].split()) if paper else ""
    year = re.search(r"\b(?:19|20)\d\d\b", citation)
    backbone = _backbone_of(module.MODELS)
    return Architecture(
        model_type=backbone.config_type.model_type,
        name=title or backbone.__name__,
        branch=next(branch for base, branch in _BRANCHES.items() if issubclass(backbone, base)),
        summary=summary.removesuffix("."),
        derived_from=parent[1] if parent else None,
        year=int(year[0]) if year else 0,
        paper=citation,
        tasks=tuple(module.MODELS),
    )


def _register_installed(model_type: str) -> None:
    """Imports and registers the architecture of an entry point."""
    point = installed()[model_type]
    package = point.dist.name if point.dist else "an unknown package"
    source = f"the entry point {point.name} = {point.value} of {package}"
    try:
        registered = register(point.load())
    except (ImportError, AttributeError, InputError) as error:
        raise UnsupportedConfigError(f"The architecture of {source} cannot be used. {error}") from error
    if registered != model_type:
        raise UnsupportedConfigError(
            f"The name of {source} must be the model_type of its module. Expected: {registered}. Received: {model_type}"
        )


def _checked_backbone(module: object) -> type[Backbone]:
    """Returns the backbone of an architecture's module; raises an error if `MODELS` is missing or invalid."""
    if not isinstance(module, ModuleType):
        raise InputError(f"A module with MODELS was expected, the model classes by task. Received: {module!r:.200}")
    classes_by_task = getattr(module, "MODELS", None)
    if not isinstance(classes_by_task, Mapping) or not classes_by_task:
        raise InputError(
            f"{module.__name__} must have MODELS, a dictionary of model classes by task, such as the result of "
            f"kerasformer.models.task_models.heads. Received: MODELS={classes_by_task!r:.200}"
        )
    for task, task_class in classes_by_task.items():
        if not (isinstance(task_class, type) and issubclass(task_class, PretrainedModel)):
            raise InputError(
                f"MODELS[{task!r}] of {module.__name__} must be a class derived from PretrainedModel. "
                f"Received: {task_class!r:.200}"
            )
        if getattr(task_class, "backbone_type", None) is None:
            raise InputError(
                f"{task_class.__name__}, MODELS[{task!r}] of {module.__name__}, has no backbone. Expected: a class "
                f"declared with backbone=…"
            )
        if task not in tasks_of_class(task_class.task):
            raise InputError(
                f"MODELS[{task!r}] of {module.__name__} must be a class for this task. "
                f"Received: {task_class.__name__}, for {task_class.task}"
            )
    backbones = {task_class.backbone_type for task_class in classes_by_task.values()}
    if len(backbones) != 1:
        names = ", ".join(sorted(backbone.__name__ for backbone in backbones))
        raise InputError(f"All classes in MODELS of {module.__name__} must have the same backbone. Received: {names}")
    backbone = backbones.pop()
    if not issubclass(backbone, tuple(_BRANCHES)):
        expected = ", ".join(base.__name__ for base in _BRANCHES)
        raise InputError(f"{backbone.__name__} of {module.__name__} must derive from one of {expected}")
    config_type = getattr(backbone, "config_type", None)
    model_type = getattr(config_type, "model_type", None)
    if not model_type or not isinstance(model_type, str):
        raise InputError(
            f"config_type of {backbone.__name__} in {module.__name__} must be a configuration with a model_type. "
            f"Received: {config_type!r}, model_type={model_type!r}"
        )
    return backbone


def build(
    model_type: str,
    task: str | None = None,
    *,
    dtype: str | keras.DTypePolicy | None = None,
    sentence: SentenceSettings | None = None,
    **settings: object,
) -> PretrainedModel:
    """Creates a model with random weights from a configuration.

    Args:
        model_type: An architecture, such as `"gpt2"`.
        task: A task of the architecture; by default generation or masked language modelling, if supported.
        dtype: Keras dtype policy, such as `"mixed_bfloat16"`.
        sentence: For sentence-similarity, how embeddings are computed; by default, their mean.
        settings: Fields of the configuration, such as `num_layers=4`, which also sets the number of layers of a
            decoder unless `num_decoder_layers` is passed.

    Raises:
        UnsupportedConfigError: an unknown architecture or setting.
        InputError: the architecture does not support the task.
    """
    classes_by_task = architecture(model_type).MODELS
    task = task or _default_task(classes_by_task)
    task_class = model_class(classes_by_task, model_type, task)
    config = task_class.backbone_type.config_type.create(**settings)
    options = task_class.options(task, config, None, sentence)
    with quiet_runtimes():
        model: PretrainedModel = create(task_class, config, dtype, build=False, **options)
        build_within_memory(model)
    model.generation_config = GenerationConfig.from_dict({}, config.generation_settings())
    return model


def load(
    source: str | Path | keras.Model | Any,
    task: str | None = None,
    *,
    tokenizer: Any = None,
    num_labels: int | None = None,
    id2label: Mapping[int, str] | None = None,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
    new_head: bool = False,
    sentence: SentenceSettings | None = None,
    model_type: str | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    keep_dtype: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> PretrainedModel:
    """Loads a model with the weights, tokenizer and generation settings of a checkpoint.

    The head of a checkpoint is used if its shapes match. To fine-tune a pretrained encoder, request a task with its
    labels, or a new head, which starts untrained:

        zoo.load("bert-base-uncased", "text-classification", labels=["negative", "positive"])
        zoo.load("bert-base-uncased", "question-answering", new_head=True)

    Args:
        source: A preset, a folder in Hugging Face's format, or a hub id; a GGUF file of llama.cpp, with the extra
            `gguf`; a task or backbone of KerasHub, or the folder of a KerasHub preset. A folder with an adapter and its
            `config.json` is loaded with the base model that it names, a preset or a hub id, and merged. Also a model of
            `transformers` in memory, or one with an adapter of `peft`, which is merged; neither changes.
        task: Hugging Face's name of a task; by default the task for which the checkpoint was saved, and
            sentence-similarity for a folder of sentence-transformers.
        tokenizer: Tokenizer of the model, instead of that of the source: a `kf.Tokenizer`, one of `transformers`, or a
            source that has one.
        num_labels: Number of classes. If that of the checkpoint's head differs, a new, untrained head is created.
        id2label: Names of the classes by id; sets their number, too.
        labels: Names of the classes in order; sets their number, too.
        problem_type: `"single_label_classification"`, `"multi_label_classification"` or `"regression"`: how to
            interpret the scores.
        new_head: Whether to create a new, untrained head even if the checkpoint has one.
        sentence: For sentence-similarity, how embeddings are computed, instead of the files of sentence-transformers in
            the folder. If there are none, that is the mean of the hidden states, as in sentence-transformers.
        model_type: The architecture, such as `"bert"`, if `config.json` has none or a wrong one.
        dtype: Keras dtype policy, such as `"float16"` or `"mixed_bfloat16"`.
        keep_dtype: Whether the matrices of a model that computes in float32 stay in the 16 bits of the checkpoint, and
            are converted one by one where they are used. The outputs are the same, and the model takes half the memory.
            Not for training. `export` does so itself if it gets a checkpoint and not a model.
        revision: Branch, tag or commit on the hub.
        token: Access token for private repositories on the hub.

    Returns:
        A `keras.Model`. `model.new_variables` lists the paths of untrained variables. `model.tokenizer` is `None` if
        the checkpoint has no tokenizer, or if it cannot be loaded, in which case the reason is logged.

    Raises:
        SourceError: the source does not exist, or is a bundle.
        UnsupportedConfigError: the architecture or a value of its configuration is unsupported.
        CheckpointError: weights do not match the model or are not finite; one error lists all problems.
        InputError: the architecture does not support the task, or arguments contradict each other.
    """
    options: Arguments = {
        "num_labels": num_labels,
        "id2label": id2label,
        "labels": labels,
        "problem_type": problem_type,
        "new_head": new_head,
        "sentence": sentence,
        "model_type": model_type,
        "dtype": dtype,
        "keep_dtype": keep_dtype,
        "revision": revision,
        "token": token,
    }
    if live.is_model(source):
        return _of_live_model(source, task, tokenizer, options)
    model = _load(source, task, **options)
    if tokenizer is not None:
        _set_tokenizer(model, tokenizer)
    return model


def _of_live_model(source: Any, task: str | None, tokenizer: Any, options: Arguments) -> PretrainedModel:
    """Loads a model of `transformers` or `peft` in memory."""
    written = (tokenizer,) if live.is_tokenizer(tokenizer) else ()
    with live.files_of(source, *written) as folder:
        model = _load(folder, task, name=type(source).__name__, **options)
        forget_sources(model)  # the files are gone after this
        if tokenizer is not None and not written:
            _set_tokenizer(model, tokenizer)
    model.source = None
    return model


def _set_tokenizer(model: PretrainedModel, tokenizer: Any) -> None:
    """Sets another tokenizer of a model, or that of another source."""
    from kerasformer.tokenization import Tokenizer

    if not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.load(tokenizer, model_type=model.config.model_type)
    if problem := vocabulary_warning(tokenizer, model.config.vocab_size):
        logger.warning(problem)
    model.set_tokenizer(tokenizer)


def _load(
    source: str | Path | keras.Model,
    task: str | None,
    *,
    num_labels: int | None,
    id2label: Mapping[int, str] | None,
    labels: Sequence[str] | None,
    problem_type: str | None,
    new_head: bool,
    sentence: SentenceSettings | None,
    model_type: str | None,
    dtype: str | keras.DTypePolicy | None,
    keep_dtype: bool,
    revision: str | None,
    token: str | None,
    name: str | None = None,
) -> PretrainedModel:
    """Loads a checkpoint; arguments are those of `load`, and the name of the Keras model."""
    request = HeadRequest(num_labels, id2label, labels, problem_type, new_head)
    if converter := readers.converter_of(source):
        return converter.from_model(source, task, request=request, dtype=dtype)
    path = sources.resolve(source, revision=revision, token=token)
    if sources.kind(path) == "bundle":
        raise SourceError(f"A checkpoint was expected. Received a bundle: {path}. Open it with kerasformer.pipeline.")
    # At its first operation, TensorFlow logs that it finds no GPU.
    with readers.checkpoint_files(path) as folder, quiet_runtimes():
        content = read_json(sources.inside(folder, "config.json"))
        if converter := readers.converter_of_config(content):
            return converter.from_folder(folder, task, request=request, dtype=dtype)
        *adapted, whole = with_bases(path, token)
        adapters = [read_adapter(each) for each in reversed(adapted)]
        file = without_wrappers(readers.checkpoint_tensors(whole))
        model_type = model_type or model_type_of(content)
        classes_by_task = architecture(model_type).MODELS
        for adapter in adapters:
            file = _with_adapter(file, adapter, classes_by_task, content)
        task = task or _sentence_task(folder) or _saved_task(classes_by_task, content, file)
        task_class = model_class(classes_by_task, model_type, task)
        tokenizer = _tokenizer(path, model_type) or _tokenizer(whole, model_type)
        score = _answer_score(folder, task_class, task, content, tokenizer)
        if score is not None:
            content, file = score.content(content), score.tensors(file, classes_by_task["text-generation"])
        config = task_class.backbone_type.config_type.from_hf({**content, **cross_encoder_entries(folder)})
        _check_layer_counts(config, file)
        config = request.applied(config, task_class.task, task_class.has_labels)
        config, file = _resolved(classes_by_task, task_class, config, file)
        name = name or str(source).rstrip("/").split("/")[-1]
        options = {**task_class.parts(file), **task_class.options(task, config, folder, sentence)}
        model: PretrainedModel = create(task_class, config, dtype, build=False, name=name, **options)
        if subfolders := {row.tensor.rpartition("/")[0] for row in model.head_rows()} - {""}:
            further = [name for name in sorted(subfolders) if (folder / name).is_dir()]
            file = JoinedTensors({"": file, **{name: open_tensors(folder / name) for name in further}})
        heads = _head_tensors(classes_by_task) | {row.tensor for row in model.head_rows()}
        names = model.backbone.checkpoint_names()
        try:
            fresh = load_weights(model, file, names, heads, request.new, keep_dtype=keep_dtype)
        except MissingHeadError as error:
            if task not in NEEDS:
                raise
            raise MissingHeadError(
                f"{task} needs {NEEDS[task]}. Received: {source}, which has no head for {model.task}"
            ) from error
        for adapter in adapters:
            model.attach_adapter(adapter.products())
            model.merge_adapter()
        start_head(model, fresh, request)
        model.generation_config = _generation_config(folder, config, content)
    if score is not None and tokenizer is not None:
        score.set_template(tokenizer, model.pair_template)
    model.set_tokenizer(tokenizer)
    if problem := vocabulary_warning(model.tokenizer, model.config.vocab_size):
        logger.warning(problem)
    model.source, model.loaded_values = path, sampled_values(model)
    return model


def _sentence_task(folder: Path) -> str | None:
    """Returns the task of a folder of sentence-transformers; `None` if `config.json` has it."""
    if is_answer_score(folder):
        return TEXT_RANKING
    return SENTENCE_SIMILARITY if is_sentence_model(folder) else None


def _answer_score(
    folder: Path, kind: type[PretrainedModel], task: str, content: JsonMapping, tokenizer: Tokenizer | None
) -> AnswerScore | None:
    """Returns the tokens by which a language model ranks; `None` for a model with a head, or for another task."""
    if not issubclass(kind, CausalClassification):
        return None
    score = AnswerScore.read(folder)
    if score is None and without_languages(task) == TEXT_RANKING:
        score = AnswerScore.of_words(content, tokenizer)
    return score


def start_head(model: PretrainedModel, fresh: Sequence[str], request: HeadRequest) -> None:
    """Records and logs the variables of a model that are untrained.

    Raises:
        InputError: a new head was requested, but the model has no separate head.
    """
    if request.new_head and not fresh:
        raise InputError(
            f"{model.config.model_type} has no separate head for {model.task}. Expected: new_head=False. "
            "Received: new_head=True"
        )
    model.new_variables = tuple(fresh)
    if fresh:
        logger.warning("These variables are new and untrained, as requested: %s", ", ".join(fresh))


def model_type_of(content: JsonMapping) -> str:
    """Returns the architecture that `config.json` names, by `model_type` or by the class in `architectures`."""
    model_type = content.get("model_type")
    if model_type is not None:
        if not isinstance(model_type, str):
            raise UnsupportedConfigError(f"model_type in config.json must be a string. Received: {model_type!r}")
        return model_type
    saved = _saved_classes(content)
    classes = {task_class.architecture: name for name in models() for task_class in architecture(name).MODELS.values()}
    candidates = list(dict.fromkeys(classes[name] for name in saved if name in classes))
    if len(candidates) != 1:
        raise UnsupportedConfigError(
            "config.json has no model_type, and its architectures do not name one model. Pass model_type to "
            f"kerasformer.zoo.load, such as model_type={(candidates or ['bert'])[0]!r}, or add it to config.json. "
            f"Expected one of {', '.join(candidates or architectures())}. Received: architectures={saved}"
        )
    return candidates[0]


def _backbone(model_type: str) -> type[Backbone]:
    return _backbone_of(architecture(model_type).MODELS)


def _backbone_of(classes_by_task: Mapping[str, type[PretrainedModel]]) -> type[Backbone]:
    return next(iter(classes_by_task.values())).backbone_type


def _saved_classes(content: JsonMapping) -> list[str]:
    saved = content.get("architectures") or []
    if not isinstance(saved, list) or not all(isinstance(name, str) for name in saved):
        raise UnsupportedConfigError(f"architectures in config.json must be a list of names. Received: {saved!r:.200}")
    return saved


def model_class(
    classes_by_task: Mapping[str, type[PretrainedModel]], model_type: str, task: str
) -> type[PretrainedModel]:
    """Returns the class of an architecture for a task.

    Raises:
        InputError: the architecture does not support the task.
    """
    name = task_of_model(task)
    if name not in classes_by_task:
        raise InputError(
            f"{model_type} has no such task. Expected one of {', '.join(classes_by_task)}. Received: {task!r}"
        )
    return classes_by_task[name]


def _default_task(classes_by_task: Mapping[str, type[PretrainedModel]]) -> str:
    preferred = ("text-generation", "text2text-generation", "fill-mask")
    return next((task for task in preferred if task in classes_by_task), next(iter(classes_by_task)))


def configured_task(classes_by_task: Mapping[str, type[PretrainedModel]], content: JsonMapping) -> str:
    """Returns the task that `config.json` names, by the class in `architectures`; otherwise the usual one."""
    saved = _saved_classes(content)
    for task, task_class in classes_by_task.items():
        if task_class.architecture in saved or task_class.former_architecture in saved:
            return task
    return _default_task(classes_by_task)


def _saved_task(classes_by_task: Mapping[str, type[PretrainedModel]], content: JsonMapping, file: TensorFile) -> str:
    saved = _saved_classes(content)
    for task, task_class in classes_by_task.items():
        if task_class.architecture in saved or task_class.former_architecture in saved:
            return task
    if saved:
        known = ", ".join(
            f"{task_class.architecture} ({task_class.task})" for task_class in dict.fromkeys(classes_by_task.values())
        )
        raise InputError(
            f"The checkpoint was saved for an unsupported class. Pass the task. Expected one of {known}. "
            f"Received: architectures={saved}"
        )
    return _task_by_tensors(classes_by_task, content, file)


def _task_by_tensors(
    classes_by_task: Mapping[str, type[PretrainedModel]], content: JsonMapping, file: TensorFile
) -> str:
    """Returns the task with the largest head among those whose tensors are all in a checkpoint without `architectures`.

    Heads of pretraining count only if there is no other: a checkpoint with both heads of BERT's pretraining is for
    masked language modelling. If several heads are equal, the default task is preferred.
    """
    config = _backbone_of(classes_by_task).config_type.from_hf(content)
    _check_layer_counts(config, file)
    heads = {
        task: _saved_head(classes_by_task, task_class, config, file)
        for task, task_class in classes_by_task.items()
        if task == task_class.task
    }
    present = {task: head for task, head in heads.items() if head is not None}
    usual = {task: head for task, head in present.items() if task not in PRETRAINING}
    present = usual if any(usual.values()) else present
    candidates = [task for task, head in present.items() if not any(head < other for other in present.values())]
    default = _default_task(classes_by_task)
    if default in candidates:
        return default
    if len(candidates) > 1:
        raise InputError(
            "config.json does not specify the task of the checkpoint, and its head matches several. "
            f"Pass task=…, one of {', '.join(candidates)}"
        )
    return (
        candidates[0] if candidates else next(task for task, task_class in classes_by_task.items() if task_class.bare)
    )


def _head_tensors(classes_by_task: Mapping[str, type[PretrainedModel]]) -> set[str]:
    """Returns the names of the tensors of all heads of an architecture."""
    return head_tensors(row for task_class in classes_by_task.values() for row in task_class.head_table)


def _resolved(
    classes_by_task: Mapping[str, type[PretrainedModel]],
    task_class: type[PretrainedModel],
    config: Config,
    file: TensorFile,
) -> tuple[Config, TensorFile]:
    """Returns the configuration with what only the tensors reveal, and the tensors by all of their names.

    A tied tensor is also found by the names that it has in models for other tasks.
    """
    located = task_class.backbone_type.names.located(file, _head_tensors(classes_by_task))
    omitted = {name: tensor for kind in classes_by_task.values() for name, tensor in kind.missing_ties(config).items()}
    return task_class.config_for(config, file), completed(file, located, omitted)


def _with_adapter(
    file: TensorFile, adapter: Adapter, classes_by_task: Mapping[str, type[PretrainedModel]], content: JsonMapping
) -> TensorFile:
    """Returns the tensors of a checkpoint with those that an adapter replaces.

    Others that are tied to one of them keep their values, unless the adapter ties them, too.
    """
    file = ReplacedTensors(file, adapter.base)
    if adapter.follows or not adapter.saved:
        return ReplacedTensors(file, adapter.saved)
    config = _backbone_of(classes_by_task).config_type.from_hf(content)
    located = _backbone_of(classes_by_task).names.located(file, _head_tensors(classes_by_task))
    omitted = {name: tensor for kind in classes_by_task.values() for name, tensor in kind.missing_ties(config).items()}
    return ReplacedTensors(completed(file, located, omitted), adapter.saved)


def _saved_head(
    classes_by_task: Mapping[str, type[PretrainedModel]],
    task_class: type[PretrainedModel],
    config: Config,
    file: TensorFile,
) -> set[str] | None:
    """Returns the tensors of the head of a model; `None` if a checkpoint lacks tensors of the model.

    It is also `None` if the configuration excludes the task, as that of a bidirectional decoder excludes generation.
    """
    try:
        complete, file = _resolved(classes_by_task, task_class, config, file)
        model: PretrainedModel = create(task_class, complete, build=False, **task_class.parts(file))
    except UnsupportedConfigError:
        return None
    head = {row.tensor for row in model.head_rows() if not row.optional}
    needed = {row.tensor for row in model.rows() if not (row.optional or row.copy)}
    return head if needed <= model.backbone.checkpoint_names().located(file, head).keys() else None


def _check_layer_counts(config: Config, file: TensorFile) -> None:
    """Raises an error for more layers than a file can contain, before they are created."""
    for name, count in config.layer_counts.items():
        if count > len(file):
            raise CheckpointError(
                f"{name} in config.json does not match {file}, since every layer has separate tensors. "
                f"Expected at most {len(file)}, the number of all tensors. Received: {count}"
            )


def _generation_config(folder: Path, config: Config, content: JsonMapping) -> GenerationConfig:
    if (folder / "generation_config.json").exists():
        return GenerationConfig.load(folder, config.generation_settings(content, forced=False))
    return GenerationConfig.from_dict({}, config.generation_settings(content))


def _tokenizer(source: Path, model_type: str) -> Tokenizer | None:
    """Loads the tokenizer of a checkpoint; returns `None` if it has none, or none that can be loaded."""
    from kerasformer.tokenization import Tokenizer, has_tokenizer
    from kerasformer.tokenization.loading import FILES

    if not has_tokenizer(source) and not any((source / name).exists() for name in FILES):
        return None
    try:
        return Tokenizer.load(source, model_type=model_type)
    except KerasformerError as error:
        logger.warning("The model has no tokenizer, because that of the checkpoint cannot be used: %s", error)
        return None
