"""Attributions are those of the formulas in PyTorch, add up, and are the same for a bundle."""

from __future__ import annotations

import weakref
from dataclasses import replace
from html.parser import HTMLParser

import keras
import numpy as np
import pytest
import torch

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import CapacityError, InputError
from kerasformer.tools.interpretability.reading import opened
from kerasformer.tools.interpretability.scoring import Scorer
from kerasformer.tools.viz import attribution_html
from tests import tiny_text
from tests.core.export.text_models import shared_bundle, shared_model
from tests.tools.interpretability import references

TEXT, CONTEXT = "The sea was calm and grey.", "A ship came in late."
TOLERANCE = 1e-4
"""Relative to the largest attribution: sums of float32 gradients in another order."""

# Text, second text, target, token, and the score in the outputs of `transformers`.
CASES = {
    "classes": (TEXT, None, 2, None, lambda out: out.logits[:, 2]),
    "entities": (TEXT, None, "B-LOC", "calm", None),
    "answers": (TEXT, CONTEXT, "ship", None, None),
    "masks": ("The [MASK] was calm.", None, None, None, None),
    "next": (TEXT, None, 7, None, lambda out: out.logits[:, -1, 7]),
}


def picked(name, result):
    """The score that a result explains, in the outputs of `transformers`."""
    if name == "answers":
        first, last = result.read.tokens_of("ship", (1,))[[0, -1]].tolist()
        return lambda out: out.start_logits[:, first] + out.end_logits[:, last]
    if name == "entities":
        return lambda out: out.logits[:, result.position, 2]
    if name == "masks":
        token = references.pair(name)[1].tokenizer.token_to_id(result.target)
        return lambda out: out.logits[:, result.position, token]
    return CASES[name][4]


MARKS = {
    "classes": pytest.mark.jax,
    "next": pytest.mark.jax_release,
    "entities": pytest.mark.grid,
    "masks": pytest.mark.grid,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in CASES])
def test_gradients_are_those_of_pytorch(name):
    text, pair, target, at, _ = CASES[name]
    reference, model = references.pair(name)
    settings = {"target": target, "at": at}
    result = kf.attribute(model, text, pair, n_steps=20, tolerance=None, baseline="." if name == "next" else "[PAD]",
                          **settings)  # fmt: skip
    inputs = {key: torch.as_tensor(array) for key, array in result.read.inputs.items()}
    token = model.tokenizer.token_to_id(result.baseline)
    changed = np.where(result.read.sequence_ids >= 0, token, result.read.ids)
    pick = picked(name, result)
    expected, difference = references.integrated_gradients(reference, inputs, changed, pick, steps=20)
    scale = float(np.abs(expected).max())
    assert np.abs(result.attributions - expected).max() < TOLERANCE * scale
    assert result.score - result.baseline_score == pytest.approx(difference, abs=TOLERANCE * scale)
    assert result.convergence_delta == pytest.approx(result.attributions.sum() - difference, abs=TOLERANCE * scale)
    shares = kf.attribute(model, text, pair, method="gradient_x_input", **settings).attributions
    expected = references.gradient_x_input(reference, inputs, pick)
    assert np.abs(shares - expected).max() < TOLERANCE * np.abs(expected).max()


@pytest.mark.jax_release
def test_attributions_are_complete_or_refused():
    _, model = references.pair("classes")
    result = kf.attribute(model, TEXT, tolerance=1e-3)
    total = result.attributions.sum()
    assert total == pytest.approx(result.score - result.baseline_score, rel=2e-3) and result.relative_error < 1e-3
    assert result.n_steps in (32, 64, 128, 256, 512)
    logits = keras.ops.convert_to_numpy(model(model.tokenizer([TEXT])))
    assert result.score == pytest.approx(logits.max(), rel=1e-5)
    with pytest.raises(InputError, match="add up.*with 1 steps.*n_steps"):
        kf.attribute(model, TEXT, n_steps=1, tolerance=1e-4)


def test_a_model_with_adapters_is_explained_with_them():
    _, base = references.pair("classes")
    other = type(base).from_config(base.get_config())
    other.set_weights(base.get_weights())
    other.set_tokenizer(base.tokenizer)
    other.enable_lora(2)
    for layer in other._flatten_layers():
        if getattr(layer, "lora_enabled", False):
            layer.lora_b.assign(np.random.default_rng(0).normal(size=layer.lora_b.shape, scale=0.1))
    result = kf.attribute(other, TEXT, target=1)
    logits = keras.ops.convert_to_numpy(other(other.tokenizer([TEXT])))
    assert result.score == pytest.approx(logits[0, 1], rel=1e-4)
    assert result.score != pytest.approx(kf.attribute(base, TEXT, target=1, method="occlusion").score, rel=1e-3)


