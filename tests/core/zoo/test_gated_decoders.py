"""Mistral, Qwen and SmolLM3: windows and rotary positions by layer, texts beyond the original length, bad settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transformers

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import Loaded, assert_same_outputs, run, run_reference
from tests.core.zoo.cases import LLAMA
from tests.grids import grid

FULL, SLIDING = "full_attention", "sliding_attention"
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
    },
    "longrope": {
        "factor": 4.0, "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2],
        "long_factor": [1.5, 2.0, 4.0],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "kind"),
    grid(["mistral", "qwen2", "qwen3", "smollm3"], SCALINGS, always=lambda model_type, _: model_type == "mistral"),
)
def test_texts_beyond_the_original_length(model_type: str, kind: str, tmp_path: Any) -> None:
    """40 tokens; the original length is 16, and windows have 4 tokens."""
    rope = {"rope_type": kind, "rope_theta": 300.0, **SCALINGS[kind]}
    window = {} if model_type == "mistral" else {"use_sliding_window": True, "layer_types": [FULL, SLIDING]}
    length = 16 if kind == "dynamic" else 64
    settings = {
        **LLAMA, **window, "sliding_window": 4, "head_dim": 6, "num_hidden_layers": 2, "rope_parameters": rope,
        "max_position_embeddings": length,
    }  # fmt: skip
    case = Case(f"{model_type}-{kind}", model_type, settings)
    reference = case.reference("feature-extraction")
    reference.save_pretrained(tmp_path)
    it = Loaded(case, "feature-extraction", tmp_path, reference, zoo.load(tmp_path))
    assert it.model.max_length == 64
    inputs = {"input_ids": np.random.default_rng(2).integers(3, 97, (2, 40)).astype("int32")}
    assert_same_outputs(inputs, run(it, inputs), run_reference(reference, inputs))


def config_type(model_type: str) -> Any:
    return next(iter(zoo.architecture(model_type).MODELS.values())).backbone_type.config_type


@pytest.mark.parametrize(
    ("model_type", "content"),
    [
        ("mistral", {}),
        ("mistral", {"sliding_window": None}),
        ("qwen2", {}),
        ("qwen2", {"use_sliding_window": True, "num_hidden_layers": 6, "max_window_layers": 4}),
        ("qwen3", {"use_sliding_window": True, "sliding_window": None}),
        ("smollm3", {}),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 9, "num_hidden_layers": 5}),
        ("smollm3", {"no_rope_layers": [0, 1, 1, 1], "num_hidden_layers": 3, "rope_theta": 7.0}),
    ],
)
def test_settings_of_layers_are_those_of_transformers(model_type: str, content: dict[str, Any]) -> None:
    ours = config_type(model_type).from_hf(content).to_hf()
    theirs = transformers.AutoConfig.for_model(model_type, **content).to_dict()
    names = ("layer_types", "sliding_window", "no_rope_layers", "rope_parameters")
    assert {name: ours.get(name) for name in names} == {name: theirs.get(name) for name in names}


@pytest.mark.parametrize(
    ("model_type", "content", "message"),
    [
        ("qwen2", {"num_hidden_layers": 2, "layer_types": [FULL]}, "type of each of the 2 layers"),
        ("qwen2", {"num_hidden_layers": 1, "layer_types": ["linear_attention"]}, "full_attention, sliding_attention"),
        ("qwen2", {"use_mrope": True}, "supports only use_mrope=False or None. Received: use_mrope=True"),
        (
            "qwen3",
            {"num_hidden_layers": 1, "layer_types": [SLIDING]},
            "requires use_sliding_window and sliding_window. Received: use_sliding_window=False",
        ),
        ("smollm3", {"num_hidden_layers": 3, "no_rope_layers": [1, 0]}, "number for each of the 3 layers"),
    ],
)
def test_unsupported_settings(model_type: str, content: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        config_type(model_type).from_hf(content)
