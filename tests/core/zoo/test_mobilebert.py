"""MobileBERT: embeddings of padding, and layers that the reference creates without using them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kerasformer import zoo
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import (
    Loaded,
    assert_close,
    assert_same_outputs,
    make_inputs,
    run,
    run_reference,
)
from tests.core.zoo.cases import MOBILEBERT


def loaded_from(folder, task="feature-extraction", zero_padding=False, **settings):
    """Saves a random model of the reference and loads it."""
    case = Case("mobilebert", "mobilebert", {**MOBILEBERT, **settings}, std=0.15, zero_padding=zero_padding)
    reference = case.reference(task)
    reference.save_pretrained(folder)
    return Loaded(case, task, folder, reference, zoo.load(folder))


def test_padding_does_not_affect_its_neighbors(tmp_path):
    """In the reference it does, unless the embedding of the padding token is 0, as in published checkpoints."""
    it = loaded_from(tmp_path)
    batch = make_inputs(it)
    inputs = {name: array[1:2] for name, array in batch.items()}
    alone = {name: array[:, :4] for name, array in inputs.items()}
    ours, expected = (run(it, given)["last_hidden_state"] for given in (inputs, alone))
    assert_close({}, ours[:, :4], expected)
    assert_same_outputs(alone, run(it, alone), run_reference(it.reference, alone))
    theirs = run_reference(it.reference, inputs).last_hidden_state[:, :4]
    assert np.abs(theirs.numpy() - expected).max() > 1e-2
    with torch.no_grad():
        it.reference.get_input_embeddings().weight[0] = 0
    assert_close({}, expected, run_reference(it.reference, inputs).last_hidden_state[:, :4])


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op:UserWarning")  # of PyTorch
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("feature-extraction", {"use_bottleneck_attention": True}),
        ("fill-mask", {"trigram_input": False, "embedding_size": 36}),
    ],
    ids=["reduction for queries and keys", "projection of token embeddings"],
)
def test_unused_layers_of_the_reference_are_ignored(tmp_path, task, settings):
    it = loaded_from(tmp_path / "first", task, zero_padding=True, **settings)
    inputs = make_inputs(it)
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))
    it.model.save_pretrained(tmp_path / "second")
    theirs = type(it.reference).from_pretrained(tmp_path / "second", attn_implementation="eager").eval()
    assert_same_outputs(inputs, run(it, inputs), run_reference(theirs, inputs))
