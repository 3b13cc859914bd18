"""Qwen3.5, whose layers have recurrent states: exports, targets, its multimodal files, and what needs a rewind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from kerasformer.engines import can_rewind
from kerasformer.errors import ExportError, GenerationError, InputError, UnsupportedConfigError
from kerasformer.generation.prefix_cache import PrefixCache
from kerasformer.models import KerasStep
from kerasformer.tools.testing import check_architecture
from kerasformer.tools.testing.comparison import assert_close
from kerasformer.zoo import load, qwen3_5_text
from tests.core.export import onnx_bundles
from tests.core.zoo.cases import QWEN35


@pytest.fixture(scope="module")
def model():
    return onnx_bundles.tiny("qwen3_5_text", max_length=64)


@pytest.mark.grid
def test_all_tasks_and_exports():
    report = check_architecture(qwen3_5_text, QWEN35, derived=frozenset({"full_attention_interval"}))
    assert report.tasks == ("text-generation", "feature-extraction", "text-classification")
    exported = {name: error for name, error in report.errors.items() if name.startswith("export")}
    assert len(exported) == 4 and max(exported.values()) < 0.15
    assert report.support["gpu"] == "exported"
    assert {name for name, answer in report.support.items() if answer == "accepted"} == {"saved-model"}
    assert "has no recurrent states" in report.support["litert-web"]
    for name in ("litert-lm", "genai", "optimum", "transformers.js"):
        assert "passes only keys and values" in report.support[name]
        assert "conv, recurrent of 3 layers" in report.support[name]


@pytest.mark.parametrize("tied", [True, False])
def test_the_text_part_of_a_model_for_images(tied, tmp_path):
    """Its file has the tensors of all parts; the text part has another prefix there."""
    vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 36}
    text = {**QWEN35, "model_type": "qwen3_5_text"}
    config = transformers.Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=tied)
    torch.manual_seed(0)
    reference = transformers.Qwen3_5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.normal_(0, 0.3)
    reference.save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.config.model_type == "qwen3_5_text" and model.config.tied is tied
    ids = np.random.default_rng(0).integers(3, 97, (2, 9)).astype("int32")
    with torch.no_grad():
        expected = reference(torch.tensor(ids).long()).logits.numpy()
    assert_close({}, model({"input_ids": ids}), expected)


def test_experts_and_other_gates_are_refused():
    with pytest.raises(UnsupportedConfigError, match="Received: 'qwen3_5_moe'"):
        load_config({"model_type": "qwen3_5_moe"})
    with pytest.raises(UnsupportedConfigError, match="attn_output_gate=True. Received: attn_output_gate=False"):
        qwen3_5_text.Qwen35TextConfig.from_hf({**QWEN35, "attn_output_gate": False})
    with pytest.raises(InputError, match="num_key_heads must divide num_heads"):
        onnx_bundles.tiny("qwen3_5_text", num_key_heads=3)


def load_config(content):
    from kerasformer import zoo

    return zoo.architecture(content["model_type"])


def test_guesses_are_refused(model):
    ids = np.array([[5, 6, 7]], "int32")
    with pytest.raises(GenerationError, match="a model with a recurrent state cannot"):
        model.generate(ids, prompt_lookup_num_tokens=3, max_new_tokens=2)
    other = onnx_bundles.tiny("llama")
    with pytest.raises(GenerationError, match="a model with a recurrent state cannot"):
        other.generate(ids, assistant=model, max_new_tokens=2)
    with pytest.raises((InputError, ExportError), match="verify_lengths=\\(4,\\). Remove verify_lengths"):
        from kerasformer.export.formats.tflite.signatures import DecoderSignatures, tflite_functions

        tflite_functions(model, 32, None, (32,), DecoderSignatures(verify_lengths=(4,)))


def test_a_conversation_that_goes_back_is_read_again(model):
    step = KerasStep(model, 40, jit_compile=False)
    assert not can_rewind(step)
    cache, random = PrefixCache(), np.random.default_rng(0)
    text = random.integers(2, 61, (1, 16)).astype("int32")
    other = np.concatenate([text[:, :9], random.integers(2, 61, (1, 5))], axis=1).astype("int32")
    longer = np.concatenate([text, random.integers(2, 61, (1, 4))], axis=1).astype("int32")
    # A longer text continues the first one; one that differs within it is read from its start.
    for ids, reused in ((text, 0), (longer, 16), (other, 0)):
        expected, _ = step.step(ids[:, -1:], step.start(ids, np.ones_like(ids)))
        with cache.reused_by(step) as engine:
            received, _ = engine.step(ids[:, -1:], engine.start(ids, np.ones_like(ids)))
        assert cache.reused == reused
        assert_close({}, received, expected)
