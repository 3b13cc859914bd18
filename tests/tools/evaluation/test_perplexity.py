"""Likelihoods of texts and of choices, compared with a model of transformers, on Keras and on bundles."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import kerasformer as kf
from kerasformer.errors import CapacityError, InputError
from kerasformer.tools.evaluation import examples, outcome
from tests import tiny_text
from tests.code_blocks import blocks
from tests.core.export.text_models import shared_bundle, shared_model
from tests.keras_pipelines import keras_pipeline

DECODER = "gpt2-text-generation"
LENGTH = 24
TEXTS = [
    "The museum is closed on Mondays, but the garden – with its old trees – stays open until nine.",
    "Rain.",
    "She left early.",
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A pipeline, and the model of transformers with the same weights."""
    torch.manual_seed(0)
    tokenizer = tiny_text.byte_pairs()
    sizes = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}
    config = GPT2Config(vocab_size=tokenizer.vocab_size, **sizes)
    model = GPT2LMHeadModel(config).eval()
    folder = tmp_path_factory.mktemp("gpt2")
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return keras_pipeline(kf.load(folder)), model


def reference(model: Any, ids: list[int], stride: int) -> tuple[float, int]:
    """The loop of the page "Perplexity of fixed-length models" of transformers: sum of the losses, number of tokens."""
    total, count, end_before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + LENGTH, len(ids))
        new = end - end_before
        row = torch.tensor([ids[begin:end]])
        labels = row.clone()
        labels[:, :-new] = -100
        counted = int((labels != -100).sum()) - int(labels[0, 0] != -100)
        with torch.no_grad():
            total += model(row, labels=labels).loss.item() * counted
        count, end_before = count + counted, end
        if end == len(ids):
            break
    return total, count


@pytest.mark.parametrize("stride", [None, 10, LENGTH])
def test_perplexity_with_a_stride_equals_transformers(pair: Any, stride: int | None) -> None:
    pipe, model = pair
    sums = [reference(model, ids, stride or LENGTH) for ids in map(pipe.tokenizer.encode, TEXTS)]
    assert len(pipe.tokenizer.encode(TEXTS[0])) > 2 * LENGTH
    found = outcome(pipe, TEXTS, batch_size=3, **({} if stride is None else {"stride": stride}))
    total, count = map(sum, zip(*sums, strict=True))
    assert found.figures["perplexity"] == pytest.approx(np.exp(total / count), rel=1e-4)
    assert found.losses == pytest.approx([total / count for total, count in sums], rel=1e-4)