ON_BUNDLES = {
    "bert-text-classification": (TEXT, None, {}),
    "bert-token-classification": (TEXT, None, {"at": "calm"}),
    "bert-question-answering": (TEXT, CONTEXT, {}),
    "gpt2-text-generation": (TEXT, None, {"target": 7}),
    "t5-text2text-generation": (TEXT, None, {}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.grid if "bert" not in name else ()) for name in ON_BUNDLES]
)
def test_occlusion_on_a_bundle_is_that_of_keras(name):
    text, pair, settings = ON_BUNDLES[name]
    expected = kf.attribute(shared_model(name), text, pair, method="occlusion", **settings)
    received = kf.attribute(shared_bundle(name, "onnx"), text, pair, method="occlusion", **settings)
    assert received.target == expected.target and received.tokens == expected.tokens
    scale = np.abs(expected.attributions).max()
    assert np.abs(received.attributions - expected.attributions).max() < 1e-3 * scale and scale > 0


def test_occlusion_is_the_score_that_is_lost():
    _, model = references.pair("classes")
    result = kf.attribute(model, TEXT, target=0, method="occlusion")
    ids = np.repeat(result.read.inputs["input_ids"], 2, axis=0)
    ids[1, 3] = model.tokenizer.mask_token_id
    logits = keras.ops.convert_to_numpy(model({"input_ids": ids}))[:, 0]
    assert result.attributions[3] == pytest.approx(logits[0] - logits[1], abs=1e-5)
    assert (result.attributions[[0, -1]] == 0).all()


def test_occlusion_keeps_the_outputs_of_one_batch(monkeypatch):
    _, model = references.pair("masks")
    text, run, outputs, alive = "The [MASK] was calm.", Scorer._run, [], []

    def counted(scorer, inputs):
        alive.append(sum(kept() is not None for kept in outputs))
        result = run(scorer, inputs)
        outputs.append(weakref.ref(result["logits"]))
        return result

    expected = kf.attribute(model, text, method="occlusion")
    monkeypatch.setattr(Scorer, "_run", counted)
    received = kf.attribute(model, text, method="occlusion", internal_batch_size=1)
    assert np.allclose(received.attributions, expected.attributions, atol=1e-4)
    assert len(alive) > 4 and max(alive) <= 2  # that of the text itself, and the last one


@pytest.mark.parametrize("several", [False, True])
def test_probabilities_are_explained_by_their_logarithms(several):
    """Bundles for MediaPipe return probabilities."""
    _, model = references.pair("classes")
    source, scorer = opened(model), Scorer(opened(model))
    logits = scorer(source.tokenizer([TEXT]).inputs)["logits"]
    powers = np.exp(logits)
    probabilities = powers / (1 + powers) if several else powers / powers.sum()
    info = replace(source.info, problem_type="multi_label_classification" if several else None)
    scorer = Scorer(replace(source, info=info))
    scorer.engine.run, scorer.model = lambda inputs: {"probabilities": probabilities}, None
    received = scorer({"input_ids": np.zeros((1, 2), np.int32)})
    assert list(received) == ["logits"]
    expected = logits if several else logits - np.log(powers.sum())
    assert np.allclose(received["logits"], expected, rtol=1e-3, atol=1e-3)


def test_an_encoder_decoder_is_explained_on_what_a_pipeline_reads():
    pipe = kf.pipeline("summarizer-t5", "summarization")
    result = kf.attribute(pipe, TEXT, method="occlusion")
    assert result.read.text == "summarize: " + TEXT
    assert kf.attribute(pipe, result.read.text, method="occlusion").read.tokens == result.read.tokens
    model, inputs = kf.load("summarizer-t5"), pipe.tokenizer(["summarize: " + TEXT]).inputs
    logits = model({**inputs, "decoder_input_ids": np.array([[model.config.decoder_start_token_id]])})
    assert result.score == pytest.approx(float(keras.ops.max(logits)), rel=1e-4)
    with pytest.raises(InputError, match="at least one token"):
        kf.attribute(pipe, "", method="occlusion")


