"""Models cut to the part of their vocabulary that an application needs; `models.with_vocabulary` cuts the variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Unpack

import numpy as np

from kerasformer.basics.command_options import PruningOptions
from kerasformer.basics.options import documented
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.generation import ID_SETTINGS, GenerationConfig, GenerationSettings
from kerasformer.models import PretrainedModel, variables_by_path, with_vocabulary
from kerasformer.tools.training.tokenizer_pruning import PruningReport, prune_tokenizer


@dataclass(frozen=True)
class PrunedModel:
    """A model with a part of its vocabulary.

    Attributes:
        model: The model, with its tokenizer.
        ids: The id that each token had before, `(N,)`: `model`'s logits are those of the original at these ids.
        report: What changed in the vocabulary and in the sample texts.
        parameters_before: Number of parameters of the original model.
        parameters_after: Number of parameters of the model.
    """

    model: PretrainedModel
    ids: np.ndarray
    report: PruningReport
    parameters_before: int
    parameters_after: int

    def to_dict(self) -> dict[str, int]:
        """Returns the figures by name."""
        parameters = {"parameters_before": self.parameters_before, "parameters_after": self.parameters_after}
        return {**asdict(self.report), **parameters}


@documented(PruningOptions)
def prune_vocabulary(model: PretrainedModel, texts: Sequence[str], **options: Unpack[PruningOptions]) -> PrunedModel:
    """Creates a model with only those tokens that texts need, such as the texts of two languages.

    Tokens of the sample texts are kept, and with them special and other added tokens, tokens that the settings of the
    model name, tokens of bytes, and single characters: those of the texts and of each script that has at least 1 % of
    their letters, digits, punctuation marks and symbols, ASCII and Latin-1. A text whose tokens are all kept has the
    same tokens as before, and the model the same logits for them. Other texts are split into shorter tokens; a text
    with a character that was removed raises an error.

    A model that generates can only write tokens that were kept, so that the sample should include such texts as it is
    to write.

        pruned = kf.zoo.prune_vocabulary(kf.zoo.load("path/to/nllb"), texts, languages=["eng_Latn", "deu_Latn"])
        pruned.model.save_pretrained("small")

    Args:
        model: A model with a tokenizer; it does not change.
        texts: Sample texts, inputs and outputs.
        options: See `PruningOptions`.

    Returns:
        The model and figures of what changed. The model can be trained, saved, exported and run as any other.

    Raises:
        InputError: there are no texts, an argument is invalid, the model has no tokenizer or one of an unsupported
            kind, or all tokens are needed.
        UnsupportedConfigError: the size of the vocabulary is not that of the embeddings.
    """
    if not isinstance(model, PretrainedModel) or model.tokenizer is None:
        received = "a model without tokenizer" if isinstance(model, PretrainedModel) else type(model).__name__
        raise InputError(f"A model with a tokenizer was expected, such as of zoo.load. Received: {received}")
    config, size = model.config, model.config.vocab_size
    named = _named_ids(model)
    if config.positions_follow_padding:
        named |= set(range(config.pad_token_id))
    pruned = prune_tokenizer(model.tokenizer, texts, named, **options)
    if pruned.ids[-1] >= size:
        raise InputError(
            f"The tokenizer has tokens that the model lacks. Expected: ids below {size}. Received: {pruned.ids[-1]}, "
            f"{model.tokenizer.id_to_token(int(pruned.ids[-1]))!r}. Use the tokenizer that the model was trained with"
        )
    # Settings may name rows of the embeddings that belong to no token.
    rows = [*map(int, pruned.ids), *sorted({index for index in named if index < size} - set(map(int, pruned.ids)))]
    if len(rows) >= size:
        raise InputError(
            f"The texts need the whole vocabulary of {size} tokens. Expected: texts of a part of the languages of the "
            f"model, or a higher min_count. Received: {pruned.report.texts} texts"
        )
    new_ids = {old: new for new, old in enumerate(rows)}
    if config.positions_follow_padding and new_ids[config.pad_token_id] != config.pad_token_id:
        raise UnsupportedConfigError(
            "The positions of this model start after the id of the padding token, which must not change. Expected: a "
            f"token for each id up to {config.pad_token_id}. Received: {new_ids[config.pad_token_id]} of them"
        )
    config = replace(
        config.with_vocabulary(len(rows), new_ids),
        task_specific_params=_task_settings(config.task_specific_params, new_ids),
    )
    cut = with_vocabulary(model, config, lambda value, axis: np.take(value, rows, axis))
    cut.generation_config = model.generation_config.with_vocabulary(new_ids)
    cut.set_tokenizer(pruned.tokenizer)
    counts = [sum(math.prod(value.shape) for value in variables_by_path(each).values()) for each in (model, cut)]
    return PrunedModel(cut, np.array(rows, np.int32), pruned.report, *counts)


def _named_ids(model: PretrainedModel) -> set[int]:
    """Returns the ids of tokens that the settings of a model name, without those that no token has."""
    config = model.config
    settings = [_ids_of(task) for task in (config.task_specific_params or {}).values()]
    ids = {index for tokens in config.token_ids.values() for index in tokens}
    ids = ids.union(*(setting.token_ids for setting in (model.generation_config, *settings)))
    return {index for index in ids if index < config.vocab_size}


def _ids_of(settings: GenerationSettings) -> GenerationConfig:
    return GenerationConfig(**{name: value for name, value in settings.items() if name in ID_SETTINGS})


def _task_settings(tasks: Mapping[str, JsonMapping] | None, new_ids: Mapping[int, int]) -> dict[str, JsonObject] | None:
    """Returns the generation settings of tasks with new ids."""
    if tasks is None:
        return None
    others = {
        task: {name: value for name, value in values.items() if name not in ID_SETTINGS}
        for task, values in tasks.items()
    }
    return {task: {**others[task], **_ids_of(tasks[task]).with_vocabulary(new_ids).to_dict()} for task in tasks}
