"""OPT whose norms have neither scale nor bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer.engines import open_engine
from kerasformer.generation import GenerationConfig, generate

SIZES = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 64,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "options"),
    [("onnx", {}), pytest.param("tflite", {"capacity": 32}, marks=pytest.mark.grid)],
)
def test_an_int8_bundle_without_scales_of_norms_generates_as_transformers(tmp_path, format, options):
    torch.manual_seed(2)
    config = transformers.OPTConfig(**SIZES, layer_norm_elementwise_affine=False, init_std=0.3)
    theirs = transformers.OPTForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path / "checkpoint")
    model = kf.load(tmp_path / "checkpoint")
    assert not any("norm" in variable.path for variable in model.weights)
    model.export(tmp_path / "bundle", format, "int8", **options)
    prompt = np.array([[5, 17, 40, 8]])
    expected = theirs.generate(torch.tensor(prompt), do_sample=False, max_new_tokens=8)[:, 4:].numpy()
    config = GenerationConfig(max_new_tokens=8, eos_token_id=2)
    found = generate(open_engine(tmp_path / "bundle"), prompt, config=config).sequences
    assert [row.tolist() for row in found] == expected.tolist()
