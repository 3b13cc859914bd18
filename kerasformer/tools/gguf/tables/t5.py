"""T5, mT5 and umT5.

The file does not contain the activation: as in llama.cpp, it is ReLU without a gate and GELU with one.
"""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import Architecture, Metadata, Settings, Target
from kerasformer.tools.gguf.tables.common import EPSILON, RMS_EPSILON, head_size, sizes

_NAMES = {
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
    "max_position_embeddings": "n_positions",
}
_GATE, _LATER_BIAS = "enc.blk.0.ffn_gate.weight", "enc.blk.1.attn_rel_b.weight"


def _settings(metadata: Metadata) -> Settings:
    gated, size = metadata.has_tensor(_GATE), head_size(metadata)
    settings = sizes(metadata, _NAMES)
    metadata.own("attention.value_length", int, size)
    metadata.own(RMS_EPSILON, float, 0.0)  # the same number, a second time
    # In umT5, each layer has its own relative positions.
    of_umt5 = metadata.has_tensor(_LATER_BIAS)
    return {
        "model_type": "umt5" if of_umt5 else "t5",
        "architectures": ["UMT5ForConditionalGeneration" if of_umt5 else "T5ForConditionalGeneration"],
        **settings,
        "num_decoder_layers": metadata.own("decoder_block_count", int, settings["num_layers"]),
        "d_kv": size,
        "relative_attention_num_buckets": metadata.own("attention.relative_buckets_count", int),
        "layer_norm_epsilon": metadata.own(EPSILON, float),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "decoder_start_token_id": metadata.own("decoder_start_token_id", int, 0),
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    gated = settings["feed_forward_proj"] != "relu"
    names: dict[str, Target] = {"token_embd": "shared", "output": "lm_head"}
    for short, stack in {"enc": "encoder", "dec": "decoder"}.items():
        parts = {"attn": "SelfAttention", **({"cross_attn": "EncDecAttention"} if short == "dec" else {})}
        ours, theirs = f"{stack}.block.{{i}}.layer", f"{short}.blk.{{i}}"
        for index, (part, kind) in enumerate(parts.items()):
            names |= {f"{theirs}.{part}_{projection}": f"{ours}.{index}.{kind}.{projection}" for projection in "qkvo"}
            names[f"{theirs}.{part}_norm"] = f"{ours}.{index}.layer_norm"
            names[f"{theirs}.{part}_rel_b"] = f"{ours}.{index}.{kind}.relative_attention_bias"
        last = f"{ours}.{len(parts)}"
        names |= {
            f"{theirs}.ffn_norm": f"{last}.layer_norm",
            f"{theirs}.ffn_gate": f"{last}.DenseReluDense.wi_0",
            f"{theirs}.ffn_up": f"{last}.DenseReluDense.{'wi_1' if gated else 'wi'}",
            f"{theirs}.ffn_down": f"{last}.DenseReluDense.wo",
            f"{short}.output_norm": f"{stack}.final_layer_norm",
        }
    return names


ARCHITECTURE = Architecture("t5", _settings, _tensors, sentinels=100)
