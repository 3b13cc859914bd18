"""Rotary settings of a GGUF file in the form of `rope_parameters`."""

from __future__ import annotations

import math

import numpy as np

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import CheckpointError, UnsupportedConfigError
from kerasformer.tools.gguf.architecture import Metadata, Settings
from kerasformer.tools.gguf.blocks import read_entry

FACTORS = "rope_freqs.weight"
"""Tensor of the divisors of the frequencies, which the converter computes from the settings of Llama 3."""
_BASE = 10000.0
_LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Settings of all published models of Llama 3; `factor` is 8 or 32."""


def rope_parameters(metadata: Metadata, head_dim: int, *, partial: bool = False) -> Settings:
    """Returns the content of `rope_parameters`.

    Args:
        metadata: The file.
        head_dim: Size of a head.
        partial: Whether the architecture may rotate a part of each head.

    Raises:
        CheckpointError: a value is missing or does not fit the size of the heads.
        UnsupportedConfigError: the kind of scaling is unsupported.
    """
    rope: Settings = {"rope_type": "default", "rope_theta": metadata.own("rope.freq_base", float, _BASE)}
    size = metadata.own("rope.dimension_count", int, head_dim)
    if partial:
        # The size is the product with the size of a head, rounded down: 30 / 44 * 44 is less than 30.
        share = size / head_dim
        rope["partial_rotary_factor"] = share if int(head_dim * share) == size else math.nextafter(share, 1.0)
    elif size != head_dim:
        raise CheckpointError(
            f"{metadata.architecture}.rope.dimension_count in {metadata.container.path} must be the size of a head, "
            f"{head_dim}. Received: {size}"
        )
    rope |= _scaling(metadata)
    if metadata.has_tensor(FACTORS):
        if rope["rope_type"] != "default":
            raise UnsupportedConfigError(
                f"{metadata.container.path} has {FACTORS} and rope.scaling.type={rope['rope_type']!r}; at most one of "
                "them is supported"
            )
        rope |= _divided(metadata, rope["rope_theta"], size)
    return rope


def _scaling(metadata: Metadata) -> Settings:
    factor = metadata.own("rope.scaling.factor", float, metadata.own("rope.scale_linear", float, 1.0))
    default = "linear" if factor != 1.0 else "none"
    kind = metadata.own("rope.scaling.type", str, default)
    metadata.own("rope.scaling.finetuned", bool, False)  # a mark of the training
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return {}
    if kind == "linear":
        return {"rope_type": kind, "factor": factor}
    if kind != "yarn":
        raise UnsupportedConfigError(
            f"{metadata.architecture}.rope.scaling.type in {metadata.container.path} must be 'none', 'linear' or "
            f"'yarn'. Received: {kind!r:.100}"
        )
    settings: Arguments = {
        "original_max_position_embeddings": metadata.own("rope.scaling.original_context_length", int, None),
        "attention_factor": metadata.own("rope.scaling.yarn_attn_factor", float, None),
        "beta_fast": metadata.own("rope.scaling.yarn_beta_fast", float, None),
        "beta_slow": metadata.own("rope.scaling.yarn_beta_slow", float, None),
    }
    return {"rope_type": kind, "factor": factor, **{key: x for key, x in settings.items() if x is not None}}


def _divided(metadata: Metadata, base: float, size: int) -> Settings:
    """Returns the settings of frequencies that are divided by the numbers of a tensor.

    Those of Llama 3 are recognized, so that the configuration is that of the original. Others are written as factors of
    `longrope`, which are the same for short and long texts.
    """
    factors = read_entry(metadata.container.tensors[FACTORS]).astype("float32")
    if factors.shape != (size // 2,) or not np.isfinite(factors).all() or (factors <= 0).any():
        raise CheckpointError(
            f"{FACTORS} in {metadata.container.path} must have {size // 2} positive numbers. "
            f"Received: an array of shape {factors.shape}, {factors.ravel()[:8]}"
        )
    llama_3 = {"rope_type": "llama3", "factor": float(str(factors.max())), **_LLAMA_3}
    if np.allclose(factors, _of_llama_3(base, size, llama_3), rtol=1e-4, atol=0):
        return llama_3
    numbers = [float(str(factor)) for factor in factors]
    length = metadata.own("context_length", int)
    return {
        "rope_type": "longrope",
        "short_factor": numbers,
        "long_factor": numbers,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": length,
    }


def _of_llama_3(base: float, size: int, rope: Settings) -> np.ndarray:
    """Returns the divisors of the frequencies of Llama 3, `(R / 2,)`."""
    lengths = 2 * np.pi * base ** (np.arange(0, size, 2) / size)
    low, high, original = (rope[key] for key in _LLAMA_3)
    share = np.clip((original / lengths - low) / (high - low), 0, 1)
    return 1 / ((1 - share) / rope["factor"] + share)
