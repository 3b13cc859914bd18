"""What only XLM has: languages that may be omitted, sinusoidal positions, and heads that are not implemented."""

from __future__ import annotations

import shutil

import keras
import numpy as np
import pytest
import torch

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.tools.testing.comparison import assert_same_outputs, make_inputs, run, run_reference
from tests.core.zoo.cases import CASES
from tests.core.zoo.test_loading import change_config

XLM, CAUSAL, MONOLINGUAL = (case for case in CASES if case.model_type == "xlm")


@pytest.mark.parametrize("task", ["fill-mask", "text-classification"])
def test_without_languages_no_embedding_is_added(loaded, task):
    it = loaded((XLM, task))
    inputs = make_inputs(it)
    without = {name: array for name, array in inputs.items() if name != "langs"}
    assert_same_outputs(without, run(it, without), run_reference(it.reference, without))
    (with_zeros,) = run(it, {**without, "langs": inputs["langs"] * 0}).values()
    (with_none,) = run(it, without).values()
    assert not np.allclose(with_zeros, with_none, atol=1e-2)


@pytest.mark.parametrize("case", [CAUSAL, MONOLINGUAL], ids=str)
def test_a_model_without_language_embeddings_has_no_such_input(loaded, case):
    it = loaded((case, "fill-mask"))
    assert it.model.input_names == ("input_ids", "attention_mask")
    inputs = make_inputs(it)
    with pytest.raises(InputError, match="expects input_ids, attention_mask. Received: .*langs"):
        run(it, {**inputs, "langs": inputs["input_ids"] * 0})


@pytest.mark.parametrize("size", [12, 9])
def test_new_models_have_the_sinusoids_of_the_reference(size):
    from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

    sizes = {"vocab_size": 20, "num_layers": 1, "num_heads": 3, "max_length": 33}
    model = zoo.build("xlm", "feature-extraction", hidden_dim=size, sinusoidal=True, **sizes)
    table = keras.ops.convert_to_numpy(model.backbone.embeddings.positions.embeddings)
    expected = create_sinusoidal_embeddings(33, size, torch.zeros(33, size)).numpy()
    np.testing.assert_allclose(table, expected, atol=1e-6)


def test_the_head_with_a_beam_is_refused_by_name(loaded, tmp_path):

    folder = shutil.copytree(loaded((XLM, "question-answering")).folder, tmp_path / "checkpoint")
    change_config(folder, architectures=["XLMForQuestionAnswering"])
    with pytest.raises(
        InputError, match=r"XLMForQuestionAnsweringSimple \(question-answering\). Received: .*'XLMForQuestionAnswering'"
    ):
        zoo.load(folder)
