"""Parity with `transformers` from its checkpoints: every architecture, head, kind of padding and optional input."""

from __future__ import annotations

import pytest

from kerasformer.tools.testing import parity
from tests.core.zoo.harness import (
    before_a_release,
    distinct,
    first_of_each,
    first_tasks,
    less_on_jax,
    main_tasks,
    marked,
    of_heads,
    rows,
)

ROWS = rows()
POSITIONS = rows(tasks=("feature-extraction", "fill-mask", "text-generation"))
PADDED = [(row, "right") for row in main_tasks(first_of_each(ROWS))]
PADDED += [(row, "left") for row in less_on_jax(main_tasks(first_of_each(ROWS)))]
PADDED += [(marked(row, pytest.mark.grid), None) for row in less_on_jax(first_tasks(first_of_each(ROWS)))]


@pytest.mark.parametrize("row", less_on_jax(before_a_release(main_tasks(first_of_each(ROWS)))))
def test_the_checkpoint_opens_as_what_it_was_saved_for(loaded, row):
    parity.check_class(loaded(row))


@pytest.mark.parametrize(
    ("row", "side"), [pytest.param(*row.values, side, id=f"{row.id}-{side}", marks=row.marks) for row, side in PADDED]
)
def test_outputs(loaded, row, side):
    parity.check_outputs(loaded(row), side)


@pytest.mark.parametrize(
    "row", less_on_jax(of_heads(before_a_release(first_of_each(first_tasks(ROWS)))), names=("bert",))
)
def test_hidden_states_and_attention(loaded, row):
    parity.check_hidden_states_and_attention(loaded(row))


@pytest.mark.parametrize("row", less_on_jax(of_heads(before_a_release(distinct(first_tasks(ROWS))))))
def test_a_text_is_the_same_alone_and_in_a_padded_batch(loaded, row):
    parity.check_alone_and_in_a_batch(loaded(row))


@pytest.mark.parametrize("row", less_on_jax(of_heads(before_a_release(distinct(first_tasks(ROWS))))))
def test_what_padding_holds_changes_nothing(loaded, row):
    parity.check_padding_is_ignored(loaded(row))


@pytest.mark.parametrize("row", less_on_jax(of_heads(before_a_release(first_of_each(POSITIONS)))))
def test_positions_are_honoured_or_refused(loaded, row):
    parity.check_positions(loaded(row))
