"""Tensors that are one matrix in tied models, such as the token embeddings and the output.

Ties are a mapping from the name of each such tensor to the name of the one that it equals. A checkpoint may contain one
of them, under any of the names, or several; those that should be equal are compared.

Reference: `PreTrainedModel.tie_weights` of `transformers` 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kerasformer.files.tensors import RenamedTensors, TensorFile


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
