"""The Transformer of 2017, compared with the layers of PyTorch, and trained from scratch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import safetensors.torch
import torch

from kerasformer import zoo
from kerasformer.tools.testing.comparison import assert_close, ragged

pytestmark = pytest.mark.grid

CONFIGS = {
    "usual": {"hidden_dim": 32, "num_heads": 4, "intermediate_dim": 44, "num_layers": 2, "num_decoder_layers": 3},
    "odd": {"hidden_dim": 30, "num_heads": 5, "intermediate_dim": 7, "num_layers": 3, "num_decoder_layers": 1},
    "others": {
        "hidden_dim": 24, "num_heads": 3, "intermediate_dim": 20, "num_layers": 1, "num_decoder_layers": 2,
        "hidden_act": "gelu", "epsilon": 1e-2, "tied": False, "decoder_start_token_id": 4,
    },
}  # fmt: skip


def model_of(settings: dict[str, Any]) -> Any:
    """Returns a model with large random weights."""
    model = zoo.build("transformer", vocab_size=97, max_length=40, **settings)
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.25, variable.shape) + variable.path.endswith("scale"))
    return model


def sinusoids(length: int, size: int) -> torch.Tensor:
    """Returns the positions as in section 3.5 of the paper."""
    rows = [[position / 10000 ** (2 * (i // 2) / size) for i in range(size)] for position in range(length)]
    waves = [[math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(row)] for row in rows]
    return torch.tensor(waves)


class Reference:
    """The model with the layers of PyTorch, from the tensors of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.config = config = json.loads((folder / "config.json").read_text())
        size, heads, inner = config["d_model"], config["num_attention_heads"], config["ffn_dim"]
        options = {"dropout": 0.0, "activation": config["activation_function"], "batch_first": True}
        options["layer_norm_eps"] = config["layer_norm_eps"]
        encoder = torch.nn.TransformerEncoderLayer(size, heads, inner, **options)
        decoder = torch.nn.TransformerDecoderLayer(size, heads, inner, **options)
        count = config["encoder_layers"], config["decoder_layers"]
        self.encoder = torch.nn.TransformerEncoder(encoder, count[0], enable_nested_tensor=False).train(False)
        self.decoder = torch.nn.TransformerDecoder(decoder, count[1]).train(False)
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            for index, layer in enumerate(stack.layers):
                layer.load_state_dict(self.layer(f"model.{name}.layers.{index}.", name == "decoder"))

    def layer(self, prefix: str, decodes: bool) -> dict[str, torch.Tensor]:
        """Returns the tensors of a layer by PyTorch's names."""
        own = {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}
        parts = {"self_attn": "self_attn", **({"multihead_attn": "encoder_attn"} if decodes else {})}
        norms = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] if decodes else []), "final_layer_norm"]
        found = {}
        for theirs, ours in parts.items():
            joined = torch.cat([own.pop(f"{ours}.{each}_proj.weight") for each in "qkv"])
            found |= {f"{theirs}.in_proj_weight": joined, f"{theirs}.in_proj_bias": torch.zeros(len(joined))}
            found[f"{theirs}.out_proj.weight"] = own.pop(f"{ours}.out_proj.weight")
            found[f"{theirs}.out_proj.bias"] = torch.zeros(self.config["d_model"])
        names = {f"norm{index}": norm for index, norm in enumerate(norms, 1)} | {"linear1": "fc1", "linear2": "fc2"}
        for theirs, ours in names.items():
            found |= {f"{theirs}.{part}": own.pop(f"{ours}.{part}") for part in ("weight", "bias")}
        assert not own
        return found

    def embedded(self, ids: np.ndarray) -> torch.Tensor:
        size = self.config["d_model"]
        rows = self.tensors["model.shared.weight"][torch.tensor(ids).long()]
        return rows * math.sqrt(size) + sinusoids(ids.shape[1], size)

    def __call__(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        hidden, padding = (
            torch.tensor(inputs["attention_mask"] == 0),
            torch.tensor(inputs["decoder_attention_mask"] == 0),
        )
        causal = torch.nn.Transformer.generate_square_subsequent_mask(padding.shape[1]) < 0
        with torch.no_grad():
            memory = self.encoder(self.embedded(inputs["input_ids"]), src_key_padding_mask=hidden)
            states = self.decoder(
                self.embedded(inputs["decoder_input_ids"]),
                memory,
                tgt_mask=causal,
                tgt_key_padding_mask=padding,
                memory_key_padding_mask=hidden,
            )
            output = self.tensors.get("lm_head.weight", self.tensors["model.shared.weight"])
            return np.asarray(states @ output.T)


@pytest.mark.parametrize("settings", CONFIGS.values(), ids=CONFIGS)
def test_logits_of_pytorch(tmp_path, settings):
    model = model_of(settings)
    model.save_pretrained(tmp_path)
    random = np.random.default_rng(0)
    inputs = {"attention_mask": ragged((9, 4, 6), "right"), "decoder_attention_mask": ragged((3, 7, 5), "right")}
    for name in ("", "decoder_"):
        mask = inputs[f"{name}attention_mask"]
        inputs[f"{name}input_ids"] = random.integers(3, 97, mask.shape).astype("int32") * mask
    again = zoo.load(tmp_path)
    assert again.config == model.config
    expected = Reference(tmp_path)(inputs)
    assert_close(inputs, keras.ops.convert_to_numpy(model(inputs)), expected)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(again(inputs)), keras.ops.convert_to_numpy(model(inputs)))
