"""Rotary settings of config.json: formats of all versions of `transformers`, and unsupported settings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import transformers

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.config import ConfigWarning
from kerasformer.zoo.gemma3_text import Gemma3TextConfig
from kerasformer.zoo.gpt_neox import GPTNeoXConfig
from kerasformer.zoo.llama import LlamaConfig
from kerasformer.zoo.modernbert import ModernBertConfig
from kerasformer.zoo.phi import PhiConfig

PARTIAL = {"gpt_neox": GPTNeoXConfig, "phi": PhiConfig}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    "content",
    [
        {},
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


@pytest.mark.parametrize("more", [{}, {"original_max_position_embeddings": 8}], ids=str)
def test_dynamic_scaling_reaches_beyond_the_positions_of_the_pretraining(more) -> None:
    """From `max_position_embeddings` on, as in `transformers`, also if a file gives another length."""
    rope = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0, **more}
    model = zoo.build(
        "llama", vocab_size=20, hidden_dim=24, num_heads=3, num_layers=1, intermediate_dim=8, max_length=16, rope=rope
    )
    assert model.max_length == 48


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("gpt_neox", {}),
        ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 500}),
        ("gpt_neox", {"rotary_pct": 1.0, "rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("gpt_neox", {"rotary_pct": 0.5, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
        # transformers 4 writes both keys.
        ("gpt_neox", dict.fromkeys(("rotary_pct", "partial_rotary_factor"), 0.5)),
        ("phi", {}),
        ("phi", {"partial_rotary_factor": 0.75, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        ("phi", {"rope_parameters": {"rope_theta": 7.0, "partial_rotary_factor": 0.25}}),
    ],
)
def test_the_share_that_is_rotated_is_that_of_transformers(kind, content) -> None:
    ours = PARTIAL[kind].from_hf(content)
    reference = transformers.AutoConfig.for_model(kind, **copy.deepcopy(content))
    assert ours.rotary == PARTIAL[kind].from_hf(reference.to_dict()).rotary
    expected = {name: value for name, value in reference.rope_parameters.items() if name != "type"}  # the older name
    assert transformers.AutoConfig.for_model(**ours.to_hf()).rope_parameters == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"rotary_pct": 0.5, "partial_rotary_factor": 0.25}, "rotary_pct and partial_rotary_factor must be equal"),
        ({"rotary_emb_base": 500, "rope_theta": 10000}, "rotary_emb_base and rope_theta must be equal"),
        ({"rotary_pct": 0.02}, "positive, even dim. Received: dim=1"),
    ],
)
def test_contradictory_shares_and_unknown_scalings_are_refused(content, message) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        GPTNeoXConfig.from_hf(content)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "mrope"}, "rope_type='mrope' cannot be used. Unsupported rotary scaling.*Received: 'mrope'"),
        (
            {"rope_type": "linear", "factor": "2"},
            "factor in rope_parameters must be a finite number, or None. Received: '2'",
        ),
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
    with pytest.warns(ConfigWarning, match="rope_parameters has unsupported keys.*beta_medium"):
        LlamaConfig.from_hf({"rope_parameters": {"rope_type": "default", "beta_medium": 4}})


BY_LAYER: list[tuple[Any, Any, dict[str, Any]]] = [
    *(
        (ModernBertConfig, transformers.ModernBertConfig, content)
        for content in (
            {},
            {"local_rope_theta": 70.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"global_rope_theta": 500.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 9.0}},
            {"rope_parameters": {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}},
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "rope_theta": 7.0, "factor": 2.0}}},
            {"num_hidden_layers": 4, "global_attn_every_n_layers": 2},
            {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
        )
    ),
    *(
        (Gemma3TextConfig, transformers.Gemma3TextConfig, content)
        for content in (
            {"rope_theta": 500.0, "rope_local_base_freq": 70.0},
            {"rope_theta": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5.0}}},
            {"num_hidden_layers": 4, "sliding_window_pattern": 2},
        )
    ),
]


@pytest.mark.parametrize(("kind", "their_kind", "content"), BY_LAYER, ids=str)
def test_layers_of_different_types_have_the_positions_of_transformers(kind, their_kind, content) -> None:
    ours, reference = kind.from_hf(content), their_kind(**copy.deepcopy(content))
    theirs = kind.from_hf(reference.to_dict())
    assert ours.layer_types == reference.layer_types
    assert [ours.rotary(name) for name in ours.bases] == [theirs.rotary(name) for name in ours.bases]
    again = their_kind(**ours.to_hf())
    assert again.rope_parameters == {
        name: {key: value for key, value in rope.items() if key != "type"}
        for name, rope in reference.rope_parameters.items()
    }


def test_files_for_older_programs_have_both_bases() -> None:
    """transformers 4 reads them and ignores `rope_parameters`; null meant the base of the other layers."""
    older = ModernBertConfig.from_hf({"global_rope_theta": 500.0, "local_rope_theta": None})
    assert [older.rotary(kind).base for kind in older.bases] == [500.0, 500.0]
    content = ModernBertConfig.from_hf({"global_rope_theta": 500.0}).to_hf()
    assert (content["global_rope_theta"], content["local_rope_theta"]) == (500.0, 10000.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"layer_types": ["full_attention"]},
            "type of each of the 22 layers, one of full_attention, sliding_attention",
        ),
        ({"rope_scaling": "linear"}, "rope_scaling a dictionary. Received: {} and 'linear'"),
        ({"rope_parameters": {"chunked_attention": {}}}, "one entry for each of full_attention, sliding_attention"),
        (
            {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
            "modernbert supports only partial_rotary_factor=1.0. Received: 0.5",
        ),
    ],
    ids=str,
)
def test_unsupported_types_of_layers(content, message) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        ModernBertConfig.from_hf(content)


def test_scaling_of_global_layers_extends_the_maximum_length() -> None:
    rope = {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}
    assert ModernBertConfig.from_hf({"max_position_embeddings": 40, "rope_parameters": rope}).longest_text == 64
