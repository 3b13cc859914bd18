"""Models around models: ELECTRA's pair, SpanBERT's boundary, scheduled sampling; `fit`, and their files."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import torch

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.tools import training
from kerasformer.tools.training import InverseSigmoidDecay, Masking, ScheduledSampling, SpanBoundary, Vocabulary
from tests.grids import on_jax
from tests.tools.training.objectives.spelled import texts_of

SIZES = {"vocab_size": 97, "hidden_dim": 12, "num_layers": 1, "num_heads": 3}
ENCODER = {**SIZES, "intermediate_dim": 20, "max_length": 40}
VOCABULARY = Vocabulary(
    97, mask_id=4, special_ids=tuple(range(5)), single=((1,), (2,)), end_id=2, word_starts=np.ones(97, bool)
)
TEXTS = texts_of([9, 17, 4, 12])
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)


def _reopened(model: keras.Model, inputs: dict, path: Path, name: str | None = None) -> None:
    """A `.keras` file has the weights of all parts."""
    if model.optimizer is not None:
        model.optimizer.build(model.trainable_variables)  # as in training, from which models are saved
    model.save(path / "model.keras")
    again = keras.models.load_model(path / "model.keras")
    outputs = [each(inputs) for each in (again, model)]
    received, expected = (keras.tree.flatten(output if name is None else output[name]) for output in outputs)
    for ours, theirs in zip(received, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_electra_trains_both_models(tmp_path):
    sizes = {**ENCODER, "embedding_dim": 8}
    generator = zoo.build("electra", task="fill-mask", **sizes)
    discriminator = zoo.build("electra", task="replaced-token-detection", **{**sizes, "hidden_dim": 24})
    electra = training.ReplacedTokens(generator, discriminator, seed=1)
    electra.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    dataset = training.ObjectiveDataset(TEXTS, training.replaced_tokens, VOCABULARY, batch_size=2)
    before = [np.asarray(weight) for weight in electra.trainable_weights]
    history = electra.fit(dataset, verbose=0).history
    assert all((np.asarray(weight) != old).any() for weight, old in zip(electra.trainable_weights, before, strict=True))
    total = history["generator_loss"][0] + 50 * history["discriminator_loss"][0]
    assert history["loss"][0] == pytest.approx(total, rel=1e-4)
    inputs, _ = dataset[0]
    own = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    for model in (generator, discriminator):  # a checkpoint of each has the shared tables
        model.save_pretrained(tmp_path / model.task)
        np.testing.assert_array_equal(
            np.asarray(zoo.load(tmp_path / model.task, model.task)(own)), np.asarray(model(own))
        )
    _reopened(electra, inputs, tmp_path, "prediction_logits")  # the others depend on what is drawn


def test_the_generator_draws_from_its_distribution():
    sizes = {**ENCODER, "embedding_dim": 8}
    models = [zoo.build("electra", task=task, **sizes) for task in ("fill-mask", "replaced-token-detection")]
    for weight in models[0].trainable_weights:
        weight.assign(np.zeros(weight.shape))
    bias = np.full(97, -100, "float32")
    bias[8], bias[20:40] = np.log(0.75), np.log(0.25 / 20)
    models[0].head.bias.assign(bias)
    electra = training.ReplacedTokens(*models, seed=0)
    ids = np.full((40, 40), 4)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "original_ids": np.full_like(ids, 8)}
    replaced = np.asarray(electra(inputs)["replaced"])
    assert replaced.mean() == pytest.approx(0.25, abs=0.04)


@pytest.mark.jax_release
def test_the_boundary_head_of_pytorch(tmp_path):
    """Section 3.2 in `torch.nn`: y = LN(GELU(W2 LN(GELU(W1 [x_left; x_right; p])))), then the token table."""
    model = zoo.build("bert", task="fill-mask", **ENCODER, initializer_range=0.5)
    both = SpanBoundary(model, max_span=4, position_dim=5)
    batch = training.span_boundary(TEXTS, VOCABULARY, np.random.default_rng(0), Masking(unit="span", rate=0.5))
    labels = batch.pop("labels")
    output = both(batch)
    own = {name: batch[name] for name in ("input_ids", "attention_mask")}
    np.testing.assert_allclose(np.asarray(output["prediction_logits"]), np.asarray(model(own)), atol=1e-5)
    states = torch.tensor(np.asarray(model.backbone(own["input_ids"], attention_mask=own["attention_mask"])))
    head = both.boundary
    rows = torch.arange(len(TEXTS))[:, None]
    left, right, index = (torch.tensor(batch[f"span_{name}"]).long() for name in ("left", "right", "index"))
    positions = torch.tensor(np.asarray(head.positions.embeddings))[index.clamp(max=3)]
    x = torch.cat([states[rows, left], states[rows, right], positions], dim=-1)
    for dense, norm in zip(head.dense, head.norms, strict=True):
        kernel, bias = (torch.tensor(np.asarray(weight)) for weight in (dense.kernel, dense.bias))
        scale, offset = (torch.tensor(np.asarray(weight)) for weight in (norm.scale, norm.bias))
        x = torch.nn.functional.gelu(x @ kernel + bias)
        x = torch.nn.functional.layer_norm(x, (12,), scale, offset, norm.epsilon)
    expected = x @ torch.tensor(np.asarray(model.backbone.embeddings.tokens.embeddings)).T
    chosen = labels["boundary_logits"] != -100
    np.testing.assert_allclose(np.asarray(output["boundary_logits"])[chosen], expected.numpy()[chosen], atol=1e-4)
    both.compile("adam", {name: CROSSENTROPY for name in labels})
    loss = torch.nn.functional.cross_entropy(expected[chosen], torch.tensor(labels["boundary_logits"][chosen]).long())
    words = float(CROSSENTROPY(labels["prediction_logits"], output["prediction_logits"]))
    assert float(both.compute_loss(batch, labels, output)) == pytest.approx(words + float(loss), rel=1e-4)
    _reopened(both, batch, tmp_path)


def _decoder() -> keras.Model:
    return zoo.build("gpt2", task="text-generation", **SIZES, max_length=40)


@pytest.mark.parametrize(
    ("kind", "probability"),
    [
        *((kind, probability) for kind in ("gpt2", "bart") for probability in (0.0, 1.0)),
        *on_jax(["gpt2", "bart"], [0.5], chosen=[("gpt2", 0.5)]),
    ],
)
def test_scheduled_sampling(kind, probability):
    """The second pass reads the best tokens of the first one, shifted by one, where a right token is not kept."""
    sizes = {"embedding_dropout": 0.0, "residual_dropout": 0.0} if kind == "gpt2" else {"dropout": 0.0}
    further = {} if kind == "gpt2" else {"intermediate_dim": 20, "num_decoder_layers": 1, "activation_dropout": 0.0}
    task = "text-generation" if kind == "gpt2" else "text2text-generation"
    model = zoo.build(
        kind, task=task, **SIZES, max_length=40, initializer_range=0.5, attention_dropout=0.0, **sizes, **further
    )
    vocabulary = Vocabulary(97, end_id=2, start_id=2, encoder_decoder=kind == "bart")
    batch = (
        training.causal(TEXTS, vocabulary)
        if kind == "gpt2"
        else training.translation(list(zip(TEXTS, TEXTS[::-1], strict=True)), vocabulary)
    )
    labels = batch.pop("labels")
    sampled = ScheduledSampling(model, probability, seed=3)
    right = np.asarray(model(batch))
    np.testing.assert_array_equal(np.asarray(sampled(batch)), right)  # outside of training
    received = np.asarray(sampled(batch, training=True))
    name = "input_ids" if kind == "gpt2" else "decoder_input_ids"
    ids = batch[name]
    own = np.concatenate([ids[:, :1], right.argmax(axis=-1)[:, :-1]], axis=1)
    kept = keras.ops.convert_to_numpy(keras.random.uniform(ids.shape, seed=keras.random.SeedGenerator(3)) < probability)
    assert kept.mean() == pytest.approx(probability, abs=0.2) and (own != ids).any()
    expected = np.asarray(model({**batch, name: np.where(kept, ids, own)}))
    np.testing.assert_allclose(received[labels >= 0], expected[labels >= 0], atol=1e-4)
    assert float(sampled.step) == 1


def test_inverse_sigmoid_decay():
    """Figure 1 of Bengio et al.: k / (k + exp(i / k)), even where the exponential overflows."""
    schedule = InverseSigmoidDecay(20.0)
    steps = np.array([0, 10, 60, 200, 10_000], "float64")
    with np.errstate(over="ignore"):
        expected = 20 / (20 + np.exp(steps / 20))
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, atol=1e-6)
    with pytest.raises(InputError, match="k must be a number of at least 1"):
        InverseSigmoidDecay(0.5)


def test_scheduled_sampling_trains_and_is_saved(tmp_path):
    sampled = ScheduledSampling(_decoder(), InverseSigmoidDecay(5.0), seed=0)
    sampled.compile(keras.optimizers.Adam(0.01), CROSSENTROPY, run_eagerly=True)
    dataset = training.ObjectiveDataset(TEXTS, training.causal, VOCABULARY, batch_size=2)
    before = [np.asarray(weight) for weight in sampled.trainable_weights]
    sampled.fit(dataset, epochs=2, verbose=0)
    assert any((np.asarray(weight) != old).any() for weight, old in zip(sampled.trainable_weights, before, strict=True))
    assert float(sampled.step) == 4
    _reopened(sampled, dataset[0][0], tmp_path)
