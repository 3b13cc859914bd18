"""An additional input array, which an architecture adds by listing it in its backbone."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.export import export
from kerasformer.models.task_models import FeatureExtraction
from kerasformer.models.text_inputs import TextInput
from kerasformer.pipelines import pipeline
from kerasformer.zoo.bert import Bert, BertConfig
from tests import tiny_text

LANGUAGES = 4


class MultilingualBert(Bert):
    """BERT with language embeddings."""

    input_arrays = (*Bert.input_arrays, TextInput("langs", "languages", LANGUAGES))

    def make_embeddings(self, **options):
        return super().make_embeddings(tables={"languages": LANGUAGES}, **options)


class MultilingualFeatures(FeatureExtraction, backbone=MultilingualBert):
    """Hidden states of the model."""


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(5)
    tokenizer = tiny_text.wordpiece()
    sizes = {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "intermediate_dim": 24, "max_length": 16}
    built = MultilingualFeatures(BertConfig(vocab_size=tokenizer.vocab_size, initializer_range=0.3, **sizes))
    built.build()
    built.tokenizer = tokenizer
    return built


def test_the_array_is_an_input_with_values_and_a_default(model):
    ids = np.array([[3, 5, 4]], "int32")
    assert model.input_names == ("input_ids", "attention_mask", "token_type_ids", "langs")
    default, zeros, twos = (
        keras.ops.convert_to_numpy(model({"input_ids": ids, **given}))
        for given in ({}, {"langs": ids * 0}, {"langs": ids * 0 + 2})
    )
    assert np.array_equal(default, zeros)
    assert not np.allclose(default, twos, atol=1e-2)
    with pytest.raises(InputError, match="langs must be from 0 to 3"):
        model({"input_ids": ids, "langs": ids})


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_bundles_take_the_array_and_pipelines_need_not_give_it(model, format, tmp_path):
    export(model, tmp_path / "bundle", format=format, overwrite=True)
    bundle = pipeline(tmp_path / "bundle", "feature-extraction")
    expected = pipeline(model, "feature-extraction")("the cat")
    assert np.allclose(bundle("the cat"), expected, atol=1e-4)
    ids = np.array([[3, 5, 4]], "int32")
    given = {"input_ids": ids, "attention_mask": ids * 0 + 1, "langs": ids * 0 + 2}
    (answer,) = bundle.model.run(given).values()
    assert np.allclose(answer, keras.ops.convert_to_numpy(model(given)), atol=1e-4)