@pytest.mark.parametrize("engine", ["keras", pytest.param("onnx", marks=pytest.mark.grid)])
def test_a_forced_token_is_not_the_target(engine):
    name = "t5-text2text-generation"
    source = opened(shared_model(name) if engine == "keras" else shared_bundle(name, engine))
    info = replace(source.info, generation={**source.info.generation, "forced_bos_token_id": 7})
    result = kf.attribute(replace(source, info=info), TEXT, method="occlusion")
    starts = np.array([[shared_model(name).config.decoder_start_token_id, 7]])
    logits = shared_model(name)({**result.read.inputs, "decoder_input_ids": starts})
    assert result.score == pytest.approx(float(keras.ops.max(logits[0, -1])), rel=1e-2)


def test_an_encoder_decoder_is_explained_by_the_text_that_it_reads():
    model = shared_model("t5-text2text-generation")
    result = kf.attribute(model, TEXT, tolerance=0.02)
    assert result.attributions.sum() == pytest.approx(result.score - result.baseline_score, rel=0.05)
    inputs = {**result.read.inputs, "decoder_input_ids": np.array([[model.config.decoder_start_token_id]])}
    assert result.score == pytest.approx(float(keras.ops.max(model(inputs))), rel=1e-5)
    with pytest.raises(InputError, match="both read the text.*method='occlusion'"):
        kf.attribute(shared_model("bart-text-classification"), TEXT)
    assert kf.attribute(shared_model("bart-text-classification"), TEXT, method="occlusion").attributions.any()


def test_words_add_up_the_tokens_of_a_word():
    _, model = references.pair("answers")
    result = kf.attribute(model, TEXT, CONTEXT, method="occlusion")
    words = result.words()
    assert [word.text for word in words] == ["The", "sea", "was", "calm", "and", "grey", ".",
                                             "A", "ship", "came", "in", "late", "."]  # fmt: skip
    assert all((CONTEXT if word.sequence else TEXT)[word.start : word.end] == word.text for word in words)
    assert len(result.tokens) > len(words) + 3  # some words have several tokens
    assert sum(word.attribution for word in words) == pytest.approx(result.attributions.sum(), abs=1e-4)
    assert result.top(2)[0].attribution == max(word.attribution for word in words)


class Content(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


HOSTILE = 'A <script>alert("1")</script> & <img src=x onerror=alert(2)> & \'"> sea.'


def test_html_stays_text_in_html_and_in_pictures(tmp_path):
    _, model = references.pair("classes")
    result = kf.attribute(model, HOSTILE, method="occlusion")
    page = Content(result.html())
    assert page.tags == {"div", "span"} and HOSTILE in page.text
    assert result._repr_html_() == result.html()
    result.picture(tmp_path / "hostile.png")
    assert Content(attribution_html([("<b>$x$</b>", 0.5)], "<i>")).tags == {"div", "span"}


MISTAKES = {
    "no such class": ("classes", {"target": "angry"}, "Expected one of: LABEL_0"),
    "no such part": ("entities", {"at": "Berlin"}, "which it does not contain"),
    "a position for a whole text": ("classes", {"at": 1}, "scores are those of the whole text"),
    "no mask": ("masks", {}, "has no .MASK."),
    "occlusion without token": ("classes", {"method": "occlusion", "baseline": "zero"}, "baseline must be one token"),
    "a baseline without effect": (
        "classes",
        {"method": "gradient_x_input", "baseline": "[PAD]"},
        "baseline would have no effect with this method",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    name, settings, message = MISTAKES[mistake]
    with pytest.raises(InputError, match=message):
        kf.attribute(references.pair(name)[1], **{"text": TEXT, **settings})


def test_what_has_no_gradient_is_named():
    with pytest.raises(InputError, match="needs a Keras model.*a bundle for onnx"):
        kf.attribute(shared_bundle("bert-text-classification", "onnx"), TEXT)
    with pytest.raises(InputError, match="explains a score.*last_hidden_state"):
        kf.attribute(shared_model("bert-feature-extraction"), TEXT)
    sizes = {"hidden_dim": 32, "embedding_dim": 32, "num_layers": 1, "num_heads": 2, "intermediate_dim": 40}
    detector = zoo.build("electra", "replaced-token-detection", vocab_size=180, max_length=64, **sizes)
    detector.set_tokenizer(tiny_text.wordpiece())
    with pytest.raises(InputError, match="explains a score.*replaced-token-detection that returns logits"):
        kf.attribute(detector, TEXT, method="occlusion")
    with pytest.raises(CapacityError, match="at most 64 tokens"):
        kf.attribute(references.pair("classes")[1], TEXT * 20)
