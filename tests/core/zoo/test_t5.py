"""T5, in addition to the cases of all architectures: distances, scaled, tied and separate outputs, caches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.layers import (
    RelativeAttention,
    RelativePositionBias,
    Visibility,
)
from kerasformer.tools.testing.comparison import TOLERANCE, ragged
from kerasformer.zoo.t5 import T5Config
from tests.core.zoo.cases import T5

SETTINGS = {**T5, "num_layers": 3, "num_decoder_layers": 2}
Save = Callable[..., tuple[Path, Any]]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Saves a tiny model of `transformers`; `output=True` for a separate output projection."""

    def saved(output: bool = False, **settings: Any) -> tuple[Path, Any]:
        torch.manual_seed(0)
        config = transformers.T5Config(**{**SETTINGS, **settings})
        model = transformers.T5ForConditionalGeneration(config).eval()
        if output:
            model.lm_head.weight = torch.nn.Parameter(torch.randn(config.vocab_size, config.d_model))
        model.save_pretrained(tmp_path / "saved")
        return tmp_path / "saved", model

    return saved


def make_inputs() -> dict[str, np.ndarray]:
    """Returns ragged inputs of both stacks; the texts exceed the largest distance with a separate bucket."""
    random = np.random.default_rng(0)
    mask, theirs = ragged((30, 17, 21), "right"), ragged((3, 16, 14), "right")
    return {
        "input_ids": random.integers(3, 97, mask.shape).astype("int32"),
        "attention_mask": mask,
        "decoder_input_ids": random.integers(3, 97, theirs.shape).astype("int32"),
        "decoder_attention_mask": theirs,
    }


def reference_logits(model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        return model(**{name: torch.tensor(value).long() for name, value in inputs.items()}).logits.numpy()


def error(actual: Any, expected: np.ndarray, mask: np.ndarray) -> float:
    """Returns the largest difference at real tokens, relative to the largest magnitude."""
    difference = np.abs(keras.ops.convert_to_numpy(actual) - expected)[mask > 0]
    return float(difference.max() / np.abs(expected[mask > 0]).max())


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"tie_word_embeddings": None},
        {"tie_word_embeddings": False},
        {"scale_decoder_outputs": False},
        {"feed_forward_proj": "gated-gelu"},
        {"dense_act_fn": "gelu_new"},
        {"is_gated_act": True},
        {"num_layers": 5, "num_decoder_layers": 2},
    ],
)
def test_config_means_what_transformers_takes_it_for(content: dict[str, Any]) -> None:
    ours, theirs = T5Config.from_hf(content), transformers.T5Config(**content)
    assert ours.scale_output == theirs.scale_decoder_outputs
    assert (ours.hidden_act, ours.gated) == (theirs.dense_act_fn, theirs.is_gated_act)
    assert (ours.num_layers, ours.num_decoder_layers) == (theirs.num_layers, theirs.num_decoder_layers)


@pytest.mark.parametrize(
    ("settings", "output"),
    [
        ({}, False),
        ({}, True),
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}, True),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, True),
        ({"feed_forward_proj": "gated-silu", "num_decoder_layers": 4}, False),
    ],
)
@pytest.mark.grid
def test_variants_give_the_logits_of_transformers(save: Save, settings: dict, output: bool, tmp_path: Path) -> None:
    folder, reference = save(output, **settings)
    model, inputs = zoo.load(folder), make_inputs()
    mask, expected = inputs["decoder_attention_mask"], reference_logits(reference, inputs)
    assert model.head.tied != output
    assert error(model(inputs), expected, mask) < TOLERANCE
    model.save_pretrained(tmp_path / "again")
    again = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "again").eval()
    assert error(reference_logits(again, inputs), expected, mask) == 0.0
    assert error(zoo.load(tmp_path / "again")(inputs), expected, mask) < TOLERANCE


