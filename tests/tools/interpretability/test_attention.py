"""Attention weights are those of `transformers`, queries and keys reproduce them, and figures follow their formulas."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import BundleError, CapacityError, ExportMismatchError, InputError
from kerasformer.tools.interpretability.attention import MAX_DRAWN, Attention, StackAttention
from tests.core.export.text_models import shared_bundle, shared_model
from tests.grids import grid
from tests.tools.interpretability.bundles import attention_bundle

PAIR = ("time flies like an arrow, and faster than it", "fruit flies")
TEXTS: dict[str, tuple[str, ...]] = {
    "sentiment-bert": PAIR,
    "story-gpt2": ("Once upon a time", " there was a girl."),
    "summarizer-t5": ("The cat sat on the mat.", "The cat sat."),
}


@cache
def read(name: str, *texts: str) -> Attention:
    """Returns the attention of a preset, or of a small model of the exports' tests."""
    return kf.attention(name if "-" in name and name in TEXTS else shared_model(name), *texts)


def reference(folder: Path, read: Attention) -> dict[str, list[np.ndarray]]:
    """Returns the weights that `transformers` computes for the same tokens."""
    import torch
    import transformers

    sequence = "cross" in read.kinds
    (name,) = transformers.AutoConfig.from_pretrained(folder).architectures
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    first = read.stacks[0].queries
    inputs = {"input_ids": torch.tensor(first.ids[None].astype("int64"))}
    if read.kinds == ("encoder",):
        inputs["token_type_ids"] = torch.tensor(first.segments[None].astype("int64"))
    if name.endswith("ForConditionalGeneration"):  # others shift the text themselves
        inputs["decoder_input_ids"] = torch.tensor(read.decoder.queries.ids[None].astype("int64"))
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    if sequence:
        names = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    else:
        names = {read.kinds[0]: "attentions"}
    return {kind: [weights[0].numpy() for weights in outputs[name]] for kind, name in names.items()}


def assert_equal(read: Attention, expected: dict[str, list[np.ndarray]], tolerance: float = 1e-5) -> None:
    assert read.kinds == tuple(expected)
    for stack in read.stacks:
        assert len(stack.layers) == len(expected[stack.kind])
        for layer, weights in zip(stack.layers, expected[stack.kind], strict=True):
            np.testing.assert_allclose(layer.weights, weights, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", TEXTS)
def test_weights_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    attention = read(name, *TEXTS[name])
    kf.load(name).save_pretrained(tmp_path / "model")
    assert_equal(attention, reference(tmp_path / "model", attention))


@pytest.mark.parametrize(
    "name",
    [
        "mistral-text-generation", "bart-question-answering", "gpt2-text-classification",
        pytest.param("bart-text2text-generation", marks=pytest.mark.release),
    ],
)  # fmt: skip
def test_weights_of_groups_windows_and_other_heads_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    attention = read(name, "the cat sat on the mat and the dog sat on the cat", "the dog")
    if name.startswith("mistral"):
        assert len(attention.decoder.queries) > 10  # longer than the window
    shared_model(name).save_pretrained(tmp_path / "model")
    assert_equal(attention, reference(tmp_path / "model", attention))


def products(name: str, *texts: str) -> None:
    for stack in read(name, *texts).stacks:
        for layer in stack.layers:
            assert layer.states is not None
            assert layer.states.queries.shape[0] == layer.states.keys.shape[0] == len(layer.weights)
            np.testing.assert_allclose(layer.states.weights(), layer.weights, atol=3e-6, rtol=0)


@pytest.mark.parametrize("name", TEXTS)
def test_queries_and_keys_reproduce_the_weights(name: str) -> None:
    products(name, *TEXTS[name])


SMALL = (
    "gemma3_text-text-generation", "bloom-text-generation", "deberta-fill-mask", "gptj-text-generation",
    "mistral-text-generation", "modernbert-fill-mask", "bart-text2text-generation", "xlm-fill-mask",
)  # fmt: skip
"""CI runs the first four: windows and groups, slopes, relative and rotary positions."""


@pytest.mark.grid
@pytest.mark.parametrize("name", grid(SMALL, always=SMALL[:4], others="release"))
def test_queries_and_keys_of_other_attention_reproduce_the_weights(name: str) -> None:
    products(name, "the cat sat on the mat and the dog sat on the cat")


def test_tokens_and_segments_of_a_pair() -> None:
    tokens = read("sentiment-bert", *PAIR).encoder.queries
    ends = [index for index, token in enumerate(tokens.tokens) if token == "[SEP]"]
    assert tokens.tokens[0] == "[CLS]" and len(ends) == 2 and ends[1] == len(tokens) - 1
    assert tokens.segments.tolist() == [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0])
    assert np.flatnonzero(tokens.separators).tolist() == ends
    stack = read("sentiment-bert", *PAIR).encoder
    assert stack.between(0, "A", "B").shape == (12, ends[0] + 1, ends[1] - ends[0])
    assert (stack.between(1, "B", "A")[3] == stack.weights(1, 3)[ends[0] + 1 :, : ends[0] + 1]).all()


