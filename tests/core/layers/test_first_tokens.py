"""`count`: the last layer of an encoder computes only the first tokens, with equal results."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer import layers, zoo
from kerasformer.layers.sentence import NORMALIZE
from kerasformer.models.sentence_settings import SentenceSettings
from tests.core.layers.parity import assert_close

pytestmark = pytest.mark.grid

SIZES = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "intermediate_dim": 20, "max_length": 16}


@pytest.mark.parametrize("order", ["post_norm", "pre_norm"])
def test_the_first_tokens_are_those_of_the_whole(order) -> None:
    def layer() -> layers.EncoderLayer:
        attention, feed_forward = layers.MultiHeadAttention(3, 12), layers.FeedForward(12, 20, "gelu")
        return layers.EncoderLayer(attention, feed_forward, order=order)

    encoder = layers.Encoder([layer(), layer()])
    x = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])[:, None, None] > 0
    whole, first = encoder(x, attention_mask=mask), encoder(x, attention_mask=mask, count=2, return_hidden_states=True)
    assert first["output"].shape == (2, 2, 12) and first["hidden_states"][1].shape == (2, 5, 12)
    assert_close(np.asarray(first["output"]), np.asarray(whole)[:, :2])


@pytest.mark.parametrize(
    ("task", "expected"), [("text-classification", 1), ("token-classification", 7), ("feature-extraction", 7)]
)
def test_a_text_classifier_computes_only_the_first_token(task, expected, monkeypatch) -> None:
    model = zoo.build("bert", task, vocab_size=20, **SIZES)
    lengths = []
    part = model.backbone.encoder.layers[-1].feed_forward
    call = part.call
    monkeypatch.setattr(part, "call", lambda x, *rest, **named: lengths.append(x.shape[1]) or call(x, *rest, **named))
    inputs = {"input_ids": np.arange(14, dtype="int32").reshape(2, 7)}
    model(inputs)
    assert lengths == [expected]
    model(inputs, return_hidden_states=True)  # requests the states of all tokens
    assert lengths == [expected, 7]


@pytest.mark.parametrize(
    ("model_type", "settings", "expected"),
    [
        ("bert", {}, 1),
        ("albert", {}, 1),
        ("roberta", {}, 1),
        ("electra", {}, 1),
        ("mpnet", {}, 1),  # scores depend on the position of the query
        ("xlm", {}, 1),  # the output of padding is 0
        ("xlm", {"causal": True}, 1),
        ("mobilebert", {"bottleneck_dim": 6, "embedding_dim": 6}, 1),  # the layers have narrower states
        ("mobilebert", {"bottleneck_dim": 6, "embedding_dim": 6, "attention_in_bottleneck": True}, 1),
        (
            "deberta",
            {"relative_attention": True, "relative_terms": "c2p|p2c", "max_distance": 6},
            7,
        ),  # distances of all tokens
        ("modernbert", {"window": 2}, 7),
    ],
)
def test_an_embedding_of_the_first_token_computes_no_others(model_type, settings, expected, monkeypatch) -> None:
    sizes = SIZES if model_type != "roberta" else {**SIZES, "num_positions": 18}
    if model_type in ("roberta", "mpnet"):
        sizes = {name: size for name, size in {**sizes, "num_positions": 18}.items() if name != "max_length"}
    if model_type == "xlm":
        sizes = {name: size for name, size in sizes.items() if name != "intermediate_dim"}
    pooling = SentenceSettings(("cls",), (NORMALIZE,))
    model = zoo.build(model_type, "sentence-similarity", vocab_size=20, sentence=pooling, **sizes, **settings)
    lengths = []
    part = model.backbone.encoder.layers[-1].feed_forward
    call = part.call
    monkeypatch.setattr(part, "call", lambda x, *rest, **named: lengths.append(x.shape[1]) or call(x, *rest, **named))
    ids = np.arange(3, 17, dtype="int32").reshape(2, 7)
    mask = np.array([[0, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]], "int32")  # padding on both sides, and none
    for inputs in ({"input_ids": ids, "attention_mask": mask}, {"input_ids": ids}):
        every_token = model(inputs, return_hidden_states=True)["output"]
        lengths.clear()
        assert_close(np.asarray(model(inputs)), np.asarray(every_token))
        assert lengths[-1] == expected
