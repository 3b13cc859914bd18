"""LFM2, whose layers keep other states than keys and values: exports, targets, biases, and scales of caches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from kerasformer.export.quantization.cache_scales import measure_cache_scales
from kerasformer.tools.testing import check_architecture
from kerasformer.tools.testing.comparison import assert_close
from kerasformer.zoo import lfm2, load

SETTINGS = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 60,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "norm_eps": 1e-3,
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.1,
    "conv_L_cache": 4,
    "layer_types": ["conv", "full_attention", "conv", "conv"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
pytestmark = pytest.mark.grid


def test_all_tasks_and_exports():
    report = check_architecture(lfm2, SETTINGS)
    assert report.tasks == ("text-generation", "feature-extraction")
    exported = {name: error for name, error in report.errors.items() if name.startswith("export")}
    assert len(exported) == 4 and max(exported.values()) < 0.15
    assert report.support["gpu"] == "exported"
    assert {name for name, answer in report.support.items() if answer == "accepted"} == {"litert-web", "saved-model"}
    for name in ("litert-lm", "genai", "optimum", "transformers.js"):
        assert "passes only keys and values" in report.support[name] and "conv of 3 layers" in report.support[name]


def test_biases_of_convolutions(tmp_path):
    """Without padding: there, the reference adds the biases of the projection to later tokens."""
    config = transformers.Lfm2Config(**SETTINGS, conv_bias=True)
    torch.manual_seed(0)
    reference = transformers.Lfm2ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.normal_(0.1, 0.3)
    reference.save_pretrained(tmp_path)
    model = load(tmp_path)
    ids = np.random.default_rng(0).integers(3, 97, (2, 9)).astype("int32")
    with torch.no_grad():
        expected = reference(torch.tensor(ids).long()).logits.numpy()
    assert_close({}, model({"input_ids": ids}), expected)


def test_only_keys_and_values_have_scales():
    settings = lfm2.Lfm2Config.from_hf({**SETTINGS, "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]})
    model = lfm2.MODELS["text-generation"](settings)
    scales = measure_cache_scales(model, ["a text"] * 8)
    assert scales[0] is None and scales[1].key.shape == (2, 1, 8)
