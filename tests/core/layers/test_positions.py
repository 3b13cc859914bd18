from __future__ import annotations

import numpy as np
import pytest
import torch
from keras import ops
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.positions import alibi_slopes, relative_buckets
from kerasformer.models.rotary_config import rotary_of
from tests.core.layers.parity import as_numpy, assert_close, numbers
from tests.grids import on_jax

POSITIONS = np.array([[0, 1, 2, 9], [5, 6, 7, 3]], "int32")


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.jax_release
def test_sinusoidal_positions(interleaved) -> None:
    table = torch.zeros(10, 12)
    create_sinusoidal_embeddings(10, 12, table)
    if not interleaved:
        table = torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)
    layer = layers.SinusoidalPositions(10, 12, interleaved)
    assert_close(layer(POSITIONS), table[torch.tensor(POSITIONS)])
    assert not layer.weights
    copy = layers.SinusoidalPositions.from_config(layer.get_config())
    assert_close(copy(POSITIONS), layer(POSITIONS))


@pytest.mark.jax
def test_rotary_products_depend_only_on_the_distance() -> None:
    query, key = numbers(1, 1, 4, 6), numbers(1, 1, 4, 6, seed=1)
    products = []
    for shift in (0, 40):
        rotary = layers.Rotary(dim=6)
        angles = rotary.angles(ops.convert_to_tensor(np.arange(4, dtype="int32")[None] + shift))
        turned = (as_numpy(primitives.rotary(x, *angles, rotary)) for x in (query, key))
        products.append(next(turned) @ next(turned).swapaxes(-1, -2))
    assert_close(products[0], products[1])


FACTORS = {"short_factor": [1.0, 1.5, 2.0, 3.5], "long_factor": [1.0, 2.5, 7.0, 30.0]}
SCALINGS = {
    "linear": {"factor": 2.5},
    "dynamic": {"factor": 3.0},
    "yarn": {"factor": 4.0},
    "yarn-odd": {"factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 0.7},
    "yarn-mscale": {"factor": 4.0, "mscale": 0.8, "mscale_all_dim": 0.5},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {**FACTORS, "factor": 16.0},
    "longrope-own": {**FACTORS, "attention_factor": 1.3},
}


@pytest.mark.parametrize(
    ("name", "length"),
    on_jax(SCALINGS, [40, 64, 65, 300], chosen=[("dynamic", 300), ("yarn-odd", 65), ("longrope", 65), ("llama3", 40)]),
)
def test_scaled_angles_are_those_of_transformers(name, length) -> None:
    kind, settings = name.split("-")[0], SCALINGS[name]
    original = {} if kind in ("linear", "dynamic") else {"original_max_position_embeddings": 64}
    parameters = {"rope_type": kind, "rope_theta": 5000.0, **settings, **original}
    config = LlamaConfig(
        hidden_size=24, num_attention_heads=3, max_position_embeddings=64, rope_parameters=dict(parameters)
    )
    theirs = LlamaRotaryEmbedding(config)
    positions = np.array([np.arange(length)[-7:]], "int32")
    cosine, sine = theirs(torch.zeros(1), torch.tensor(positions))
    rotary = rotary_of(parameters, 8, 64)
    ours = [as_numpy(each)[:, 0] for each in rotary.angles(ops.convert_to_tensor(positions))]
    assert_close(ours[0], cosine)
    assert_close(ours[1] * np.sign([-1] * 4 + [1] * 4), sine)
    expected, factor = ROPE_INIT_FUNCTIONS[kind](config, seq_len=length)
    np.testing.assert_allclose(rotary.frequencies(length), expected.numpy(), rtol=1e-6)
    assert rotary.magnitude == pytest.approx(factor)
    if length <= 64 or not rotary.depends_on_length:
        assert_close(rotary.tables(length)[0][-7:], cosine[0, :, :4])
    else:
        with pytest.raises(InputError, match=f"Expected at most 64. Received: {length}"):
            rotary.tables(length)


@pytest.mark.jax
def test_each_row_of_a_batch_is_scaled_by_its_length() -> None:
    rotary = rotary_of({"rope_type": "dynamic", "rope_theta": 5000.0, "factor": 3.0}, 8, 64)
    long, short = np.arange(93, 100, dtype="int32"), np.arange(7, dtype="int32")
    together = rotary.angles(ops.convert_to_tensor(np.stack([long, short])))
    for row, positions in enumerate((long, short)):
        for a, b in zip(together, rotary.angles(ops.convert_to_tensor(positions[None])), strict=True):
            assert_close(a[row], b[0])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "limit"), [(32, 128), (8, 10), (12, 50), (16, 20)])
@pytest.mark.jax_release
def test_every_distance_has_the_bucket_of_t5(buckets, limit, bidirectional) -> None:
    distance = torch.arange(-limit, limit + 1)
    expected = T5Attention._relative_position_bucket(distance, bidirectional, buckets, limit)
    assert relative_buckets(buckets, limit, bidirectional).tolist() == expected.tolist()


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
@pytest.mark.jax_release
def test_slopes_of_alibi(heads) -> None:
    # The tensor of BLOOM is slope times position, so that at position 1 it is the slope.
    assert_close(alibi_slopes(heads), build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1])


@pytest.mark.parametrize(
    ("make", "received"),
    [
        (lambda: layers.SinusoidalPositions(10, 7), "hidden_dim=7"),
        (lambda: layers.SinusoidalPositions(10, 2, endpoint=True), "hidden_dim=2"),
        (lambda: layers.Rotary(dim=5), "dim=5"),
        (lambda: layers.RelativePositionBias(3, 10, 2, bidirectional=True), "num_buckets=3"),
        (lambda: layers.RelativePositionBias(8, 2, 2, bidirectional=True), "max_distance=2"),
    ],
)
@pytest.mark.jax_release
def test_impossible_sizes_are_refused(make, received) -> None:
    with pytest.raises(InputError, match=f"Received: .*{received}"):
        make()
