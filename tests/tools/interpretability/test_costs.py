"""Sizes from configurations alone, compared with `transformers` and with the weights of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from kerasformer import zoo
from kerasformer.errors import InputError, SourceError, UnsupportedConfigError
from kerasformer.tools.interpretability.costs import Costs, costs
from tests.core.export.text_models import ROWS, shared_bundle, shared_model

_T5: dict[str, Any] = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 32128}
PUBLISHED: dict[str, dict[str, Any]] = {
    "BERT base": {"model_type": "bert", "architectures": ["BertModel"]},
    "DistilBERT": {"model_type": "distilbert", "architectures": ["DistilBertModel"]},
    "ALBERT base": {
        "model_type": "albert",
        "architectures": ["AlbertModel"],
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
    },
    "GPT-2 small": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
    "T5 small": _T5,
    "T5 11B": {**_T5, "d_model": 1024, "d_ff": 65536, "num_layers": 24, "num_heads": 128, "d_kv": 128},
    "SmolLM2 135M": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    },
}


def computed(folder: Path, name: str, task: str | None = None) -> Costs:
    (folder / "config.json").write_text(json.dumps(PUBLISHED[name]))
    return costs(folder / "config.json", task)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Both are built without memory for their weights."""
    content = dict(PUBLISHED[name])
    kind = getattr(transformers, content.pop("architectures")[0])
    with torch.device("meta"):
        model = kind(transformers.AutoConfig.for_model(**content))
    assert computed(tmp_path, name).parameters == model.num_parameters()


def test_operations_of_published_models(tmp_path: Path) -> None:
    gpt2 = computed(tmp_path, "GPT-2 small")
    outside = gpt2.parameters - gpt2.embedding_parameters
    assert gpt2.training_flops(tokens=10**9) == 6 * outside * 10**9
    assert (gpt2.macs - 50257 * 768) / outside == pytest.approx(1, abs=0.002)  # biases and norms are not multiplied
    assert gpt2.attention_macs * 1024 / outside == pytest.approx(0.22, abs=0.005)
    assert gpt2.cache_bytes == 73_728
    bert, masked = computed(tmp_path, "BERT base"), computed(tmp_path, "BERT base", "fill-mask")
    assert (bert.parameters, bert.parameters - bert.embedding_parameters) == (109_482_240, 85_646_592)
    assert (round(2 * bert.macs / 1e6), round(2 * masked.macs / 1e6)) == (170, 218)
    assert round(2 * bert.attention_macs * 512 / 1e6, 1) == 18.9


@pytest.mark.parametrize("name", ["gpt2-text-generation", "llama-text-generation", "bart-text2text-generation"])
def test_multiply_adds_are_those_of_all_kernels(name: str) -> None:
    """Every matrix but the tables of embeddings is used once for a token; a tied table also computes the logits."""
    model = shared_model(name)
    found = costs(model)
    matrices = [weight for weight in model.weights if len(weight.shape) == 2]
    kernels = sum(weight.shape[0] * weight.shape[1] for weight in matrices if "kernel" in weight.path)
    logits = model.output_vocab_size * model.config.hidden_dim if model.config.tied else 0
    assert found.macs == kernels + logits
    assert found.parameters == model.count_params()
    assert found.cache_bytes == sum(4 * len(spec.tensors) * spec.num_heads * spec.size for spec in model.cache_specs())


def test_a_shared_layer_is_computed_as_often_as_it_is_applied() -> None:
    settings = {**ROWS["albert-fill-mask"].settings, "num_layers": 1}
    one, three = (zoo.build("albert", "feature-extraction", **{**settings, "num_layers": n}) for n in (1, 3))
    few, many = costs(one), costs(three)
    assert few.parameters == many.parameters
    assert many.attention_macs == 3 * few.attention_macs
    hidden, intermediate = one.config.hidden_dim, one.config.intermediate_dim
    assert many.macs - few.macs == pytest.approx(2 * (4 * hidden**2 + 2 * hidden * intermediate), abs=2)


def test_a_bundle_costs_what_its_model_does() -> None:
    assert costs(shared_bundle("gpt2-text-generation", "onnx")) == costs(shared_model("gpt2-text-generation"))


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("{}", UnsupportedConfigError, "no model_type"),
        ('{"model_type": "bert", "architectures": ["Bert"], "hidden_size": 7}', Exception, "7"),
        ("{", SourceError, "config.json"),
    ],
)
def test_invalid_configurations_raise(tmp_path: Path, content: str, error: type[Exception], message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(error, match=message):
        costs(tmp_path / "config.json")
    with pytest.raises((SourceError, InputError)):
        costs(tmp_path / "nowhere")