def test_the_decoder_reads_what_it_writes_one_token_later() -> None:
    attention = read("summarizer-t5", *TEXTS["summarizer-t5"])
    row = attention.decoder.queries
    assert row.written is not None and row.written[:-1] == row.tokens[1:] and row.written[-1] == "</s>"
    assert attention.cross.keys.tokens == attention.encoder.queries.tokens
    generated = kf.attention(kf.load("summarizer-t5"), TEXTS["summarizer-t5"][0], max_new_tokens=5)
    text = TEXTS["summarizer-t5"][0]
    expected = kf.load("summarizer-t5").generate(text, num_beams=1, max_new_tokens=5, jit_compile=False)
    written = generated.decoder.queries.written
    assert written is not None and len(written) == 5
    assert "".join(written).replace("␣", " ").strip() == expected.strip()


def test_the_prefix_of_a_task_precedes_every_text() -> None:
    from kerasformer.tools.interpretability.attention_sources import KerasSource, Reader

    model: Any = kf.load("summarizer-t5")
    source = KerasSource(model, "summarizer", model.tokenizer)
    source.info = replace(source.info, task="summarization")  # as of a bundle for this task
    ids = Reader(source).read("summarize: a cat", "a cat", 8).encoder.queries.ids.tolist()
    assert ids == model.tokenizer.encode("summarize: summarize: a cat")


def expected_rollout(stack: StackAttention) -> np.ndarray:
    """Formula of Abnar and Zuidema, section 3: the product of the mean weights of all layers with residuals."""
    product = np.eye(len(stack.queries))
    for layer in stack.layers:
        mixed = np.mean(layer.weights, axis=0) / 2 + np.eye(len(stack.queries)) / 2
        product = (mixed / mixed.sum(axis=1, keepdims=True)) @ product
    return product


def test_rollout_and_figures_follow_their_formulas() -> None:
    stack = read("sentiment-bert", *PAIR).encoder
    np.testing.assert_allclose(stack.rollout()[-1], expected_rollout(stack), atol=1e-6)
    np.testing.assert_allclose(stack.rollout().sum(axis=-1), 1, atol=1e-5)
    weights, tokens, figures = stack.weights(2, 5).astype("float64"), stack.queries, stack.statistics()
    count = len(tokens)
    entropy = distance = within = separators = 0.0
    for i in range(count):
        for j in range(count):
            entropy -= weights[i, j] * np.log2(weights[i, j])
            distance += weights[i, j] * abs(i - j)
            within += weights[i, j] * (tokens.segments[i] == tokens.segments[j])
            separators += weights[i, j] * (tokens.tokens[j] == "[SEP]")
    totals = {
        "entropy": entropy, "distance": distance, "within segment": within, "on separators": separators,
        "on first token": weights[:, 0].sum(),
    }  # fmt: skip
    assert figures.keys() == totals.keys()
    for name, total in totals.items():
        assert figures[name][2][5] == pytest.approx(total / count, rel=1e-4), name


