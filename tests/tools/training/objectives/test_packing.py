"""Packed texts do not see each other: outputs and losses equal those of separate rows."""

from __future__ import annotations

from functools import cache

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.layers import SmoothedCrossentropy
from kerasformer.models.creation import create
from kerasformer.models.keras_engine import KerasStep
from kerasformer.tools import training
from kerasformer.tools.training import Masking, PackedModel, Vocabulary
from tests.core.zoo.cases import FIRST
from tests.tools.training.objectives.spelled import texts_of

LENGTHS = (4, 9, 3, 7, 5)
ROW = 16
MEMBERS = ((0, 1, 2), (3, 4))
"""The texts in each row of 16 positions."""
QUICK = ("bert", "roberta", "gpt2", "mistral", "t5", "bart", "m2m_100", "bloom", "deberta", "electra")
"""Each kind of positions and of masks; the other architectures repeat these."""
REFUSED = (
    "longformer",
    "big_bird",
    "bigbird_pegasus",
    "led",
    "mobilebert",
    "lfm2",
    "qwen3_5_text",
    "granitemoehybrid",
    "falcon_h1",
)
TASKS = ("fill-mask", "text-generation", "text2text-generation", "replaced-token-detection")


def _parameters() -> list:
    def mark(model_type: str) -> list:
        jax = [pytest.mark.jax_release] if model_type in ("gpt2", "bart") else []
        return jax if model_type in QUICK else [pytest.mark.release]

    cases = [case for case in FIRST if set(case.tasks) & set(TASKS) and case.model_type not in REFUSED]
    return [pytest.param(case.model_type, id=str(case), marks=mark(case.model_type)) for case in cases]


@cache
def _model(model_type: str) -> keras.Model:
    """A model with weights that are large enough to see differences."""
    case = next(case for case in FIRST if case.model_type == model_type)
    kind = case.kind(next(task for task in case.tasks if task in TASKS))
    model = create(kind, kind.backbone_type.config_type.from_hf({"model_type": model_type, **case.settings}))
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def _batch(model: keras.Model) -> tuple[dict, Vocabulary]:
    """The texts as a batch; the decoder of an encoder-decoder writes them in reverse."""
    pad = model.config.pad_token_id or 0
    ids = {"pad_id": pad, "mask_id": 4, "start_id": 3, "special_ids": (0, 1, 2, 3, 4)}
    vocabulary = Vocabulary(97, encoder_decoder=model.is_encoder_decoder, **ids)
    texts = texts_of(LENGTHS, 88)
    if model.is_encoder_decoder:
        return training.translation([(text, text[::-1]) for text in texts], vocabulary), vocabulary
    return training.masked(texts, vocabulary, np.random.default_rng(0), Masking(rate=0.5)), vocabulary


def _split(batch: dict) -> tuple[dict, np.ndarray]:
    return {name: array for name, array in batch.items() if name != "labels"}, batch["labels"]


@pytest.mark.parametrize("model_type", _parameters())
def test_packed_texts_have_the_outputs_of_separate_rows(model_type):
    model = _model(model_type)
    batch, vocabulary = _batch(model)
    packed = training.pack(batch, vocabulary, ROW)
    inputs, labels = _split(batch)
    together, labels_together = _split(packed)
    expected, received = np.asarray(model(inputs)), np.asarray(PackedModel(model)(together))
    side = "decoder_" if model.is_encoder_decoder else ""
    numbers, real = packed[f"{side}text_ids"], batch[f"{side}attention_mask"] == 1
    assert received.shape[:2] == numbers.shape == (len(MEMBERS), ROW)
    for row, texts in enumerate(MEMBERS):
        for number, text in enumerate(texts, 1):
            here = numbers[row] == number
            np.testing.assert_allclose(received[row][here], expected[text][real[text]], atol=5e-5)
            np.testing.assert_array_equal(labels_together[row][here], labels[text][real[text]])
    if model.task != "replaced-token-detection":
        loss = SmoothedCrossentropy(0.1)
        losses = float(loss(labels, expected)), float(loss(labels_together, received))
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("model_type", REFUSED)
def test_models_whose_tokens_meet_elsewhere_are_refused(model_type):
    with pytest.raises(InputError, match="tokens meet in attention alone"):
        PackedModel(_model(model_type))


@pytest.mark.parametrize(
    ("model_type", "task", "reason"),
    [
        ("bert", "text-classification", "has an output for whole texts"),
        ("t5", "token-classification", "is the encoder of an encoder-decoder"),
    ],
)
def test_other_outputs_are_refused(model_type, task, reason):
    sizes = {"vocab_size": 9, "hidden_dim": 4, "num_heads": 1, "num_layers": 1, "intermediate_dim": 4}
    with pytest.raises(InputError, match=reason):
        PackedModel(zoo.build(model_type, task=task, **sizes))


