"""Texts of encoders that are longer than those of `test_parity.py`: far distances, several blocks of a window."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.tools.testing.comparison import assert_close, assert_same_outputs, ragged, run, run_reference
from tests.core.zoo.cases import CASES
from tests.core.zoo.harness import marked, rows

pytestmark = pytest.mark.grid

LENGTHS = {
    "big_bird": (61, 40, 33),
    "big_bird-odd": (41, 21, 30),
    "bigbird_pegasus": (61, 40, 33),
    "bigbird_pegasus-odd": (41, 21, 30),
    "led": (41, 30, 22),
    "mpnet-relu": (201, 140, 33),
    "modernbert": (37, 21, 30),
    "modernbert-biased": (37, 21, 30),
}
ROWS = [
    row
    for row in rows([case for case in CASES if case.name in LENGTHS], on_jax=False)
    if row.values[0][0].model_type not in ("bigbird_pegasus", "led") or row.values[0][1] == "feature-extraction"
]


# Heads read the states, whose padding the first head of each configuration shows on both sides.
SIDES = [(row, "right") for row in ROWS] + [
    (row if row.values[0][1] == row.values[0][0].tasks[0] else marked(row, pytest.mark.release), "left") for row in ROWS
]


@pytest.mark.parametrize(
    ("row", "side"), [pytest.param(*row.values, side, id=f"{row.id}-{side}", marks=row.marks) for row, side in SIDES]
)
def test_outputs(loaded, row, side):
    it = loaded(row)
    if (it.case.name, it.task, side) == ("modernbert", "text-classification", "left"):
        pytest.skip("the first token is padding, far from any token in its window")
    random, mask = np.random.default_rng(3), ragged(LENGTHS[it.case.name], side)
    ids = random.integers(3, it.model.config.vocab_size, mask.shape).astype("int32")
    inputs = {"input_ids": np.where(mask > 0, ids, it.model.config.pad_token_id), "attention_mask": mask}
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))
    if it.task == "text-classification":
        return
    # The dense form of all layers, which returns the weights.
    dense = it.model.named(it.model(inputs, return_attention=True)["output"])
    for name, value in run(it, inputs).items():
        assert_close(inputs, dense[name], value, name)
