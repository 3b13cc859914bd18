"""Rotary settings of config.json: formats of all versions of `transformers`, and unsupported settings."""

from __future__ import annotations

import pytest
import transformers

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.config import ConfigWarning
from kerasformer.zoo.llama import LlamaConfig

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"rope_theta": 500.0},
        {"rope_theta": 500.0, "rope_scaling": None},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 500.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 9}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **LLAMA3}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.8, "mscale_all_dim": 0.5}},
        {"max_position_embeddings": 40, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        {"rope_theta": 500.0, "rope_parameters": {"rope_type": "linear", "rope_theta": 7.0, "factor": 2.0}},
    ],
)
def test_every_form_means_what_transformers_takes_it_for(content) -> None:
    ours = LlamaConfig.from_hf(content)
    reference = transformers.LlamaConfig(**content)
    theirs = LlamaConfig.from_hf(reference.to_dict())
    assert ours.rotary == theirs.rotary
    expected = {name: value for name, value in reference.rope_parameters.items() if name != "type"}  # the older name
    assert transformers.LlamaConfig(**ours.to_hf()).rope_parameters == expected


def test_dynamic_scaling_reaches_beyond_the_positions_of_the_pretraining() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0}
    model = zoo.build(
        "llama", vocab_size=20, hidden_dim=24, num_heads=3, num_layers=1, intermediate_dim=8, max_length=16, rope=rope
    )
    assert model.max_length == 48


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "mrope"}, "rope_type='mrope' cannot be used. Unsupported rotary scaling.*Received: 'mrope'"),
        ({"rope_type": "linear", "factor": "2"}, "factor in rope_parameters must be a number. Received: '2'"),
        ({"rope_type": "linear", "factor": 0.0}, "factor of a rotary scaling must be positive"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "short_factors.*must be 64 positive"),
        (
            {"rope_type": "default", "partial_rotary_factor": 0.5},
            "supports only partial_rotary_factor=1.0. Received: 0.5",
        ),
        ("llama3", "rope_parameters"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(rope, message) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        LlamaConfig.from_hf({"rope_parameters": rope})


def test_an_unknown_key_is_named() -> None:
    with pytest.warns(ConfigWarning, match="rope_parameters has unsupported keys.*mrope_section"):
        LlamaConfig.from_hf({"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}})