@pytest.mark.parametrize(
    ("batch", "length", "message"),
    [
        (lambda v: training.causal([[5] * 9], v), 8, r"at most \[8\] tokens. Received: \[9\]"),
        (lambda v: {**training.causal([[5] * 9], v), "labels": np.zeros(1)}, 9, r"labels of shape \(1,\)"),
        (lambda v: training.causal([[5]], v), 0, "length must be an integer"),
    ],
)
def test_batches_that_cannot_be_packed(batch, length, message):
    vocabulary = Vocabulary(97, end_id=2)
    with pytest.raises(InputError, match=message):
        training.pack(batch(vocabulary), vocabulary, length)


def test_spans_are_not_packed():
    vocabulary = Vocabulary(97, mask_id=4, single=((1,), (2,)), word_starts=np.ones(97, bool))
    batch = training.span_boundary([[5, 6, 7]], vocabulary, np.random.default_rng(0))
    with pytest.raises(InputError, match="span_left"):
        training.pack(batch, vocabulary, 8)


@pytest.mark.parametrize("rows", ["packed", "separate"])
def test_a_prefix_sees_itself(rows):
    """The first output depends on the last token of the prefix, but not on the rest, and other texts on neither."""
    model = _model("gpt2")
    vocabulary = Vocabulary(97)
    batch = training.prefix_lm(texts_of(LENGTHS, 88), vocabulary, np.random.default_rng(0))
    if rows == "packed":
        batch = training.pack(batch, vocabulary, ROW)
    inputs, _ = _split(batch)
    packed = PackedModel(create(type(model), model.config), prefix_lm=True)
    packed.model.set_weights(model.get_weights())
    before = np.asarray(packed(inputs))
    texts = inputs.get("text_ids", inputs["attention_mask"])
    prefix = (inputs["prefix_mask"] == 1) & (texts == 1)
    for row in range(len(before)):
        slots = np.flatnonzero(prefix[row])
        for slot, first_seen in ((slots[-1], 0), (slots[-1] + 1, slots[-1] + 1)):
            if texts[row, slot] != 1:
                continue
            changed = {**inputs, "input_ids": inputs["input_ids"].copy()}
            changed["input_ids"][row, slot] += 1
            difference = np.abs(np.asarray(packed(changed)) - before).max(axis=-1)[row] > 1e-4
            expected = (np.arange(len(difference)) >= first_seen) & (texts[row] == 1)
            np.testing.assert_array_equal(difference[texts[row] > 0], expected[texts[row] > 0])


@pytest.mark.parametrize("model_type", ["gpt2", "bloom"])
def test_it_generates_as_it_was_trained(model_type):
    """The logits of generation are those of the training, after prefixes of different lengths."""
    model = create(type(_model(model_type)), _model(model_type).config)
    model.set_weights(_model(model_type).get_weights())
    packed, vocabulary = PackedModel(model, prefix_lm=True), Vocabulary(97)
    batch = training.prefix_lm(texts_of(LENGTHS, 88), vocabulary, np.random.default_rng(1))
    inputs, _ = _split(batch)
    expected, step = np.asarray(packed(inputs)), KerasStep(model, 32, jit_compile=False)
    direct = np.asarray(model(inputs))
    for row, prefix in enumerate(inputs["prefix_mask"].sum(axis=1)):
        length = inputs["attention_mask"][row].sum()
        ids = inputs["input_ids"][row : row + 1, :length]
        state, received = step.start(ids[:, :prefix], np.ones_like(ids[:, :prefix])), []
        for column in range(prefix - 1, length):
            logits, state = step.step(ids[:, column : column + 1], state)
            received.append(logits[0, 0])
        for logits in (np.stack(received), direct[row, prefix - 1 : length]):
            np.testing.assert_allclose(logits, expected[row, prefix - 1 : length], atol=1e-5 * np.abs(expected).max())


def test_fit_and_file(tmp_path):
    """A packed model trains, and the model inside stays one that generates, saves and loads."""
    sizes = {"vocab_size": 97, "hidden_dim": 12, "num_heads": 3, "num_layers": 1, "max_length": 32}
    keras.utils.set_random_seed(0)
    model = zoo.build("gpt2", task="text-generation", **sizes)
    vocabulary, packed = Vocabulary(97, end_id=2), PackedModel(model)
    texts = [np.resize([7, 8, 9], length) for length in (5, 6, 7, 8)]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
    packed.compile(keras.optimizers.Adam(0.02), loss, run_eagerly=True)
    dataset = training.ObjectiveDataset(
        texts, lambda texts, v, rng: training.pack(training.causal(texts, v, rng), v, 16), vocabulary, batch_size=4
    )
    losses = packed.fit(dataset, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.5
    inputs, _ = dataset[0]
    packed.save(tmp_path / "packed.keras")
    again = keras.models.load_model(tmp_path / "packed.keras")
    np.testing.assert_array_equal(np.asarray(again(inputs)), np.asarray(packed(inputs)))
    assert len(model.generate(np.array([[7, 8]]), max_new_tokens=2)[0]) == 2
