"""Gemma 3: texts much longer than the window, and numbers that depend on the data type of the weights."""

from __future__ import annotations

import json
import shutil

import keras
import numpy as np
import pytest
import torch
import transformers

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.tools.testing.comparison import assert_same_outputs, make_inputs, run_reference
from kerasformer.zoo.gemma3_text import Gemma3TextConfig
from tests.core.zoo.cases import CASES

pytestmark = pytest.mark.grid

ROW = next(case for case in CASES if case.name == "gemma3"), "text-generation"
BIDIRECTIONAL = next(case for case in CASES if case.name == "embeddinggemma"), "feature-extraction"


def test_the_scale_of_the_embeddings_is_rounded_to_their_data_type(loaded):
    it = loaded(ROW)
    model = zoo.load(it.folder, dtype="bfloat16")
    theirs = transformers.Gemma3ForCausalLM.from_pretrained(it.folder, dtype=torch.bfloat16)
    ids = np.arange(3, 97)[None]
    expected = theirs.get_input_embeddings()(torch.tensor(ids)).detach().float().numpy()
    actual = model.backbone(ids, return_hidden_states=True)["hidden_states"][0]
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.ops.cast(actual, "float32")), expected)
    rounded, exact = (np.float32(torch.tensor(6.0833).to(dtype).item()) for dtype in (torch.bfloat16, torch.float32))
    assert rounded != exact  # otherwise this test compares nothing


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_16_bits_are_added_to_1_without_rounding(loaded, dtype, tmp_path):
    it = loaded(ROW)
    it.reference.__class__.from_pretrained(it.folder, dtype=dtype).save_pretrained(tmp_path)
    theirs = transformers.Gemma3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    inputs = make_inputs(it)
    model = zoo.load(tmp_path)
    assert_same_outputs(inputs, {"logits": model(inputs)}, run_reference(theirs, inputs))


def test_a_window_on_both_sides_has_tokens_on_each():
    settings = {**BIDIRECTIONAL[0].settings, "sliding_window": 1}
    with pytest.raises(UnsupportedConfigError, match="sliding_window must be at least 2.*Received: sliding_window=1"):
        Gemma3TextConfig.from_hf(settings)


def test_a_bidirectional_checkpoint_without_a_class_is_not_for_generation(loaded, tmp_path):
    folder = shutil.copytree(loaded(BIDIRECTIONAL).folder, tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    del content["architectures"]
    (folder / "config.json").write_text(json.dumps(content))
    assert zoo.load(folder).task == "feature-extraction"
    with pytest.raises(UnsupportedConfigError, match="cannot generate texts.*Received: task='text-generation'"):
        zoo.load(folder, "text-generation")
