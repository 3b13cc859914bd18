"""The layout of GPT-3 as a configuration of GPT-Neo: the sizes of the page, and scores with a scale."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.tools.testing.comparison import assert_close
from kerasformer.zoo.gpt_neo import GPTNeoConfig

PAGE = (Path(__file__).parents[3] / "docs" / "zoo.md").read_text(encoding="utf-8")
ROWS = re.findall(r"\| ([\w.]+) \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) (million|billion) \|", PAGE)
TINY = {"vocab_size": 53, "hidden_dim": 24, "num_layers": 4, "num_heads": 3, "max_length": 32}


def count(config: GPTNeoConfig) -> int:
    """Returns the number of parameters of the language model."""
    size, inner = config.hidden_dim, config.intermediate_dim
    layer = 4 * size**2 + 2 * size * inner + inner + 6 * size  # matrices, biases, norms
    return (config.vocab_size + config.max_length + 2) * size + config.num_layers * layer


def test_the_count_is_that_of_a_model() -> None:
    model = zoo.build("gpt_neo", **TINY)
    assert model.count_params() == count(model.config)
    assert [layer.attention.spec.window for layer in model.backbone.decoder.layers] == [None, 256, None, 256]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_sizes_of_the_page(row) -> None:
    name, layers, size, heads, parameters, unit = row
    config = GPTNeoConfig.create(num_layers=int(layers), hidden_dim=int(size), num_heads=int(heads))
    assert config.layer_types == ["global", "local"] * (int(layers) // 2)
    assert (config.vocab_size, config.max_length, size) == (50257, 2048, str(int(size) // int(heads) * int(heads)))
    expected = float(parameters) * {"million": 1e6, "billion": 1e9}[unit]
    assert abs(count(config) - expected) < 0.005 * expected, f"{name} has {count(config):,} parameters"
    assert len(ROWS) == 6


def test_scores_with_a_scale_are_those_of_smaller_queries() -> None:
    """A GPT-2 without biases of queries, keys and values, as a GPT-Neo without local layers."""
    gpt2 = zoo.build("gpt2", **TINY)
    neo = zoo.build("gpt_neo", **TINY, attention_types=[[["global"], 4]])
    paths = {variable.path.split("/", 1)[1]: variable for variable in gpt2.weights}
    for variable in neo.weights:
        path = variable.path.split("/", 1)[1]
        variable.assign(paths[path] * (8**-0.5 if path.endswith("query/kernel") else 1.0))
    ids = np.random.default_rng(0).integers(0, 53, (2, 9)).astype("int32")
    expected, received = (keras.ops.convert_to_numpy(model({"input_ids": ids})) for model in (gpt2, neo))
    assert_close({}, received, expected)  # the scaled weights are rounded
