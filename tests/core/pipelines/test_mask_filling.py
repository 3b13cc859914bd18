"""Mask-predict is the algorithm of the paper, written out with `transformers`; Gibbs sampling draws single tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer.errors import GenerationError, InputError
from kerasformer.pipelines import pipeline
from kerasformer.pipelines.mask_filling import Gaps, gibbs, mask_predict
from tests.code_blocks import blocks_of
from tests.core.export.text_models import shared_bundle, shared_model

TEXT = "The [MASK] [MASK] [MASK] [MASK] on the [MASK] sea."


@pytest.fixture(scope="module")
def folder(checkpoint):
    return checkpoint("gaps")


def reference(folder, text, iterations):
    """Algorithm of Ghazvininejad et al. 2019, section 3.1, with PyTorch."""
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    places = (ids[0] == tokenizer.mask_token_id).nonzero()[:, 0]
    probabilities = torch.zeros(len(places))
    for step in range(iterations):
        number = len(places) * (iterations - step) // iterations
        if not number:
            break
        chosen = probabilities.argsort(stable=True)[:number]
        ids[0, places[chosen]] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(ids).logits[0, places[chosen]]
        logits[:, tokenizer.all_special_ids] = -torch.inf
        probabilities[chosen], ids[0, places[chosen]] = logits.softmax(-1).max(-1)
    return ids[0, places].tolist(), float(probabilities.log().mean().exp())


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_mask_predict_is_the_algorithm_of_the_paper(folder, iterations):
    result = pipeline(folder, "fill-mask").fill(TEXT, iterations=iterations)
    tokens, score = reference(folder, TEXT, iterations)
    assert result["tokens"] == tokens and result["score"] == pytest.approx(score, rel=1e-4)
    assert len(result["steps"]) <= iterations and result["steps"][-1] == result["sequence"]
    assert "[MASK]" not in result["sequence"]


def test_each_iteration_fills_the_least_probable_tokens_again():
    seen = []

    def scores(ids):
        seen.append(np.flatnonzero(ids == 4).tolist())
        logits = np.zeros((len(ids), 8), np.float32)
        logits[:, 5] = np.arange(len(ids))  # later tokens are more certain
        return logits

    gaps = Gaps.of(np.array([0, 4, 4, 4, 4, 1]), 4, np.array([0, 1, 4]))
    assert len(list(mask_predict(gaps, scores, 4))) == 4
    assert seen == [[1, 2, 3, 4], [1, 2, 3], [1, 2], [1]] and gaps.ids.tolist() == [0, 5, 5, 5, 5, 1]


def test_gibbs_sampling_masks_one_token_at_a_time():
    seen = []

    def scores(ids):
        seen.append(np.flatnonzero(ids == 4).tolist())
        return np.tile(np.array([9, 9, 0, 0, 9, 1, 0, 0], np.float32), (len(ids), 1))

    draws = []
    for seed in range(40):
        gaps = Gaps.of(np.array([0, 4, 4, 1]), 4, np.array([0, 1, 4]))
        random = np.random.default_rng(seed)
        list(gibbs(gaps, scores, 2, lambda logs, uniform: np.array([logs[0].argmax()]), random))
        draws.append(gaps.ids.tolist())
    assert all(draw == [0, 5, 5, 1] for draw in draws)  # the best of the tokens that are not special
    assert {tuple(part) for part in seen} == {(1,), (2,), (1, 2)}  # the other mask is open in the first round alone


def test_gibbs_sampling_follows_its_seed(folder):
    pipe = pipeline(folder, "fill-mask")
    options = {"method": "gibbs", "iterations": 2, "temperature": 2.0}
    texts = [pipe.fill(TEXT, seed=seed, **options)["sequence"] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert pipe.fill(TEXT, method="gibbs", top_k=1, seed=3)["score"] > 0


def test_several_lengths(folder):
    pipe = pipeline(folder, "fill-mask")
    text = "The [MASK] leaves at nine."
    best = pipe.fill(text, lengths=(1, 2, 3))
    answers = [pipe.fill(text.replace("[MASK]", "[MASK]" * length)) for length in (1, 2, 3)]
    assert best == max(answers, key=lambda answer: answer["score"])


def test_a_bundle_fills_as_keras():
    expected = pipeline(shared_model("bert-fill-mask")).fill(TEXT)
    received = pipeline(shared_bundle("bert-fill-mask", "onnx")).fill(TEXT)
    assert received["tokens"] == expected["tokens"] and received["score"] == pytest.approx(expected["score"], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("A text.", {}, r"no \[MASK\]"),
        (TEXT, {"temperature": 0.5}, "for method='gibbs'"),
        (TEXT, {"method": "beam"}, "method must be"),
        (TEXT, {"lengths": [0]}, "lengths must be"),
        (TEXT, {"iterations": 0}, "iterations must be"),
    ],
)
def test_mistakes_are_named(folder, text, options, message):
    with pytest.raises(InputError, match=message):
        pipeline(folder, "fill-mask").fill(text, **options)


@pytest.mark.parametrize("setting", [{"repetition_penalty": 2.0}, {"num_beams": 2}, {"do_sample": True}])
def test_settings_that_are_not_of_sampling_are_refused(folder, setting):
    (name,) = setting
    with pytest.raises(GenerationError, match=f"sampling only. Expected: .*top_k, .*Received: {name}"):
        pipeline(folder, "fill-mask").fill(TEXT, method="gibbs", **setting)


@pytest.mark.grid
def test_the_code_of_the_page_runs(folder, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    section = page.partition("## Masked words")[2].partition("\n## ")[0]
    models = {"bert-base-uncased": folder, "facebook/bart-large": shared_model("bart-text2text-generation")}
    monkeypatch.setattr(kf, "pipeline", lambda source, task: pipeline(models[source], task), raising=False)
    names: dict = {}
    codes = blocks_of(section, "python")
    for number, code in enumerate(codes, 1):
        exec(compile(code, f"<docs/pipelines.md, masked words, block {number}>", "exec"), names)
    assert len(codes) == 5 and len(names["result"]["steps"]) == 4
    assert len(capsys.readouterr().out.splitlines()) >= 3 + 4 + 1