TINY = "the cat sat on the mat"
BUNDLES = [
    ("bert-text-classification", "tflite"),
    pytest.param("t5-text2text-generation", "onnx", marks=pytest.mark.grid),
    *(
        pytest.param(*case, marks=pytest.mark.release)
        for case in (
            ("mistral-text-generation", "tflite"), ("mbart-question-answering", "onnx"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "format"), BUNDLES)
def test_a_bundle_shows_its_own_weights(name: str, format: str) -> None:
    texts = (TINY,) if name.endswith("generation") else (TINY, "the dog")
    folder = attention_bundle(name, format)
    attention = kf.attention(folder, *texts, max_new_tokens=8)
    assert attention.engine == ("litert" if format == "tflite" else "onnx")
    expected = kf.attention(shared_model(name), *texts, max_new_tokens=8)
    assert_equal(attention, {s.kind: [layer.weights for layer in s.layers] for s in expected.stacks}, 2e-5)
    assert [s.queries.tokens for s in attention.stacks] == [s.queries.tokens for s in expected.stacks]
    with pytest.raises(InputError, match="a bundle gives attention weights alone"):
        attention.neurons()


def test_an_export_compares_the_weights_with_keras() -> None:
    from kerasformer import bundle
    from kerasformer.export.verify import verify_attention

    folder = attention_bundle("bert-text-classification", "tflite")
    manifest, attention = bundle.read(folder), kf.attention(folder, TINY)
    tokens, stack = attention.encoder.queries, attention.encoder
    inputs = {"input_ids": tokens.ids[None], "attention_mask": np.ones_like(tokens.ids)[None]}
    inputs["token_type_ids"] = tokens.segments[None]
    weights = [layer.weights[None] for layer in stack.layers]
    verify_attention(folder, manifest, "none", (inputs, weights))
    other = [weights[0], weights[1] + np.float32(2e-3)]
    verify_attention(folder, manifest, "int8", (inputs, other))
    with pytest.raises(ExportMismatchError, match=r"largest difference at most 0.001. Received: 0.002"):
        verify_attention(folder, manifest, "none", (inputs, other))
    with pytest.raises(ExportMismatchError, match="mean share of attention on other tokens at most 0.25"):
        verify_attention(folder, manifest, "int8", (inputs, [weights[0], np.roll(weights[1], 3, axis=-1)]))
    for recipe in ("none", "int8"):
        with pytest.raises(ExportMismatchError, match="Received: nan"):
            verify_attention(folder, manifest, recipe, (inputs, [weights[0], weights[1] * np.float32("nan")]))


def test_inputs_that_a_tokenizer_does_not_return_have_their_defaults() -> None:
    from kerasformer import bundle
    from kerasformer.engines.whole_texts import WholeTexts

    folder = attention_bundle("bert-text-classification", "tflite")
    runner, ids = WholeTexts(folder, bundle.read(folder)), np.array([[2, 9, 8, 7, 3]], "int32")
    complete = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    for (_, few), (_, all) in zip(runner.run({"input_ids": ids}), runner.run(complete), strict=True):
        np.testing.assert_array_equal(few, all)


def test_a_bundle_without_attention_names_the_option() -> None:
    with pytest.raises(BundleError, match=r'gives logits, and no attention.*outputs=\("attentions",\).*--outputs'):
        kf.attention(shared_bundle("bert-text-classification", "tflite"), TINY)


def test_a_bundle_reads_no_longer_texts_than_its_signatures() -> None:
    with pytest.raises(CapacityError, match="at most 64 tokens"):
        kf.attention(attention_bundle("bert-text-classification", "tflite"), " ".join(["cat"] * 63))


def test_what_cannot_be_read_or_drawn_is_named(tmp_path: Path) -> None:
    attention = read("sentiment-bert", *PAIR)
    with pytest.raises(InputError, match=r"Expected: layer=0 to 3 \(encoder\). Received: layer=4"):
        attention.heads(4)
    with pytest.raises(InputError, match="from 0 to 11. Received: head=12"):
        attention.heads(0, 12)
    with pytest.raises(InputError, match="kind must be"):
        attention.heads(kind="all")
    with pytest.raises(InputError, match="figure must be 'entropy', "):
        attention.statistics("height")
    with pytest.raises(InputError, match="A text must have words. Received: b=' '"):
        kf.attention("sentiment-bert", "a", " ")
    with pytest.raises(InputError, match=r"\.html, \.png or \.svg. Received: .*view\.pdf"):
        attention.heads().save(tmp_path / "view.pdf")
    with pytest.raises(InputError, match="distance between tokens needs attention within one text"):
        read("summarizer-t5", *TEXTS["summarizer-t5"]).cross.distance()
    with pytest.raises(InputError, match="There is one text alone"):
        read("story-gpt2", "Once").decoder.between(0, "A", "B")


def test_a_text_too_long_is_named() -> None:
    model = kf.load("story-gpt2")
    long = "Once upon a time there was a cat. " * 20
    attention = kf.attention(model, long)
    assert len(attention.decoder.queries) > MAX_DRAWN and attention.decoder.entropy()[0].shape == (4,)
    with pytest.raises(InputError, match=f"at most {MAX_DRAWN} tokens"):
        attention.heads()
    with pytest.raises(CapacityError, match="exceeds the model's maximum length"):
        kf.attention(model, long * 40)


def test_a_further_output_is_refused_where_nothing_calls_it(tmp_path: Path) -> None:
    model: Any = shared_model("bert-text-classification")
    with pytest.raises(InputError, match="target='mediapipe' calls no signature for further outputs"):
        model.export(tmp_path / "a", target="mediapipe", outputs=("attentions",))
    with pytest.raises(InputError, match="outputs is only for format='tflite' or 'onnx'"):
        model.export(tmp_path / "a", format="saved_model", outputs=("attentions",))
    with pytest.raises(InputError, match="'attentions'. Received: outputs="):
        model.export(tmp_path / "a", outputs=("states",))
