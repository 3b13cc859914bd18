"""Tensors that are one matrix in tied models, such as the token embeddings and the output.

Ties are a mapping from the name of each such tensor to the name of the one that it equals. A checkpoint may contain one
of them, under any of the names, or several; those that should be equal are compared.

Reference: `PreTrainedModel.tie_weights` of `transformers` 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from kerasformer.files.tensors import RenamedTensors, TensorFile
from kerasformer.models.weight_table import head_tensors

logger = logging.getLogger("kerasformer")


def completed(file: TensorFile, located: Mapping[str, str], ties: Mapping[str, str]) -> TensorFile:
    """Returns the tensors of a checkpoint, of which a tied one is found by each of its names.

    Args:
        file: The checkpoint.
        located: Names in the checkpoint by names in weight tables.
        ties: The ties.
    """
    further: dict[str, str] = {}
    for group in _groups(ties):
        present = [name for name in group if name in located]
        further.update({name: located[present[0]] for name in group if present and name not in present})
    return RenamedTensors(file, {**{name: name for name in file}, **further}) if further else file


def different(file: TensorFile, located: Mapping[str, str], ties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the pairs of tensors that differ although they are tied, the first one of a group in each of its pairs.

    Arguments are those of `completed`.
    """
    pairs = []
    for group in _groups(ties):
        present = [name for name in group if name in located and file.problem(located[name]) is None]
        pairs += [(present[0], name) for name in present[1:] if not _equal(file, located[present[0]], located[name])]
    return pairs


def observed(model_class: type[keras.Model], config: Any, tensors: TensorFile) -> Any:
    """Returns the configuration of a model of this class, tied or not as the tensors of a checkpoint are.

    See `PretrainedModel.config_for`.
    """
    all_ties, outputs = model_class.ties(config), {row.tensor for row in model_class.head_table if row.tied}
    if not all_ties:
        return config
    located = model_class.backbone_type.names.located(tensors, head_tensors(model_class.head_table))
    pairs = different(tensors, located, all_ties)
    biases = {row.tensor: row.preferred for row in model_class.head_table if row.preferred is not None}
    tied = getattr(config, "tied", True)
    for used, unused in different(tensors, located, biases) if tied else ():
        logger.warning("%s: %s is not used, since %s differs from it.", tensors, unused, used)
    if not pairs:
        is_copy = outputs & located.keys() if model_class.declares_ties else outputs
        return replace(config, tied=True) if is_copy and not tied else config
    of_tables = [pair for pair in pairs if pair[1] not in outputs]
    declared = [pair for pair in pairs if tied and (model_class.declares_ties or pair in of_tables)]
    names = ", ".join(f"{other} and {first}" for first, other in declared)
    if declared:
        logger.warning("%s: %s are tied by the configuration and differ. The model has both.", tensors, names)
    return model_class.backbone_type.untied(config, bool(of_tables), f"{tensors}: {names} differ")


def _groups(ties: Mapping[str, str]) -> Iterable[list[str]]:
    """Returns the tensors that are one matrix, those to which others are tied first."""
    groups: dict[str, list[str]] = {}
    for name, original in ties.items():
        while original in ties:
            original = ties[original]
        groups.setdefault(original, [original]).append(name)
    return groups.values()


def _equal(file: TensorFile, first: str, second: str) -> bool:
    if file.shape(first) != file.shape(second):
        return False
    return np.array_equal(file.read(first), file.read(second))
