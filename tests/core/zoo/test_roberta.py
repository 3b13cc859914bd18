"""RoBERTa, in addition to the cases of all architectures: positions and lengths."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import CapacityError, UnsupportedConfigError
from kerasformer.tools.testing.comparison import assert_same_outputs, make_inputs, run, run_reference
from tests.core.zoo.cases import CASES

BY_NAME = {case.name: case for case in CASES}
SIZES = {"vocab_size": 61, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "intermediate_dim": 20}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["roberta", "roberta-odd"])
def test_positions_skip_padding_on_either_side(loaded, name, side):
    it = loaded((BY_NAME[name], "feature-extraction"))
    inputs = {key: value for key, value in make_inputs(it, side).items() if key != "position_ids"}
    inputs["input_ids"] = np.where(inputs["attention_mask"] > 0, inputs["input_ids"], it.model.config.pad_token_id)
    inputs["input_ids"][0, 4] = it.model.config.pad_token_id  # within a text
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))


def test_the_longest_text(loaded):
    it = loaded((BY_NAME["roberta"], "fill-mask"))
    length = it.model.max_length
    assert length == 43 - 2
    ids = np.random.default_rng(0).integers(3, 97, (2, length)).astype("int32")
    assert_same_outputs({}, run(it, {"input_ids": ids}), run_reference(it.reference, {"input_ids": ids}))
    with pytest.raises(CapacityError, match="41"):
        it.model({"input_ids": np.concatenate([ids, ids[:, :1]], axis=1)})


def test_a_table_without_positions_for_texts():
    assert zoo.build("roberta", num_positions=3, **SIZES).max_length == 1
    with pytest.raises(UnsupportedConfigError, match=r"max_position_embeddings=7, pad_token_id=6"):
        zoo.build("roberta", num_positions=7, pad_token_id=6, **SIZES)
