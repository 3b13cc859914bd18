"""Operators of each layer in LiteRT: an additional operator makes every token slower."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kerasformer import zoo
from kerasformer.bundle.recipes import RECIPES
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.formats.tflite.signatures import tflite_functions
from tests.core.export.tflite_bundles import operators
from tests.grids import grid

SIZES: dict[str, Any] = {"vocab_size": 50, "hidden_dim": 24, "num_heads": 3}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"intermediate_dim": 40, "max_length": 16},
    "distilbert": {"intermediate_dim": 40, "max_length": 16},
    "albert": {"intermediate_dim": 40, "max_length": 16, "embedding_dim": 12},
    "deberta": {
        "intermediate_dim": 40, "max_length": 16, "relative_attention": True, "relative_terms": "p2c|c2p",
        "absolute_positions": False,
    },
    "deberta-v2": {
        "intermediate_dim": 40, "max_length": 16, "relative_attention": True, "relative_terms": "p2c|c2p",
        "num_buckets": 6, "share_projections": True, "absolute_positions": False,
    },
    "mobilebert": {
        "intermediate_dim": 40, "max_length": 16, "embedding_dim": 12, "bottleneck_dim": 18, "num_feed_forwards": 2,
    },
    "gpt2": {"max_length": 16},
    "t5": {"intermediate_dim": 40, "head_dim": 8},
    "xlm": {"max_length": 16, "n_languages": 3},
}  # fmt: skip

LAYER_NORM = Counter(MEAN=2, SUB=1, SQUARED_DIFFERENCE=1, RSQRT=1, MUL=2, ADD=2)
RMS_NORM = Counter(SQUARE=1, MEAN=1, RSQRT=1, MUL=2, ADD=1)
# Queries, keys, values, output; split and merge of heads; scale, mask, and the residual sum.
ATTENTION = Counter(FULLY_CONNECTED=4, RESHAPE=4, MUL=1, BATCH_MATMUL=2, ADD=2, SOFTMAX=1)
T5_ATTENTION = ATTENTION - Counter(MUL=1)
# Keys and values are projected when the text is encoded.
CROSS_ATTENTION = T5_ATTENTION - Counter(FULLY_CONNECTED=2, RESHAPE=2)
FEED_FORWARD = Counter(FULLY_CONNECTED=2, GELU=1, ADD=1)
T5_FEED_FORWARD = Counter(FULLY_CONNECTED=2, ADD=1)
# For several tokens, heads and tokens are transposed; for one token, a reshape suffices.
SEVERAL_TOKENS = Counter(TRANSPOSE=4)
CROSS_SEVERAL_TOKENS = Counter(TRANSPOSE=2)
CACHE = Counter(DYNAMIC_UPDATE_SLICE=2)
PROJECTED_MEMORY = Counter(FULLY_CONNECTED=2, RESHAPE=2, TRANSPOSE=2, PAD=2)

# Content-to-position and position-to-content: projection and scale of the relative embeddings, one row for each
# distance, heads, scores by distance, scores by pair, and their sum.
DISENTANGLED = Counter(
    FULLY_CONNECTED=2, MUL=2, GATHER=2, RESHAPE=6, TRANSPOSE=3, BATCH_MATMUL=2, STRIDED_SLICE=4, ADD=2
)

T5_DECODER_LAYER = T5_ATTENTION + CACHE + CROSS_ATTENTION + T5_FEED_FORWARD + RMS_NORM + RMS_NORM + RMS_NORM
ENCODER_LAYER = ATTENTION + SEVERAL_TOKENS + FEED_FORWARD + LAYER_NORM + LAYER_NORM
# Two reductions and the restoration of the states, a second feed-forward network, and an affine layer for each sum.
AFFINE = Counter(MUL=1, ADD=1)
MOBILEBERT_FEED_FORWARD = Counter(FULLY_CONNECTED=2, ADD=1) + AFFINE
MOBILEBERT_LAYER = ATTENTION + SEVERAL_TOKENS + AFFINE + MOBILEBERT_FEED_FORWARD + MOBILEBERT_FEED_FORWARD
MOBILEBERT_LAYER += Counter(FULLY_CONNECTED=3, ADD=1) + AFFINE + AFFINE + AFFINE
LAYERS = {
    "bert": {"forward": ENCODER_LAYER},
    "distilbert": {"forward": ENCODER_LAYER},
    "albert": {"forward": ENCODER_LAYER},
    "deberta": {"forward": ENCODER_LAYER + DISENTANGLED},
    "deberta-v2": {"forward": ENCODER_LAYER + DISENTANGLED},
    "mobilebert": {"forward": MOBILEBERT_LAYER},
    "gpt2": {
        "prefill": ENCODER_LAYER + CACHE,
        "verify": ENCODER_LAYER + CACHE,
        "decode": ENCODER_LAYER - SEVERAL_TOKENS + CACHE,
    },
    "t5": {
        "encode": T5_ATTENTION + SEVERAL_TOKENS + T5_FEED_FORWARD + RMS_NORM + RMS_NORM + PROJECTED_MEMORY,
        "verify": T5_DECODER_LAYER + SEVERAL_TOKENS + CROSS_SEVERAL_TOKENS,
        "decode": T5_DECODER_LAYER,
    },
    # Padding becomes 0 after each layer.
    "xlm": {"forward": ENCODER_LAYER + Counter(MUL=1)},
}


def counted(path: Path, model_type: str, num_layers: int) -> dict[str, Counter[str]]:
    """Counts the operators of one signature of each kind."""
    layers = {"num_layers": num_layers, **({"num_decoder_layers": num_layers} if model_type == "t5" else {})}
    model = zoo.build(model_type, **SIZES, **CONFIGS[model_type], **layers)
    capacity = 16 if model.generates else None
    functions = tflite_functions(model, capacity, 16 if model_type == "t5" else None, [8])
    kinds = ("forward_8", "encode_8", "prefill_8", "verify_4", "decode")
    write_tflite([f for f in functions if f.name in kinds], model.variables, RECIPES["none"], path)
    return {name.split("_")[0]: count for name, count in operators(path).items()}


@pytest.mark.parametrize("model_type", grid(CONFIGS, always=("gpt2", "t5")))
def test_operators_of_one_layer(model_type: str, tmp_path: Path) -> None:
    # In the last layer, a prefill computes only keys and values.
    two, three = (counted(tmp_path / f"{n}.tflite", model_type, n) for n in (2, 3))
    received = {kind: three[kind] - two[kind] for kind in three}
    assert received == LAYERS[model_type]
    assert all(not two[kind] - three[kind] for kind in two), "nothing leaves with a layer more"