def test_bits_per_byte_count_the_bytes_of_the_counted_tokens(pair: Any) -> None:
    """Without the bytes of the first token of a text, whose loss is unknown; those of a stride of 1 are all others."""
    pipe, _ = pair
    ids = [pipe.tokenizer.encode(text) for text in TEXTS]
    firsts = [pipe.tokenizer.decode(row[:1]) for row in ids]
    size = len("".join(TEXTS).encode()) - len("".join(firsts).encode())
    figures = outcome(pipe, TEXTS, stride=8).figures
    nats = np.log(figures["perplexity"]) * sum(len(row) - 1 for row in ids)
    assert figures["bits_per_byte"] == pytest.approx(nats / np.log(2) / size, rel=1e-6)
    uncounted = sum(-(-len(row) // LENGTH) for row in ids)
    figures = outcome(pipe, TEXTS).figures
    tokens = sum(map(len, ids)) - uncounted
    assert figures["bits_per_byte"] * np.log(2) * size > np.log(figures["perplexity"]) * tokens  # of fewer bytes


def likelihood(model: Any, tokenizer: Any, start: str, rest: str) -> tuple[float, bool]:
    """The sum of the log-probabilities of the tokens after the start, and whether all of them are the most probable."""
    before, ids = tokenizer.encode(start), tokenizer.encode(start + rest)
    assert ids[: len(before)] == before
    with torch.no_grad():
        logs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    rows = logs[len(before) - 1 : -1]
    written = torch.tensor(ids[len(before) :])
    return rows[range(len(written)), written].sum().item(), bool((rows.argmax(-1) == written).all())


CHOICES = ["good", "bad and far too long"]


def test_choices_equal_transformers(pair: Any) -> None:
    pipe, model = pair
    starts = ["It was", "The film is"]
    sums = np.array([[likelihood(model, pipe.tokenizer, start, f" {one}")[0] for one in CHOICES] for start in starts])
    lengths = [len(pipe.tokenizer.encode(f" {one}")) for one in CHOICES]
    for normalization, sizes in [(None, [1, 1]), ("bytes", [4, 20]), ("tokens", lengths)]:
        scores = np.exp(sums / sizes)
        scores /= scores.sum(axis=1, keepdims=True)
        answers = kf.choose(pipe, [f"{start} " for start in starts], CHOICES, normalization=normalization)
        received = [{one["label"]: one["score"] for one in answer} for answer in answers]
        np.testing.assert_allclose([[row[name] for name in CHOICES] for row in received], scores, rtol=1e-3)
        assert all(answer[0]["score"] >= answer[1]["score"] for answer in answers)
    assert kf.choose(pipe, "It was ", CHOICES) == kf.choose(pipe, ["It was "], CHOICES)[0]
    rows = [
        {"text": start, "choices": CHOICES, "label": label}
        for start, label in zip(starts, (0, CHOICES[1]), strict=True)
    ]
    found = outcome(pipe, rows)
    right = [0, 1]
    assert found.figures == {
        "accuracy": np.mean(sums.argmax(axis=1) == right),
        "accuracy_normalized": np.mean((sums / [4, 20]).argmax(axis=1) == right),
    }
    logs = sums - np.log(np.exp(sums).sum(axis=1, keepdims=True))
    assert found.losses == pytest.approx(-logs[[0, 1], right], rel=1e-3)
    same = outcome(pipe, starts, [0, 1], choices=CHOICES, template="{text} {label}")
    assert same == found


def test_choices_take_the_place_of_a_gap(pair: Any) -> None:
    """As GPT-2 was evaluated on the Children's Book Test: each choice with the rest of the sentence after it."""
    pipe, model = pair
    for gap, options in (("XXXXX", {}), ("____", {}), ("[?]", {"blank": "[?]"})):
        text = f"The {gap} is closed."
        sums = [likelihood(model, pipe.tokenizer, "The", f" {one} is closed.")[0] for one in CHOICES]
        for normalization, sizes in (None, [1, 1]), ("bytes", [15, 31]):
            scores = np.exp(np.array(sums) / sizes)
            found = {
                one["label"]: one["score"]
                for one in kf.choose(pipe, text, CHOICES, normalization=normalization, **options)
            }
            np.testing.assert_allclose([found[one] for one in CHOICES], scores / scores.sum(), rtol=1e-4)
    (best, worst) = np.argsort(sums)[::-1]
    # A row of the Children's Book Test in Hugging Face's form, and one with a question.
    rows = [
        {"sentences": ["It", "is."], "question": "The XXXXX is closed.", "options": CHOICES, "answer": 0},
        {"text": "The XXXXX is closed.", "choices": CHOICES, "label": CHOICES[best]},
    ]
    assert outcome(pipe, rows[1:]).figures["accuracy"] == 1
    assert outcome(pipe, [rows[1] | {"label": int(worst)}]).figures["accuracy"] == 0
    story = [likelihood(model, pipe.tokenizer, "It is. The", f" {one} is")[0] for one in CHOICES]
    short = [{**rows[0], "question": "The XXXXX is"}]
    logs = np.array(story) - np.log(np.exp(story).sum())
    assert outcome(pipe, short).losses == pytest.approx([-logs[0]], rel=1e-4)
    after = kf.choose(pipe, "The XXXXX is", CHOICES, blank=None)
    assert after == kf.choose(pipe, "The [X] is".replace("[X]", "XXXXX"), CHOICES, blank="[none]")
    with pytest.raises(InputError, match="one gap. Pass blank=None.*Received: 2 times 'XXXXX'"):
        kf.choose(pipe, "XXXXX and XXXXX", CHOICES)


def test_a_classifier_with_one_class_chooses() -> None:
    """It was trained on pairs of a text and a choice; without choices, its only class would always be right."""
    model = shared_model("bert-text-classification")
    config = dataclasses.replace(model.config, id2label={0: "follows"}, problem_type=None)
    one = kf.zoo.bert.BertTextClassification(config)
    one.build()
    rng = np.random.default_rng(2)
    one.set_weights([rng.normal(0, 0.2, value.shape) for value in one.get_weights()])
    one.tokenizer = model.tokenizer
    names = ["Rain is expected.", "The ship is late.", "It"]
    rows = [{"text": text, "choices": names, "label": 0} for text in ("It rains", "The museum is closed on Mondays")]
    encoded = model.tokenizer([row["text"] for row in rows for _ in names], names * 2)
    logits = np.reshape(one({name: encoded[name] for name in one.input_names}), (2, 3))
    for task in ("text-classification", "text-ranking"):
        pipe = keras_pipeline(one, task)
        for index in range(3):
            found = outcome(pipe, [row | {"label": index} for row in rows], batch_size=4)
            assert found.figures == {"accuracy": np.mean(logits.argmax(axis=1) == index)}
            expected = np.log(np.exp(logits).sum(axis=1)) - logits[:, index]
            np.testing.assert_allclose(found.losses, expected, rtol=1e-4)
    pipe = keras_pipeline(one)
    with pytest.raises(InputError, match="one class always answers it.*Received: the class 'follows'"):
        outcome(pipe, ["It rains"], [0])
    with pytest.raises(InputError, match="needs choices for each text"):
        outcome(keras_pipeline(one, "text-ranking"), ["It rains"], [0])
    with pytest.raises(InputError, match="with one class.*Received: a classifier with 5 classes"):
        outcome(keras_pipeline(model), rows)


def test_encoder_decoders_choose_answers() -> None:
    pipe = keras_pipeline(shared_model("t5-text2text-generation"))
    texts, names = ["It rains", "cola sentence: The ship is late"], ["acceptable", "unacceptable", "It is late"]
    sums = [[kf.sequence_logprob(pipe, text, target=name) for name in names] for text in texts]
    for answers, row in zip(kf.choose(pipe, texts, names, batch_size=4), np.array(sums), strict=True):
        found = {one["label"]: one["score"] for one in answers}
        scores = np.exp(row - row.max())
        np.testing.assert_allclose([found[name] for name in names], scores / scores.sum(), rtol=1e-4)
    best = np.argmax(sums, axis=1).tolist()
    assert outcome(pipe, texts, best, choices=names).figures["accuracy"] == 1
    rows = [{"text": text, "choices": names, "label": 1} for text in texts]
    assert outcome(pipe, rows).figures["accuracy"] == np.mean(np.equal(best, 1))


def test_last_words_equal_transformers(pair: Any) -> None:
    """One of the texts ends with the word that the model would write."""
    pipe, model = pair
    text = pipe("The old", max_new_tokens=8, do_sample=False)[0]["generated_text"]
    texts = [*TEXTS[::2], text.strip()]
    parts = [one.rpartition(" ") for one in texts[1:]]
    expected = [likelihood(model, pipe.tokenizer, start, f" {word}") for start, _, word in parts]
    found = outcome(pipe, texts[1:], last_word=True)
    assert found.figures["accuracy"] == np.mean([right for _, right in expected])
    assert found.figures["perplexity"] == pytest.approx(np.exp(-np.mean([log for log, _ in expected])), rel=1e-3)
    long = outcome(pipe, texts[:1], last_word=True)  # the last tokens before the word, as many as fit
    assert np.isfinite(long.losses[0])
    with pytest.raises(InputError, match="several words before it. Received: 'Rain.'"):
        outcome(pipe, ["Rain."], last_word=True)


def test_bundles_answer_as_keras() -> None:
    model = keras_pipeline(shared_model(DECODER))
    rows = [{"text": text, "choices": CHOICES, "label": 1} for text in TEXTS]
    for format in ("tflite", "onnx"):
        bundle = kf.pipeline(shared_bundle(DECODER, format))
        stride = bundle.model.capacity // 2
        for data, options in [(rows, {}), (TEXTS[2:], {"last_word": True}), (TEXTS, {"stride": stride})]:
            theirs, ours = (outcome(pipe, data, **options) for pipe in (model, bundle))
            assert ours.figures == pytest.approx(theirs.figures, rel=1e-3)
            assert ours.losses == pytest.approx(theirs.losses, rel=1e-3)


@pytest.mark.parametrize(
    ("inputs", "choices", "message"),
    [
        ("It was ", ["good"], "at least two different texts"),
        ("It was ", ["good", "good"], "at least two different texts"),
        ("", ["good", "bad"], "a prompt of at least one token before it"),
    ],
)
def test_invalid_choices_raise(pair: Any, inputs: Any, choices: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kf.choose(pair[0], inputs, choices)


def test_models_that_cannot_choose(pair: Any) -> None:
    with pytest.raises(CapacityError, match=r"exceed the cache. Expected at most 25 tokens"):
        kf.choose(pair[0], TEXTS[0], CHOICES)
    with pytest.raises(InputError, match="at least two choices, or its index. Received: 2 with 2 choices"):
        outcome(pair[0], [{"text": "It was", "choices": CHOICES, "label": 2}])


SHOTS = [("Warm.", 1), ("Slow.", 0), ("Loud.", 0), ("Funny.", 1)]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (TEXTS, {"template": "{text}:{label}"}, "template is for choices alone"),
        ([{"text": "It was", "choices": CHOICES, "label": 0}], {"stride": 4}, "stride is for texts alone"),
        (TEXTS, {"stride": 4, "last_word": True}, "Only one of stride, last_word and choices"),
        (TEXTS, {"choices": CHOICES}, "needs a label for each text. Received: text 1 of 3"),
    ],
)
def test_options_that_would_be_ignored_raise(pair: Any, data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        outcome(pair[0], data, **options)


def test_prompts() -> None:
    names = ["bad", "good"]
    prompt = kf.prompt(SHOTS, 2, template="Review: {text}\nVerdict: {label}", classes=names, seed=1)
    first, second = prompt.shots
    shown = [f"Review: {one.text}\nVerdict: {names[one.label]}" for one in (first, second)]
    assert prompt("It rains.") == "\n\n".join([*shown, "Review: It rains.\nVerdict: "])
    assert kf.prompt(SHOTS, 2, seed=1).shots == prompt.shots
    assert len({kf.prompt(SHOTS, 4, seed=seed).shots for seed in range(8)}) > 1
    assert sorted(one.text for one in kf.prompt(SHOTS, 4).shots) == sorted(text for text, _ in SHOTS)
    assert kf.prompt([], 0)("It rains.") == "Text: It rains.\nLabel: "
    asked = kf.prompt(
        [{"question": "Who?", "context": "Ada.", "answer": "{Ada}"}], 1, template="{text} Q: {question} A:{label}"
    )
    assert asked({"question": "What?", "context": "{It}."}) == "Ada. Q: Who? A:{Ada}\n\n{It}. Q: What? A:"


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (SHOTS, {"k": 5}, "k must be an integer from 0 to 4.*number of examples"),
        (SHOTS, {"template": "{text}"}, "end with {label}"),
        (SHOTS, {"template": "{body} {label}"}, "must have {text}"),
        (["Rain."], {"k": 1}, "needs a label. Received: none for example 1"),
    ],
)
def test_invalid_prompts_raise(examples: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kf.prompt(examples, **options)


def test_the_example_of_the_page() -> None:
    page = Path(__file__).parents[3] / "docs" / "pipelines.md"
    (block,) = [block for block in blocks(page, "python") if "kf.choose" in block]
    exec(compile(block, str(page), "exec"), {})


def test_few_shot_evaluation(pair: Any, tmp_path: Path) -> None:
    prompt = kf.prompt([("a", "x"), ("b", "y")], 2, template="{text}:{label}")
    data = examples(["c", "d"], ["x", "y"])
    found = outcome(pair[0], data, choices=["x", "y"], template=prompt)
    best = [kf.choose(pair[0], prompt(text), ["x", "y"])[0]["label"] for text in ("c", "d")]
    assert list(found.answers) == best
