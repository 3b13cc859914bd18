"""Block-sparse attention: parity with `transformers` in evaluation and training, and its forms with each other."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from keras import backend, ops
from transformers import BigBirdConfig, BigBirdModel
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers import block_sparse
from kerasformer.layers.attention_call import AttentionCall
from kerasformer.layers.visibility import Visibility
from tests.core.layers.parity import as_numpy, assert_close, numbers
from tests.grids import on_jax

E, H = 12, 3
# Size of a block, number of random blocks, longest text, length, seed.
SIZES = [(4, 1, 96, 40, 0), (4, 1, 96, 61, 2), (2, 3, 96, 80, 1), (1, 1, 40, 9, 1)]
on_tensorflow = pytest.mark.skipif(backend.backend() != "tensorflow", reason="TensorFlow traces unknown lengths")


def config(size: int, random: int, longest: int) -> BigBirdConfig:
    names = {"block_size": size, "num_random_blocks": random, "max_position_embeddings": longest}
    return BigBirdConfig(
        vocab_size=70, hidden_size=E, num_attention_heads=H, num_hidden_layers=1, intermediate_size=20, **names
    )


def pair(size: int, random: int, longest: int, seed: int):
    """Returns attention of the reference, and of this package with equal weights and without output projection."""
    theirs = BigBirdBlockSparseAttention(config(size, random, longest), seed).eval()
    ours = layers.BlockSparseAttention(H, E, layers.SparseBlocks(size, random, longest, seed))
    ours.build((None, None, E))
    generator = torch.Generator().manual_seed(seed)
    for name in ("query", "key", "value"):
        dense = getattr(theirs, name)
        with torch.no_grad():
            for parameter in dense.parameters():
                parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator))
        getattr(ours, name).set_weights([dense.weight.detach().numpy().T, dense.bias.detach().numpy()])
    ours.output_dense.set_weights([np.eye(E), np.zeros(E)])
    return theirs, ours


def padded(length: int) -> np.ndarray:
    """Three texts: without padding, with padding on the right, and with padding on the left."""
    columns = np.arange(length)
    return np.stack([columns >= 0, columns < length - 5, columns >= 3]).astype("int32")


def run_reference(theirs, x: np.ndarray, real: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns context `(B, T, E)` and weights `(B, H, T, T)` of the reference."""
    length, missing = x.shape[1], -x.shape[1] % theirs.block_size
    x = torch.nn.functional.pad(torch.tensor(x), (0, 0, 0, missing))
    mask = torch.nn.functional.pad(torch.tensor(real).float(), (0, missing))
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(mask, theirs.block_size)
    with torch.no_grad():
        context, weights = theirs(x, band, rows, columns, blocked, blocked)
    return context[:, :length].numpy(), weights[:, :, :length, :length].numpy()


ON_JAX = on_jax([SIZES[1]], [False, True], chosen=[(SIZES[1], True)])


@pytest.mark.parametrize(("size", "training"), [*product([*SIZES[::2], SIZES[3]], [False, True]), *ON_JAX], ids=str)
def test_parity(size, training) -> None:
    *blocks, length, seed = size
    theirs, ours = pair(*blocks, seed)
    theirs.train(training)
    x, real = numbers(3, length, E), padded(length)
    state = np.random.get_state()[1].copy()
    context, weights = run_reference(theirs, x, real)
    if not training:
        np.testing.assert_array_equal(np.random.get_state()[1], state)
    state = np.random.get_state()[1].copy()
    visibility = Visibility(key_mask=real)
    assert_close(ours(x, visibility=visibility, training=training), context)
    dense = ours(x, visibility=visibility, training=training, return_attention=True)
    assert_close(dense["output"], context)
    first = ours(x[:, : blocks[0] + 1], key_value=x, visibility=visibility, training=training)
    assert_close(first, context[:, : blocks[0] + 1])
    np.testing.assert_array_equal(np.random.get_state()[1], state, "the global stream of random numbers is unchanged")
    if training:
        return
    # The reference stores the weight of a key that counts several times only once.
    block, last = np.arange(length) // blocks[0], (length - 1) // blocks[0]
    repeated = ((block > 0) & (block < last))[:, None] & (block == 0)
    expected = weights * np.where(repeated, 1 + blocks[1], 1)
    queries = real[:, None, :, None]
    assert_close(as_numpy(dense["attention"]) * queries, expected * queries)
    assert_close((as_numpy(dense["attention"]).sum(axis=-1) * real[:, None]), np.repeat(real[:, None], H, axis=1))


@pytest.mark.parametrize(
    ("size", "random", "longest", "length", "seed"),
    [
        (64, 3, 4096, 1024, 0), (64, 3, 4096, 3072, 5), (64, 3, 4096, 4096, 11), (64, 3, 4096, 2048, 2),
        (16, 2, 1024, 1024, 1), (64, 2, 1100, 1024, 4), (512, 1, 8192, 4096, 0),
    ],
)  # fmt: skip
def test_random_blocks_of_the_lengths_of_the_pretraining(size, random, longest, length, seed) -> None:
    theirs, num_blocks = BigBirdBlockSparseAttention(config(size, random, longest), seed).train(), length // size
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        if length == 2048:
            plan = theirs._get_rand_attn_plan(length, size, random)
            expected = theirs._bigbird_block_rand_mask_with_head(length, length, size, size, H, *plan)
        else:
            numbers = (longest, longest, size, size, random)
            heads = [theirs._bigbird_block_rand_mask(*numbers, last_idx=1024) for _ in range(H)]
            expected = [head[: num_blocks - 2] for head in heads]
    finally:
        np.random.set_state(state)
    received = layers.SparseBlocks(size, random, longest, seed).random_blocks(H, num_blocks)
    np.testing.assert_array_equal(received, np.stack(expected))


