"""Several tasks for one model: how often each of them is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import Kind, check, integer, number, optional, sequence
from kerasformer.errors import InputError
from kerasformer.models import PretrainedModel
from kerasformer.tools.training.datasets import Dataset, Format, Row, dataset

_ABOVE_0 = number(above=0)
TEMPERATURE = Kind(
    "a number above 0, or inf for equal rates", lambda value: math.inf if value == math.inf else _ABOVE_0.convert(value)
)
_RATES = sequence(_ABOVE_0, 1)


def mixing_rates(sizes: Sequence[int], *, limit: int | None = None, temperature: float = 1.0) -> np.ndarray:
    """Returns the share of each task in a mixture, float64 `(N,)`, whose sum is 1.

    The rate of a task is proportional to its number of texts, but of no more than `limit` of them. It is raised to the
    power of one over the temperature: the higher this is, the more equal are the rates.

    Args:
        sizes: Number of texts of each task.
        limit: Largest number that counts, the artificial limit K of the paper.
        temperature: 1 for proportional rates, `math.inf` for equal ones.

    Raises:
        InputError: an argument is not accepted.

    Reference: Raffel et al. 2020, arXiv:1910.10683, section 3.5.2.
    """
    sizes = check("sizes", sizes, sequence(integer(1), 1))
    limit = check("limit", limit, optional(integer(1)))
    temperature = check("temperature", temperature, TEMPERATURE)
    counted = np.minimum(sizes, math.inf if limit is None else limit)
    # Of shares, so that a low temperature overflows no power.
    scaled = (counted / counted.max()) ** (1 / temperature)
    return scaled / scaled.sum()


class Mixture(Dataset):
    """Batches of the texts of several tasks, which are drawn at their rates.

    In each epoch, `size` rows are drawn, each of a task that is chosen at random. Those of a task come in random order,
    and all of them before the first one comes again, also over several epochs. Everything depends on the seed and the
    number of the epoch alone, so that `Resume` continues in the middle of an epoch.

    Args:
        parts: Tokenized texts of each task.
        format: How they become batches.
        rates: Probability of each task, `(N,)`; they are divided by their sum.
        size: Number of rows of an epoch.
        options: Options of `Dataset`, such as `batch_size`; the order is always random.

    Attributes:
        rates: Probability of each task.
        size: Number of rows of an epoch.
    """

    def __init__(
        self, parts: Sequence[Sequence[Row]], format: Format, rates: Sequence[float], size: int, **options: Any
    ) -> None:
        if not options.get("shuffle", True):
            raise InputError(
                "A mixture draws its texts. Expected: shuffle=True. To read each text once, use dataset(…)"
            )
        self.size = check("size", size, integer(1))
        plain = np.asarray(check("rates", tuple(rates), _RATES), np.float64)
        if len(plain) != len(parts):
            raise InputError(f"rates must have a number for each of {len(parts)} tasks. Received: {len(plain)}")
        self.rates = (plain / plain.sum()).tolist()
        self._sizes = [len(part) for part in parts]
        super().__init__([row for part in parts for row in part], format, **options)

    def counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each task in an epoch, int64 `(N,)`."""
        return np.random.default_rng((self.seed, epoch, 1)).multinomial(self.size, self.rates)

    def _order(self, random: np.random.Generator) -> np.ndarray:
        """Returns the indices of the rows of the epoch in their random order."""
        counts = np.stack([self.counts(epoch) for epoch in range(self.epoch + 1)])
        read, now = counts[:-1].sum(axis=0).tolist(), counts[-1].tolist()
        first = np.cumsum([0, *self._sizes[:-1]])
        rows = [first[task] + self._rows_of(task, read[task], now[task]) for task in range(len(first))]
        return random.permutation(np.concatenate(rows))

    def _rows_of(self, task: int, start: int, count: int) -> np.ndarray:
        """Returns a part of the endless sequence of a task's rows, in which each pass has another order."""
        size = self._sizes[task]
        passes = range(start // size, -(-(start + count) // size))
        orders = [np.random.default_rng((self.seed, number, task, 2)).permutation(size) for number in passes]
        return np.concatenate([np.zeros(0, np.int64), *orders])[start - passes.start * size :][:count]


def mixture(
    model: PretrainedModel,
    tasks: Sequence[Sequence[Any]],
    *,
    rates: Sequence[float] | None = None,
    limit: int | None = None,
    temperature: float = 1.0,
    size: int | None = None,
    max_length: int | None = None,
    prefix: str = "",
    pack: bool = False,
    **options: Any,
) -> Mixture:
    """Tokenizes the texts of several tasks, which one model learns together.

        tasks = [text_to_text(copa, "copa"), text_to_text(record, "record"), articles]
        data = kf.training.mixture(model, tasks, limit=65536, temperature=2)

    The tasks of a model from text to text differ in their texts and labels alone, see `evaluation.text_to_text`; other
    models have the same labels in all of them.

    Args:
        model: Model with its tokenizer.
        tasks: Texts with labels of each task, see `dataset`.
        rates: Share of each task; by default that of `mixing_rates` of their numbers of texts.
        limit: See `mixing_rates`.
        temperature: See `mixing_rates`.
        size: Number of texts of an epoch; by default the sum of the numbers that count, up to the limit.
        max_length: See `dataset`.
        prefix: Put before the texts of all tasks of a text2text-generation; by default, they have their own.
        pack: See `dataset`.
        options: Options of `Dataset`, such as `batch_size` and `seed`.

    Raises:
        InputError: there are no tasks, an argument is not accepted or would be ignored, or the labels of a task are of
            another kind than those of the first one.
    """
    if rates is not None and (limit is not None or temperature != 1):
        raise InputError(f"limit and temperature have no effect on rates. Received: {limit=}, {temperature=}, {rates=}")
    if not tasks:
        raise InputError("At least one task was expected. Received: none")
    parts = [dataset(model, list(texts), max_length=max_length, prefix=prefix, pack=pack) for texts in tasks]
    for index, part in enumerate(parts):
        if type(part) is not Dataset or type(part.loss) is not type(parts[0].loss):
            kinds = " and ".join(type(each.loss).__name__ for each in (parts[0], part))
            raise InputError(f"Tasks with the same kind of labels were expected. Received: {kinds} in task {index + 1}")
    counted = [len(part.rows) if limit is None else min(len(part.rows), limit) for part in parts]
    if rates is None:
        rates = mixing_rates([len(part.rows) for part in parts], limit=limit, temperature=temperature).tolist()
    total = sum(counted) if size is None else size
    return Mixture([part.rows for part in parts], parts[0].format, rates, total, **options)
