"""Each loss equals that of `transformers` for the same batch and weights."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
import pytest
import torch
import transformers

from kerasformer import zoo
from kerasformer.tools import training
from kerasformer.tools.testing.comparison import run_reference
from kerasformer.tools.training import Masking, Vocabulary
from tests.tools.training.objectives.spelled import texts_of

SIZES = {"vocab_size": 97, "hidden_dim": 12, "num_layers": 2, "num_heads": 3, "intermediate_dim": 20}
ENCODER = {**SIZES, "max_length": 40, "initializer_range": 0.3}
DECODER = {name: size for name, size in ENCODER.items() if name != "intermediate_dim"}
BOTH = {**SIZES, "num_decoder_layers": 2}
BART_SIZES = {**BOTH, "max_length": 40, "initializer_range": 0.3}
VOCABULARY = Vocabulary(
    97, mask_id=4, special_ids=(0, 1, 2, 3, 4), single=((1,), (2,)), pair=((1,), (2,), (2,)), segments=True
)
SEQ2SEQ = Vocabulary(
    90, mask_id=4, sentinel_ids=(96, 95, 94, 93), single=((), (1,)), target=((), (1,)), start_id=0, encoder_decoder=True
)
BART = replace(SEQ2SEQ, start_id=2, pad_id=1, single=((0,), (2,)), target=((0,), (2,)))
TEXTS = texts_of([9, 17, 4], 90)
DOCUMENTS = [texts_of([4, 6, 3], 90), texts_of([5, 5], 90), texts_of([7, 2, 2, 4], 90)]
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
GPT = Vocabulary(97, end_id=2)
HALF = Masking(rate=0.5)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _without_decoder_inputs(batch: dict) -> dict:
    """The reference shifts the labels itself."""
    return {name: array for name, array in batch.items() if not name.startswith("decoder_")}


def _with_last_token(batch: dict) -> dict:
    """The reference reads the whole text and shifts the labels itself."""
    last = batch["labels"].max(axis=1, keepdims=True) * 0 + 2
    ids = np.concatenate([batch["input_ids"], last], axis=1)
    labels = np.concatenate([np.full_like(last, -100), batch["labels"]], axis=1)
    return {"input_ids": ids, "labels": labels}


CASES = {
    "bert": (
        ("bert", "pretraining", ENCODER, "BertForPreTraining"),
        lambda: training.next_sentence(DOCUMENTS, VOCABULARY, _rng(), masking=HALF),
        ("prediction_logits", "labels"),
        ("seq_relationship_logits", "next_sentence_label"),
    ),
    "albert": (
        ("albert", "pretraining", {**ENCODER, "embedding_dim": 8}, "AlbertForPreTraining"),
        lambda: training.sentence_order(DOCUMENTS, VOCABULARY, _rng(), masking=HALF),
        ("prediction_logits", "labels"),
        ("sop_logits", "sentence_order_label"),
    ),
    "bert-masked": (
        ("bert", "fill-mask", ENCODER, "BertForMaskedLM"),
        lambda: training.masked(TEXTS, VOCABULARY, _rng()),
    ),
    "xlm": (
        ("xlm", "fill-mask", {**DECODER, "n_languages": 3}, "XLMWithLMHeadModel"),
        lambda: training.translation_lm(
            list(zip(TEXTS, TEXTS[::-1], strict=True)), replace(VOCABULARY, segments=False), _rng(), (2, 1)
        ),
    ),
    "gpt2": (
        ("gpt2", "text-generation", DECODER, "GPT2LMHeadModel"),
        lambda: training.causal(TEXTS, GPT),
    ),
    "t5": (
        ("t5", "text2text-generation", {**BOTH, "decoder_start_token_id": 0}, "T5ForConditionalGeneration"),
        lambda: training.span_corruption(TEXTS, SEQ2SEQ, _rng(), 0.3),
    ),
    "bart": (
        ("bart", "text2text-generation", BART_SIZES, "BartForConditionalGeneration"),
        lambda: training.denoising(DOCUMENTS, BART, _rng()),
    ),
    "pegasus": (
        ("pegasus", "text2text-generation", BART_SIZES, "PegasusForConditionalGeneration"),
        lambda: training.gap_sentences(DOCUMENTS, SEQ2SEQ, _rng()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_losses(case, tmp_path):
    (model_type, task, sizes, reference), make, *outputs = CASES[case]
    keras.utils.set_random_seed(0)
    model = zoo.build(model_type, task=task, **sizes)
    model.save_pretrained(tmp_path)
    theirs = getattr(transformers, reference).from_pretrained(tmp_path).eval()
    batch = make()
    inputs = dict(batch)
    labels = inputs.pop("labels")
    model.compile(loss={name: CROSSENTROPY for name, _ in outputs} if outputs else CROSSENTROPY)
    ours = float(model.compute_loss(inputs, labels, model(inputs)))
    if outputs:
        expected = {**inputs, **{label: labels[name] for name, label in outputs}}
    elif model_type == "gpt2":
        expected = _with_last_token(batch)
    else:
        expected = _without_decoder_inputs(batch)
    assert ours == pytest.approx(float(run_reference(theirs, expected).loss), rel=1e-5)


@pytest.mark.jax_release
def test_loss_of_electra(tmp_path):
    """A generator that always writes the same token: where that is the original, it is not replaced (section 2)."""
    embedding = {**ENCODER, "embedding_dim": 8}
    keras.utils.set_random_seed(0)
    generator = zoo.build("electra", task="fill-mask", **embedding)
    discriminator = zoo.build("electra", task="replaced-token-detection", **{**embedding, "hidden_dim": 24})
    bias = np.zeros(97, "float32")
    bias[50] = 100
    generator.head.bias.assign(bias)
    both = training.ReplacedTokens(generator, discriminator)
    assert len(both.trainable_variables) == len({id(each) for each in both.trainable_variables})
    assert generator.backbone.embeddings.tokens is discriminator.backbone.embeddings.tokens
    texts = [np.where(np.arange(len(text)) % 2, text, 50) for text in TEXTS]
    batch = training.replaced_tokens(texts, VOCABULARY, _rng(), Masking(rate=0.6, masked=1.0, random=0.0))
    labels = batch.pop("labels")
    both.compile()
    output = both(batch)
    ours = float(both.compute_loss(batch, labels, output))
    masked, real = labels != -100, batch["attention_mask"] == 1
    ids = np.where(masked, 50, batch["original_ids"])
    replaced = (ids != batch["original_ids"]).astype("int32")
    assert 0 < replaced.sum() < masked.sum()
    np.testing.assert_array_equal(np.asarray(output["replaced"]), np.where(real, replaced, -100))
    inputs = {name: batch[name] for name in ("attention_mask", "token_type_ids")}
    losses = []
    for name, model, given in (
        ("ElectraForMaskedLM", generator, {"input_ids": batch["input_ids"], "labels": labels}),
        ("ElectraForPreTraining", discriminator, {"input_ids": ids, "labels": replaced}),
    ):
        model.save_pretrained(tmp_path / name)
        theirs = getattr(transformers, name).from_pretrained(tmp_path / name).eval()
        losses.append(float(run_reference(theirs, {**inputs, **given}).loss))
    assert ours == pytest.approx(losses[0] + 50 * losses[1], rel=1e-5)
    measured = [float(mean.result()) for mean in (both.generator_mean, both.discriminator_mean)]
    assert measured == pytest.approx(losses, rel=1e-5)


@pytest.mark.jax_release
def test_binary_crossentropy_of_pytorch():
    rng = _rng()
    logits, labels = rng.normal(0, 30, (4, 7)).astype("float32"), rng.integers(0, 2, (4, 7))
    expected = torch.nn.BCEWithLogitsLoss(reduction="none")(torch.tensor(logits), torch.tensor(labels).float()).numpy()
    labels[1, 3:] = -100
    counts = labels != -100
    each = keras.ops.convert_to_numpy(training.MaskedBinaryCrossentropy(reduction="none")(labels, logits))
    np.testing.assert_allclose(each, np.where(counts, expected, 0), rtol=1e-5, atol=1e-6)
    mean = float(training.MaskedBinaryCrossentropy()(labels, logits))
    assert mean == pytest.approx(expected[counts].mean(), rel=1e-5)
