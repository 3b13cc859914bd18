"""The backends `litert` and `kerasformer` of `transformers.exporters`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.exporters import AutoHfExporter, ExportedModel

import kerasformer.tools.integrations.transformers_exporters  # noqa: F401 -- registers the backends
from kerasformer.errors import InputError
from kerasformer.files.sources import resolve

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}


@pytest.fixture(scope="module")
def classifier() -> tuple[Any, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(resolve("sentiment-bert"))
    config = transformers.BertConfig(vocab_size=len(tokenizer), num_labels=3, **SIZES)
    return transformers.BertForSequenceClassification(config).eval(), tokenizer


@pytest.mark.parametrize("name", ["litert", "kerasformer"])
def test_a_classifier_answers_as_before(classifier: tuple[Any, Any], name: str, tmp_path: Any) -> None:
    model, tokenizer = classifier
    inputs = tokenizer(["A fine film.", "Dull, from its first minute to its last."], padding=True, return_tensors="pt")
    exporter = AutoHfExporter.from_config({"export_format": name})
    config = {"tokenizer": tokenizer, "options": {"lengths": [16]} if name == "litert" else {}}
    exported = exporter.export(model, inputs, config)
    with torch.no_grad():
        expected = model(**inputs).logits
    torch.testing.assert_close(exported(**inputs).logits, expected, atol=1e-5, rtol=0)
    assert exported.program.fidelity["agreement"] == 1.0
    assert exported.program.pipeline()("A fine film.")[0]["label"].startswith("LABEL_")
    exported.save_pretrained(tmp_path)
    again = ExportedModel.from_pretrained(tmp_path)
    assert torch.equal(again(**inputs).logits, exported(**inputs).logits)
    assert "tokenizer" not in (tmp_path / "export.json").read_text()
    with pytest.raises(InputError, match="runs on the CPU here. Received: device='cuda'"):
        exported.to("cuda")


def test_a_decoder_becomes_a_pipeline() -> None:
    folder = resolve("story-gpt2")
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("The old man", return_tensors="pt")
    exporter = AutoHfExporter.from_config({"export_format": "kerasformer"})
    exported = exporter.export_for_generation(model, inputs, {"tokenizer": tokenizer, "options": {"capacity": 32}})
    expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0]
    (written,) = exported.program.pipeline()("The old man", max_new_tokens=8, do_sample=False)
    assert written["generated_text"] == tokenizer.decode(expected)
    with pytest.raises(InputError, match="exported.program.pipeline"):
        exported(**inputs)