@pytest.mark.parametrize("kind", ["MT5", "UMT5"])
def test_a_separate_output_of_the_multilingual_models_has_no_scale(kind: str, tmp_path: Path) -> None:
    """The expected logits are those of the hidden states: `transformers` 5.23 scaled those of every UMT5."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SETTINGS)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    model.lm_head.weight = torch.nn.Parameter(torch.randn(config.vocab_size, config.d_model))
    model.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content.pop("scale_decoder_outputs", None)  # as in published checkpoints, which are older than it
    (tmp_path / "config.json").write_text(json.dumps({**content, "tie_word_embeddings": False}))
    inputs = make_inputs()
    with torch.no_grad():
        outputs = model(
            **{name: torch.tensor(array).long() for name, array in inputs.items()}, output_hidden_states=True
        )
        expected = model.lm_head(outputs.decoder_hidden_states[-1]).numpy()
    ours = zoo.load(tmp_path)
    assert not ours.head.tied
    assert error(ours(inputs), expected, inputs["decoder_attention_mask"]) < TOLERANCE


def test_an_equal_copy_of_the_table_is_the_table(save: Save) -> None:
    folder, _ = save()
    tensors = load_file(folder / "model.safetensors")
    tensors |= {name: tensors["shared.weight"].copy() for name in ("lm_head.weight", "encoder.embed_tokens.weight")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert zoo.load(folder).head.tied


def test_features_are_the_encoders_and_leave_the_decoder_over(save: Save) -> None:
    folder, reference = save()
    inputs = {name: value for name, value in make_inputs().items() if not name.startswith("decoder")}
    with torch.no_grad():
        theirs = reference.encoder(**{name: torch.tensor(value).long() for name, value in inputs.items()})
    model = zoo.load(folder, "feature-extraction")
    assert error(model(inputs), theirs.last_hidden_state.numpy(), inputs["attention_mask"]) < TOLERANCE
    assert not any("decoder" in variable.path for variable in model.variables)


def test_task_prefixes_and_start_token(save: Save) -> None:
    prefixes = {"summarization": "summarize: ", "translation_en_to_de": "translate English to German: "}
    specific = {task: {"prefix": prefix, "num_beams": 4} for task, prefix in prefixes.items()}
    folder, _ = save(task_specific_params=specific)
    info = zoo.load(folder, "summarization").info()
    assert info.task_prefixes == prefixes
    assert (info.decoder_start_token_id, info.eos_token_id, info.pad_token_id) == (0, (1,), 0)
    assert info.is_encoder_decoder and info.max_length is None


def test_attention_with_its_own_bias_requires_slots() -> None:
    bias = RelativePositionBias(8, 12, 2, bidirectional=True)
    layer = RelativeAttention(2, 8, bias, scale=1.0)
    x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    with pytest.raises(InputError, match="requires the slots of queries and keys.*query_slots=None"):
        layer(x)
    expected = layer(x, visibility=Visibility.of_text(5))
    again = RelativeAttention.from_config(layer.get_config())
    again.build(x.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(x, visibility=Visibility.of_text(5)), expected)
    bias.embeddings.assign(bias.embeddings + np.arange(16, dtype="float32").reshape(8, 2))
    assert np.abs(np.asarray(layer(x, visibility=Visibility.of_text(5)) - expected)).max() > 0.01


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_new_weights_are_as_large_as_those_of_transformers(factor: float) -> None:
    sizes = {"d_model": 96, "d_kv": 16, "d_ff": 160, "num_layers": 1, "num_heads": 8, "initializer_factor": factor}
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, vocab_size=300)).state_dict()
    ours = zoo.build(
        "t5", hidden_dim=96, head_dim=16, intermediate_dim=160, num_layers=1, num_heads=8, vocab_size=300,
        initializer_factor=factor,
    )  # fmt: skip
    values = {row.tensor: ours_value(ours, row.variables[0]) for row in ours.rows()}
    kernels = [name for name, value in values.items() if value.size > 1000]
    assert len(kernels) == 1 + 2 * 6 + 4
    for name in kernels:
        assert values[name].std() == pytest.approx(theirs[name].numpy().std(), rel=0.1), name


def ours_value(model: Any, path: str) -> np.ndarray:
    """Returns the variable with a path below the model."""
    (variable,) = (v for v in model.variables if v.path.split("/", 1)[1] == path)
    return keras.ops.convert_to_numpy(variable.value)
