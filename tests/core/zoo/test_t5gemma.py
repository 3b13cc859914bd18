"""T5Gemma and T5Gemma 2: what two stacks with a configuration each may differ in, and what is read without images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.tools.testing import Case
from kerasformer.zoo.t5gemma import T5GemmaConfig
from kerasformer.zoo.t5gemma2 import T5Gemma2Config
from tests.core.zoo.cases import CASES, T5GEMMA, T5GEMMA2


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def with_part(content: dict[str, Any], stack: str, **entries: Any) -> dict[str, Any]:
    """Returns a configuration with other entries of a stack."""
    part = content[stack]
    inner = {**part, "text_config": {**part["text_config"], **entries}} if "text_config" in part else part | entries
    return {**content, stack: inner}


@pytest.mark.parametrize(("kind", "content"), [(T5GemmaConfig, T5GEMMA), (T5Gemma2Config, T5GEMMA2)])
def test_the_stacks_may_differ_in_some_sizes_alone(kind, content):
    config = kind.from_hf(content)
    assert (config.num_layers, config.num_decoder_layers) == (2, 3)
    assert (config.num_heads, config.decoder_num_heads) == (6, 4)
    assert (config.num_key_value_heads, config.decoder_num_key_value_heads) == (2, 1)
    assert (config.intermediate_dim, config.decoder_intermediate_dim) == (44, 52)
    assert config.part("encoder").num_heads == 6 and config.part("decoder").num_heads == 4
    for name, value in {"hidden_size": 30, "head_dim": 10, "sliding_window": 7, "rope_theta": 2.0}.items():
        key = "rope_parameters" if name == "rope_theta" else name
        with pytest.raises(UnsupportedConfigError, match=f"must have the same {key}. Received: .*{value}"):
            kind.from_hf(with_part(content, "encoder", **{name: value}))
    with pytest.raises(UnsupportedConfigError, match="layer_types must have the type of each of the 2 layers"):
        kind.from_hf(with_part(content, "encoder", layer_types=["full_attention"]))
    with pytest.warns(UserWarning, match="unsupported keys.*mystery_scale"):
        kind.from_hf(with_part(content, "encoder", mystery_scale=2.0))


def test_end_tokens_are_those_of_the_decoder_unless_the_whole_model_has_some():
    assert T5GemmaConfig.from_hf(T5GEMMA).eos_token_id == [1, 2]
    assert T5GemmaConfig.from_hf({**T5GEMMA, "eos_token_id": 7}).eos_token_id == 7


def test_a_window_of_the_query_alone_is_refused():
    content = with_part(with_part(T5GEMMA2, "encoder", sliding_window=1), "decoder", sliding_window=1)
    with pytest.raises(UnsupportedConfigError, match="sliding_window must be at least 2"):
        T5Gemma2Config.from_hf(content)


@pytest.mark.grid
def test_a_classifier_of_both_stacks_is_refused(tmp_path):
    """`transformers` makes one of a configuration with `is_encoder_decoder`; that of the encoder opens."""
    case = case_of("t5gemma")
    both = replace(case, settings={**case.settings, "is_encoder_decoder": True})
    both.reference("text-classification").save_pretrained(tmp_path / "both")
    with pytest.raises(UnsupportedConfigError, match="has the encoder alone. Expected: is_encoder_decoder=false"):
        zoo.load(tmp_path / "both", "text-classification")
    case.reference("text-classification").save_pretrained(tmp_path / "encoder")
    assert not zoo.load(tmp_path / "encoder").config.both_stacks


@pytest.mark.grid
def test_settings_of_images_are_kept_and_their_tensors_left_out(tmp_path):
    case = case_of("t5gemma2")
    case.reference("text2text-generation").save_pretrained(tmp_path / "theirs")
    model = zoo.load(tmp_path / "theirs")
    assert model.config.images["mm_tokens_per_image"] == 1
    model.save_pretrained(tmp_path / "ours")
    theirs, ours = (
        set(safetensors.numpy.load_file(tmp_path / name / "model.safetensors")) for name in ("theirs", "ours")
    )
    assert ours < theirs and all("vision" in name or "multi_modal" in name or "eoi" in name for name in theirs - ours)
    assert zoo.load(tmp_path / "ours").config == model.config


@pytest.mark.grid
def test_an_encoder_is_read_from_the_whole_model(tmp_path):
    case = case_of("t5gemma2")
    case.reference("text2text-generation").save_pretrained(tmp_path)
    encoder, model = zoo.load(tmp_path, "feature-extraction"), zoo.load(tmp_path)
    ids = np.array([[5, 9, 23, 7], [8, 4, 0, 0]], "int32")
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], "int32")
    states = encoder({"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(np.asarray(states), np.asarray(model.encode(ids, mask)), atol=1e-6)
    assert not any("decoder" in variable.path for variable in encoder.trainable_variables)
