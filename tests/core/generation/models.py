"""Tiny random models of `transformers` for the tests of decoding.

The weights are large, so that the best token is unambiguous and outputs vary. The models compute in float64, so that
the float32 logits of a row do not depend on its batch.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tests.core.generation.engines import TorchDecoder, TorchEncoderDecoder

torch.set_num_threads(1)  # the models are too small for several threads
PAD = 0


def gpt2(vocab_size: int, seed: int, grain: float = 0) -> TorchDecoder:
    """Returns a decoder; with `grain`, logits are rounded to multiples of it, so that many are equal."""
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=vocab_size, n_positions=64, n_embd=24, n_layer=2, n_head=3, initializer_range=0.25, bos_token_id=PAD,
        eos_token_id=None, pad_token_id=PAD, tie_word_embeddings=False,
    )  # fmt: skip
    model = _prepared(transformers.GPT2LMHeadModel(config), grain)
    model.generation_config = transformers.GenerationConfig()
    return TorchDecoder(model)


def t5(vocab_size: int, seed: int, grain: float = 0) -> TorchEncoderDecoder:
    """Returns an encoder-decoder; see `gpt2`."""
    torch.manual_seed(seed)
    config = transformers.T5Config(
        vocab_size=vocab_size, d_model=24, d_kv=7, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu",
        initializer_factor=2.0, tie_word_embeddings=False, decoder_start_token_id=PAD, pad_token_id=PAD,
    )  # fmt: skip
    model = _prepared(transformers.T5ForConditionalGeneration(config), grain)
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=PAD)
    return TorchEncoderDecoder(model)


def _prepared(model: Any, grain: float) -> Any:
    with torch.no_grad():
        model.lm_head.weight.normal_(std=0.3)
    if grain:
        model.lm_head.register_forward_hook(lambda module, inputs, logits: (logits / grain).round() * grain)
    return model.double().eval()
