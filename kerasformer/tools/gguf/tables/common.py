"""Keys and settings that the architectures have in common."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.errors import CheckpointError
from kerasformer.tools.gguf.architecture import Metadata, Settings

FULL, SLIDING = "full_attention", "sliding_attention"
TOKENS, OUTPUT = "token_embd.weight", "output.weight"
EPSILON, RMS_EPSILON = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"
_SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
}


def sizes(metadata: Metadata, names: Mapping[str, str] | None = None) -> Settings:
    """Returns the sizes of a model, and whether the output layer has the matrix of the token table.

    Args:
        metadata: The file.
        names: Names in `config.json` that differ from the usual ones.
    """
    values = {(names or {}).get(name, name): metadata.size_of(key) for name, key in _SIZES.items()}
    if metadata.size_of("block_count") > len(metadata.container.tensors):
        raise CheckpointError(
            f"{metadata.architecture}.block_count in {metadata.container.path} must be at most "
            f"{len(metadata.container.tensors)}, the number of all tensors. Received: {metadata.size_of('block_count')}"
        )
    # The table may have more rows than the tokenizer has tokens, and the key of its size is new.
    metadata.own("vocab_size", int, 0)
    return {
        **values,
        "vocab_size": metadata.size(TOKENS),
        "tie_word_embeddings": not metadata.has_tensor(OUTPUT),
    }


def head_size(metadata: Metadata) -> int:
    """Returns the size of a head of queries and keys, which is also that of values."""
    default = metadata.size_of("embedding_length") // metadata.size_of("attention.head_count")
    return metadata.size_of("attention.key_length", max(default, 1))


def key_value_heads(metadata: Metadata) -> int:
    """Returns the number of heads of keys and values."""
    return metadata.size_of("attention.head_count_kv", metadata.size_of("attention.head_count"))


def layer_types(metadata: Metadata, interval: int, *, full_first: bool) -> list[str]:
    """Returns the type of each layer: sliding window, or full attention at equal distances.

    Args:
        metadata: The file.
        interval: Distance of the layers with full attention, which llama.cpp assumes if the file has none.
        full_first: Whether the first layer has full attention; otherwise the last of each `interval`.
    """
    count = metadata.own("block_count", int)
    if not metadata.own("attention.sliding_window", int, 0):
        return [FULL] * count
    pattern = f"{metadata.architecture}.attention.sliding_window_pattern"
    flags = metadata.container.values.get(pattern)
    if isinstance(flags, list):
        slides = metadata.flags(pattern, count)
        return [SLIDING if windowed else FULL for windowed in slides]
    every = max(metadata.get(pattern, int, interval), 1)
    return [SLIDING if (index + (not full_first)) % every else FULL for index in range(count)]
