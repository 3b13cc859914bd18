"""Arguments of the layers with bottlenecks that are refused."""

from __future__ import annotations

import pytest

from kerasformer import layers
from kerasformer.errors import InputError


def layer(**options):
    return layers.BottleneckEncoderLayer(layers.MultiHeadAttention(3, 12), layers.FeedForward(12, 20), **options)


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="Expected one of bottleneck, shared, hidden. Received: 'query'"):
        layer(attention_input="query")
    with pytest.raises(InputError, match="Expected: order='post_norm'"):
        layer(order="pre_norm")
    with pytest.raises(InputError, match="at most hidden_dim.* Received: embedding_dim=13, hidden_dim=12"):
        layers.MaskedLMHead(97, 12, embedding_dim=13)
    with pytest.raises(InputError, match="plain_layer_norm, head_norm, rms_norm, no_norm. Received: 'batch_norm'"):
        layers.normalization("batch_norm", 1e-5)
