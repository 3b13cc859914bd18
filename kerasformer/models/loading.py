"""Creation of models: `load` with the weights of a checkpoint, `build` with random ones.

Called by `kerasformer.load`, and by pipelines and exports for the folder of a checkpoint.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.tasks import NEEDS, SENTENCE_SIMILARITY, TEXT_RANKING, without_languages
from kerasformer.bundle.adapters import read_adapter
from kerasformer.errors import KerasformerError, MissingHeadError, SourceError
from kerasformer.files import live, readers, sources
from kerasformer.files.base_models import with_bases
from kerasformer.files.reading import JsonMapping, read_json
from kerasformer.files.tensors import JoinedTensors, open_tensors, without_wrappers
from kerasformer.generation import GenerationConfig
from kerasformer.models.answer_scores import AnswerScore, is_answer_score
from kerasformer.models.checkpoint import all_head_tensors, check_layer_counts, resolved, with_adapter
from kerasformer.models.config import Config
from kerasformer.models.creation import create
from kerasformer.models.head_request import HeadRequest
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.registry import architecture, backbone_of, default_task, model_class
from kerasformer.models.saved_task import model_type_of, saved_task, text_part
from kerasformer.models.sentence_settings import SentenceSettings, cross_encoder_entries, is_sentence_model
from kerasformer.models.task_models import CausalClassification
from kerasformer.models.variables import forget_sources, sampled_values
from kerasformer.models.variants import variant_of
from kerasformer.models.weight_table import head_tensors
from kerasformer.models.weights import build_within_memory, load_weights
from kerasformer.process import quiet_runtimes
from kerasformer.tokenization import Tokenizer, has_tokenizer
from kerasformer.tokenization.fitting import vocabulary_warning
from kerasformer.tokenization.loading import FILES

logger = logging.getLogger("kerasformer")


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
    task = task or default_task(classes_by_task)
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
    request = HeadRequest(num_labels, id2label, labels, problem_type, new_head, sentence)
    options: Arguments = {"model_type": model_type, "dtype": dtype, "keep_dtype": keep_dtype, "token": token}
    if live.is_model(source):
        return _of_live_model(source, task, request, tokenizer, options)
    if converter := readers.converter_of(source):
        model = converter.from_model(source, task, request=request, dtype=dtype)
    else:
        path = sources.resolve(source, revision=revision, token=token)
        model = _load(path, task, request, name=_keras_name(str(source)), **options)
    if tokenizer is not None:
        _set_tokenizer(model, tokenizer)
    return model


def _keras_name(source: str) -> str:
    """Returns the last part of a path or id; TensorFlow takes no space, umlaut or colon, and only some at the start."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", source.rstrip("/").split("/")[-1]).lstrip("_-") or "model"


def _of_live_model(
    source: Any, task: str | None, request: HeadRequest, tokenizer: Any, options: Arguments
) -> PretrainedModel:
    """Loads a model of `transformers` or `peft` in memory."""
    written = (tokenizer,) if live.is_tokenizer(tokenizer) else ()
    with live.files_of(source, *written) as folder:
        model = _load(folder, task, request, name=type(source).__name__, **options)
        forget_sources(model)  # the files are gone after this
        if tokenizer is not None and not written:
            _set_tokenizer(model, tokenizer)
    model.source = None
    return model


def _set_tokenizer(model: PretrainedModel, tokenizer: Any) -> None:
    """Sets another tokenizer of a model, or that of another source."""
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.load(tokenizer, model_type=model.config.model_type)
    if problem := vocabulary_warning(tokenizer, model.config.vocab_size):
        logger.warning(problem)
    model.set_tokenizer(tokenizer)


def _load(
    path: Path,
    task: str | None,
    request: HeadRequest,
    *,
    model_type: str | None,
    dtype: str | keras.DTypePolicy | None,
    keep_dtype: bool,
    token: str | None,
    name: str,
) -> PretrainedModel:
    """Loads a folder or file; arguments are those of `load`, and the name of the Keras model."""
    if sources.kind(path) == "bundle":
        raise SourceError(f"A checkpoint was expected. Received a bundle: {path}. Open it with kerasformer.pipeline.")
    # At its first operation, TensorFlow logs that it finds no GPU.
    with readers.checkpoint_files(path) as folder, quiet_runtimes():
        content = text_part(read_json(sources.inside(folder, "config.json")))
        if converter := readers.converter_of_config(content):
            return converter.from_folder(folder, task, request=request, dtype=dtype)

        # What the file has: its tensors, those of the base models of an adapter, and the task they are for.
        *adapted, whole = with_bases(path, token)
        adapters = [read_adapter(each) for each in reversed(adapted)]
        file = without_wrappers(readers.checkpoint_tensors(whole))
        model_type = model_type or model_type_of(content)
        classes_by_task = architecture(model_type).MODELS
        file = backbone_of(classes_by_task).names.by_modules(file)
        for adapter in adapters:
            file = with_adapter(file, adapter, classes_by_task, content)
        task = variant_of(folder, task) or task or _sentence_task(folder) or saved_task(classes_by_task, content, file)
        task_class = model_class(classes_by_task, model_type, task)

        # What the model is: its class, its configuration and its parts.
        tokenizer = _tokenizer(path, model_type) or _tokenizer(whole, model_type)
        score = _answer_score(folder, task_class, task, content, tokenizer)
        if score is not None:
            content, file = score.content(content), score.tensors(file, classes_by_task["text-generation"])
        config = task_class.backbone_type.config_type.from_hf({**content, **cross_encoder_entries(folder)})
        check_layer_counts(config, file)
        config = request.applied(config, task_class.task, task_class.has_labels)
        config, file = resolved(classes_by_task, task_class, config, file)
        options = {**task_class.parts(file), **task_class.options(task, config, folder, request.sentence)}
        model: PretrainedModel = create(task_class, config, dtype, build=False, name=name, **options)

        # The variables get the values of the tensors.
        if subfolders := {row.tensor.rpartition("/")[0] for row in model.head_rows()} - {""}:
            further = [name for name in sorted(subfolders) if (folder / name).exists()]
            file = JoinedTensors({"": file, **{name: open_tensors(folder / name) for name in further}})
        heads = all_head_tensors(classes_by_task) | head_tensors(model.head_rows())
        names = model.backbone.checkpoint_names()
        try:
            fresh = load_weights(model, file, names, heads, request.new, keep_dtype=keep_dtype)
        except MissingHeadError as error:
            if task not in NEEDS:
                raise
            raise MissingHeadError(
                f"{task} needs {NEEDS[task]}. Received: {name}, which has no head for {model.task}"
            ) from error
        for adapter in adapters:
            model.attach_adapter(adapter.products())
            model.merge_adapter()
        request.note_untrained(model, fresh)

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


def _generation_config(folder: Path, config: Config, content: JsonMapping) -> GenerationConfig:
    if (folder / "generation_config.json").exists():
        return GenerationConfig.load(folder, config.generation_settings(content, forced=False))
    return GenerationConfig.from_dict({}, config.generation_settings(content))


def _tokenizer(source: Path, model_type: str) -> Tokenizer | None:
    """Loads the tokenizer of a checkpoint; returns `None` if it has none, or none that can be loaded."""
    if not has_tokenizer(source) and not any((source / name).exists() for name in FILES):
        return None
    try:
        return Tokenizer.load(source, model_type=model_type)
    except KerasformerError as error:
        logger.warning("The model has no tokenizer, because that of the checkpoint cannot be used: %s", error)
        return None
