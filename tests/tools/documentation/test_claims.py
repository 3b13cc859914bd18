"""Sizes from configurations alone, compared with transformers, and the page that lists them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from benchmarks import claims
from kerasformer import zoo
from kerasformer.errors import InputError, SourceError, UnsupportedConfigError
from kerasformer.models.costs import costs
from tests.code_blocks import blocks
from tests.core.export.text_models import ROWS, shared_bundle, shared_model

FIRST = ("BERT base", "DistilBERT", "ALBERT base", "GPT-2 small", "T5 small", "T5 11B", "SmolLM2 135M")


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.release) for name in claims.MODELS]
)
def test_parameters_equal_those_of_transformers(name: str) -> None:
    """Both are built without memory for their weights."""
    content = dict(claims.MODELS[name].config)
    kind = getattr(transformers, content.pop("architectures")[0])
    with torch.device("meta"):
        model = kind(transformers.AutoConfig.for_model(**content))
    assert claims.computed(name).parameters == model.num_parameters()


def test_the_page_is_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert claims.page() == claims.PAGE.read_text(encoding="utf-8"), f"run: {claims.COMMAND}"
    monkeypatch.chdir(tmp_path)
    for block in blocks(claims.PAGE, "python"):
        exec(compile(block, str(claims.PAGE), "exec"), {})


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
