"""Models that generate are judged by the divergence of their next tokens, on texts that they are used with."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle import Fidelity, Limits, Manifest, Rounding
from kerasformer.bundle.recipes import RECIPES, fallbacks
from kerasformer.engines.fidelity import verification
from kerasformer.errors import ExportMismatchError
from kerasformer.export.references import record
from kerasformer.pipelines import examples
from tests.core.cli.test_cli import main
from tests.core.export.text_models import ROWS
from tests.core.tokenization.chat_templates.conversations import TEMPLATES

pytestmark = pytest.mark.grid

CAPACITY = 200
READS_NORMS = ("query/kernel", "key/kernel", "value/kernel", "gate/kernel", "up/kernel", "head/kernel")


@pytest.fixture(scope="module")
def chat_model() -> Any:
    """Returns a decoder with a chat template and an enormous channel in the output of each norm, which no product uses.

    Rounded to eight bits with one scale for each token, all other channels of the norm's output become zero.
    """
    row = ROWS["llama-text-generation"]
    model = dataclasses.replace(row, settings={**row.settings, "max_length": 400}).model()
    model.tokenizer.chat_template = TEMPLATES["chatml"]
    for variable in model.variables:
        value = np.array(keras.ops.convert_to_numpy(variable.value))
        if variable.path.endswith("norm/scale"):
            value[0] *= 1000
        elif variable.path.endswith(READS_NORMS):
            value[0] = 0
        variable.assign(value * 10 if variable.path.endswith("head/kernel") else value)
    return model


# Texts.


def test_a_model_with_a_chat_template_answers_conversations(chat_model):
    references = record(chat_model, Manifest("onnx", chat_model.info(), {}, capacity=CAPACITY), None)
    ids, mask = references["input.input_ids"], references["input.attention_mask"]
    start = chat_model.tokenizer.encode("<|im_start|>user\n", add_special_tokens=False)
    answer = chat_model.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    prompts = [row[used > 0].tolist() for row, used in zip(ids, mask, strict=True)]
    assert len(prompts) == 20 and references["chats"] == 1
    # Earlier turns are left out of conversations that do not fit.
    assert max(map(len, prompts)) <= CAPACITY - references["tokens"].shape[1]
    assert all(row[: len(start)] == start and row[-len(answer) :] == answer for row in prompts)
    longer = record(chat_model, Manifest("onnx", chat_model.info(), {}, capacity=400), None)
    turns = [
        chat_model.tokenizer.decode(row[used > 0]).count("<|im_start|>user")
        for row, used in zip(longer["input.input_ids"], longer["input.attention_mask"], strict=True)
    ]
    assert min(turns) == 1 and max(turns) == 3
    assert all(chat_model.tokenizer.decode(row).startswith("<|im_start|>") for row in longer["reading.input_ids"][:8])


def test_a_template_for_other_roles_and_given_texts_are_read_as_texts(chat_model, monkeypatch):
    manifest = Manifest("onnx", chat_model.info(), {}, capacity=CAPACITY)
    given = record(chat_model, manifest, examples(["Rain is expected."]))
    assert given["chats"] == 0 and len(given["tokens"]) == 1
    monkeypatch.setattr(chat_model.tokenizer, "chat_template", "{{ raise_exception('no users') }}")
    assert record(chat_model, manifest, None)["chats"] == 0


# Limits.

# Mean divergence and its 99th percentile on conversations with SmolLM2-135M-Instruct (benchmarks/RESULTS.md). Types of
# llama.cpp pass, and rounded activations that turn its answers into nonsense do not.
MEASURED = [
    ("int8", 0.0016, 0.0102, True),  # Q8_0
    ("int8_weights", 0.0044, 0.018, True),
    ("int8", 0.0402, 0.174, False),  # activations in int8 with one scale for each token
    ("int8_static", 0.0402, 0.174, False),
    # Files of this package before hidden states were rotated, which answered in French: LiteRT and ONNX Runtime.
    ("int8", 0.0183, 0.108, False),
    ("int8", 0.00757, 0.0427, False),
    ("int4", 0.0579, 0.357, True),  # Q4_K_M
    ("int4_mixed", 0.0579, 0.357, True),
    ("int4_mixed", 0.12, 0.81, False),  # int4
    ("fp16", 0.0016, 0.0102, False),
]


@pytest.mark.parametrize(("recipe", "divergence", "tail", "passes"), MEASURED)
def test_files_that_answer_and_files_that_do_not(recipe, divergence, tail, passes):
    figures = Fidelity(0.05, 0.01, 0.9, 1000, generated=0.3, divergence=divergence, divergence_p99=tail)
    assert figures.within(Limits.of(RECIPES[recipe].to_dict(), embeds=False, generates=True)) == passes


def test_which_limits_decide():
    recipe = RECIPES["int8"].to_dict()
    few = Fidelity(0.05, 0.01, 0.5, 100, generated=0.3, divergence=1e-5, divergence_p99=1e-4)
    assert few.within(Limits.of(recipe, embeds=False, generates=True))  # near ties of random weights
    assert not few.within(Limits.of(recipe, embeds=False, generates=False))
    older = {name: value for name, value in recipe.items() if "divergence" not in name}
    assert Limits.of(older, embeds=False, generates=True) == (0.15, 0.98, None, None, None)
    limits = Limits.of(recipe, embeds=False, generates=True)
    for changes in ({"divergence": np.nan}, {"divergence_p99": np.nan}, {"max_error": 0.2}, {"divergence_p99": 9.0}):
        assert not dataclasses.replace(few, **changes).within(limits)
    assert dataclasses.replace(few, divergence_p99=9.0).within(limits.of_sample())


def test_the_effect_of_rounding_in_manifests_of_earlier_versions():
    recorded = {"noise": 0.1, "mean_error": 0.01, "divergence": 1e-6, "step_mean_error": None, "step_divergence": 1e-6}
    assert Rounding.of({"rounding": recorded}) == Rounding(0.1, 0.01, 1e-6)


def test_fallbacks_have_more_bits_or_finer_activations():
    names = {name: [other.name for other in fallbacks(recipe)] for name, recipe in RECIPES.items()}
    assert names["int8"] == ["int8_weights", "fp16"]
    assert names["int4"] == ["int4_mixed", "int8", "int8_weights", "fp16"]
    assert names["int4_mixed"] == names["int8_static"] == ["int8", "int8_weights", "fp16"]
    resolved = RECIPES["int4_mixed"].resolved(["a_model/decoder/layer_0/feed_forward/up/kernel"])
    assert [other.name for other in fallbacks(resolved)] == names["int4_mixed"]
    assert names["fp16"] == names["none"] == []
    kept = dataclasses.replace(RECIPES["int8"], name="own", layers=(("*/output/*", "float16"),))
    assert [other.name for other in fallbacks(kept)] == names["int8"]


# Exports.


@pytest.fixture
def unrotated(monkeypatch):
    """Exports without rotated hidden states, which would make int8 faithful."""
    monkeypatch.setattr("kerasformer.export.api._rotates", lambda job: False)


def test_rotated_hidden_states_make_int8_faithful(chat_model, tmp_path):
    folder = kf.export.export(chat_model, tmp_path / "out", "onnx", "int8", capacity=CAPACITY)
    assert "fallback" not in bundle.read(folder).recipe


@pytest.fixture(scope="module")
def fallen_back(chat_model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fallback") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kerasformer.export.api._rotates", lambda job: False)
        return kf.export.export(chat_model, folder, "onnx", "int8", capacity=CAPACITY, fallback=True)


def test_an_export_falls_back_when_asked(fallen_back, capsys):
    """On ONNX Runtime, products with int8 weights round their inputs, too."""
    manifest = bundle.read(fallen_back)
    entry = manifest.recipe["fallback"]
    assert manifest.recipe["name"] == "fp16" and entry["requested"] == "int8"
    assert [each["name"] for each in entry["refused"]] == ["int8", "int8_weights"]
    assert all("mean KL divergence" in each["received"] for each in entry["refused"])
    assert [path.name for path in (fallen_back / "onnx").iterdir()] == ["model_fp16.onnx"]
    assert manifest.fidelity["divergence_p99"] < 0.01
    assert main("verify", str(fallen_back)) == 0
    assert "mean KL divergence of at most 0.001 nats" in " ".join(capsys.readouterr().out.split())
    card = (fallen_back / "README.md").read_text()
    assert "int8 was requested" in card.replace("\\", "") and "conversations in the model's chat template" in card
    assert "99th percentile of the KL divergence" in card and "| perplexity | " in card
    line = bundle.figure_line(manifest.fidelity)
    assert "mean KL divergence" in line and "perplexity" in line


def test_verify_applies_the_limits_of_the_manifest(fallen_back, tmp_path):
    folder = shutil.copytree(fallen_back, tmp_path / "out")
    manifest = bundle.read(folder)
    bundle.write(folder, dataclasses.replace(manifest, recipe={**manifest.recipe, "max_divergence": 1e-15}))
    assert main("verify", str(folder)) == 1


def test_a_refusal_is_quick_and_names_the_recipe_that_passed(chat_model, tmp_path, monkeypatch, unrotated):
    monkeypatch.setattr(verification, "verify", None)  # not called: a first look suffices
    with pytest.raises(ExportMismatchError) as caught:
        kf.export.export(chat_model, tmp_path / "out", "onnx", "int8", capacity=CAPACITY)
    message = str(caught.value)
    assert "at a first look at a few texts" in message and "Expected for int8: largest error" in message
    assert "The files of fp16 passed a first look (agreement " in message
    assert "pass quantize='fp16', or fallback=True" in message
    assert not list(tmp_path.iterdir())