def test_too_few_blocks_to_choose_from() -> None:
    with pytest.raises(InputError, match=r"too few blocks.*num_random=14, 16 blocks of 64 tokens"):
        layers.SparseBlocks(64, 14, 1024).random_blocks(H, 16)


def test_texts_that_are_not_longer_than_the_limit_have_full_attention() -> None:
    blocks = layers.SparseBlocks(4, 1, 96)
    assert blocks.full_length == 28
    sparse, full = layers.BlockSparseAttention(H, E, blocks), layers.MultiHeadAttention(H, E)
    x, longer = numbers(2, 28, E), numbers(2, 29, E)
    full.build(x.shape)
    sparse.build(x.shape)
    full.set_weights(sparse.get_weights())
    assert_close(sparse(x), full(x))
    assert np.abs(as_numpy(sparse(longer)) - as_numpy(full(longer))).max() > 1e-3


@pytest.mark.parametrize("length", [29, 61])
def test_padding_at_the_end_of_all_texts_changes_nothing(length) -> None:
    _, ours = pair(4, 1, 96, 0)
    for count in (1, 20, 28, 29, length):
        x, real = numbers(2, length, E), np.stack([np.arange(length) < count, np.arange(length) < count // 2 + 1])
        alone = ours(x[:, :count], visibility=Visibility(key_mask=real[:, :count]))
        together = as_numpy(ours(x, visibility=Visibility(key_mask=real)))
        keep = real[:, :count]
        assert_close(together[:, :count][keep], as_numpy(alone)[keep])


@on_tensorflow
@pytest.mark.parametrize("length", [1, 3, 4, 28, 29, 61])
@pytest.mark.grid
def test_unknown_length_while_tracing(length) -> None:
    import tensorflow as tf

    _, ours = pair(4, 1, 96, 0)

    @tf.function(input_signature=[tf.TensorSpec((None, None, E)), tf.TensorSpec((None, None), "int32")])
    def traced(x, real):
        return ours(x, visibility=Visibility(key_mask=real))

    real = np.ones((3, length), "int32") if length < 9 else padded(length)
    x = numbers(3, length, E)
    assert_close(traced(x, real), ours(x, visibility=Visibility(key_mask=real)))
    with pytest.raises(InputError, match="batches of one length"):
        tf.function(
            lambda x: ours(x, training=True), input_signature=[tf.TensorSpec((None, None, E))], autograph=False
        )(x)


@on_tensorflow
@pytest.mark.parametrize("training", [False, True])
def test_no_tensor_grows_faster_than_the_text(training) -> None:
    import tensorflow as tf

    _, ours = pair(4, 1, 4096, 0)

    def largest(length: int) -> int:
        spec = [tf.TensorSpec((1, length, E)), tf.TensorSpec((1, length), "int32")]

        def call(x, real):
            return ours(x, visibility=Visibility(key_mask=real), training=training)

        graph = tf.function(call).get_concrete_function(*spec).graph
        return max(tensor.shape.num_elements() or 0 for op in graph.get_operations() for tensor in op.outputs)

    sizes = [largest(length) for length in (64, 128, 256)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0]) > 0


def test_a_further_mask_is_respected() -> None:
    _, ours = pair(4, 1, 96, 0)
    x, mask = numbers(1, 40, E), np.ones((1, 40, 40), bool)
    mask[:, 20, 21] = False
    assert_close(ours(x, attention_mask=mask[:, :1]), ours(x))
    weights = as_numpy(ours(x, attention_mask=mask, return_attention=True)["attention"])
    assert (weights[:, :, 20, 21] == 0).all() and (weights[:, :, 20, 22] > 0).all()
    assert_close(ours(x, attention_mask=mask), ours(x, attention_mask=mask, return_attention=True)["output"])


def test_errors() -> None:
    with pytest.raises(InputError, match="does not support: rotary"):
        layers.BlockSparseAttention(H, E, layers.SparseBlocks(4, 1, 96), rotary=layers.Rotary(dim=2))
    spec = layers.MultiHeadAttention(H, E).spec
    x = numbers(1, 5, E)
    with pytest.raises(InputError, match="blocks=None, causal=False"):
        block_sparse.multi_head_attention(AttentionCall(x, x, x, spec, Visibility()))
    layer = layers.BlockSparseAttention(H, E, layers.SparseBlocks(4, 1, 96))
    with pytest.raises(InputError, match="causal=True"):
        layer(x, visibility=Visibility.of_text(5, causal=True))
    assert type(layer).from_config(layer.get_config()).blocks == layer.blocks
    assert ops.shape(layer(x)) == x.shape
