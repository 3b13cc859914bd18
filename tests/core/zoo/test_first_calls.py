"""Calls as people write them who come from textbooks or from `transformers`."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import transformers

import kerasformer as kf
from kerasformer.errors import InputError
from kerasformer.files.sources import resolve
from kerasformer.models.registry import architecture


@pytest.fixture(scope="module")
def bert():
    return kf.load("sentiment-bert")


def test_arrays_by_name(bert):
    batch = bert.tokenizer(["A warm and funny film.", "Dull."])
    expected = np.asarray(bert(batch))
    np.testing.assert_array_equal(bert(**batch), expected)
    rest = {name: array for name, array in batch.items() if name != "input_ids"}
    np.testing.assert_array_equal(bert(batch["input_ids"], **rest), expected)
    states = bert(**batch, output_attentions=True, output_hidden_states=True)
    assert set(states) == {"output", "attentions", "hidden_states"}
    for name, hint in {"labels": "model.fit", "return_dict": "return_attention", "use_cache": "model.generate"}.items():
        with pytest.raises(InputError, match=f"{name} is not an argument here: .*{hint}"):
            bert(**batch, **{name: True})


def test_names_of_settings(bert):
    config = bert.config
    assert (config.num_attention_heads, config.hidden_size) == (config.num_heads, config.hidden_dim)
    with pytest.raises(AttributeError, match="Did you mean hidden_dim"):
        _ = config.hiden_dim
    assert not hasattr(config, "num_experts") and getattr(config, "rope_theta", None) is None


def test_no_key_of_a_file_hides_a_missing_field():
    used = "max_length head_dim num_key_value_heads hidden_dropout attention_dropout embedding_dim pooling".split()
    for name in kf.zoo.models():
        config_type = next(iter(architecture(name).MODELS.values())).backbone_type.config_type
        fields = {*dir(config_type), *config_type.__dataclass_fields__}
        for missing in set(used) - fields:
            assert not hasattr(config_type.create(), missing), (name, missing)


@pytest.mark.parametrize("preset", ["story-gpt2", "summarizer-t5"])
def test_tensors_of_another_tokenizer(preset):
    model, tokenizer = kf.load(preset), transformers.AutoTokenizer.from_pretrained(resolve(preset))
    encoded = tokenizer(["It counts words."], return_tensors="pt")
    options = {"max_new_tokens": 3, "do_sample": False, "num_beams": 1, "jit_compile": False}
    expected = model.generate(model.tokenizer(["It counts words."]), **options)
    for result in (model.generate(**encoded, **options), model.generate(encoded, **options)):
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(InputError, match="Received: both"):
        model.generate("It", input_ids=encoded["input_ids"])
    with pytest.raises(InputError, match="Received: neither"):
        model.generate(max_new_tokens=3)


def test_attention_without_heads():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    mask = np.tril(np.ones((5, 5), bool))
    context, weights = kf.layers.scaled_dot_product_attention(x, x, x, mask)
    expected = kf.layers.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask)
    np.testing.assert_allclose(context, np.asarray(expected[0])[:, 0], atol=1e-6)
    assert weights.shape == (2, 5, 5)
    single, _ = kf.layers.scaled_dot_product_attention(x[0], x[0], x[0], mask)
    np.testing.assert_allclose(single, context[0], atol=1e-6)
    rows = np.stack([mask, np.ones_like(mask)])
    different, _ = kf.layers.scaled_dot_product_attention(x, x, x, rows)
    np.testing.assert_allclose(different[0], context[0], atol=1e-6)
    with pytest.raises(InputError, match="same number of axes"):
        kf.layers.scaled_dot_product_attention(x[:, None], x, x)


def test_a_value_is_no_mask():
    x = np.random.default_rng(0).normal(size=(2, 8, 8)).astype("float32")
    with pytest.raises(InputError, match=r"attention\(x\) for self-attention"):
        kf.layers.MultiHeadAttention(2, 8)(x, x, x)  # with as many tokens as channels, as a mask would have
    inputs = keras.Input((8, 8))
    with pytest.raises(InputError, match="boolean or integers"):
        kf.layers.MultiHeadAttention(2, 8)(inputs, inputs, inputs)
