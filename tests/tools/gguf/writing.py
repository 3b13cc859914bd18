"""Writes models of `transformers` as llama.cpp's converter does, with the library gguf.

What the converter changes is written down here a second time, from its source: the tests compare two readings of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from kerasformer.tools.testing import Case
from tests.core.zoo.cases import CASES

Change = Callable[[str, np.ndarray, Any], np.ndarray]


@dataclass(frozen=True)
class Row:
    """An architecture of llama.cpp, and a tiny model of it.

    Attributes:
        architecture: Its name in llama.cpp.
        case: Name of the case whose model is written.
        values: Settings of the file by their keys, from the configuration of the model.
        change: What the converter does to a tensor of this name.
        settings: Settings of the model that differ from those of the case, which llama.cpp takes for granted.
        tokenizer: Kind of the tokenizer, which shows what an encoder is.
        in_transformers: Whether `transformers` reads the file, and reads it right.
    """

    architecture: str
    case: str
    values: Callable[[Any], dict[str, Any]]
    change: Change = lambda name, array, config: array
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str = "gpt2"
    in_transformers: bool = True

    def __str__(self) -> str:
        return f"{self.architecture}-{self.case}"

    def source(self) -> Case:
        """Returns the case."""
        case = next(case for case in CASES if case.name == self.case)
        kept = {name: value for name, value in {**case.settings, **self.settings}.items() if value is not None}
        return Case(case.name, case.model_type, kept, std=case.std, end_token=case.end_token)


def decoder(config: Any) -> dict[str, Any]:
    """The settings that most decoders have."""
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "vocab_size": config.vocab_size,
    }


def gated(config: Any) -> dict[str, Any]:
    """The settings of the decoders with the layers of LLaMA."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        **decoder(config),
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
        "rope.freq_base": (config.rope_parameters.get("full_attention") or config.rope_parameters)["rope_theta"],
    }


def layer_norm(epsilon: str, **names: str) -> Callable[[Any], dict[str, Any]]:
    """The settings of older decoders, whose configurations have other names."""

    def values(config: Any) -> dict[str, Any]:
        size = config.hidden_size
        inner = getattr(config, names.get("inner", "intermediate_size"), None) or 4 * size
        own = {key: getattr(config, name) for key, name in names.items() if key != "inner"}
        return {
            "context_length": getattr(config, "max_position_embeddings", 64),
            "embedding_length": size,
            "block_count": config.num_hidden_layers,
            "feed_forward_length": inner,
            "attention.head_count": config.num_attention_heads,
            "attention.layer_norm_epsilon": getattr(config, epsilon),
            "vocab_size": config.vocab_size,
            **own,
        }

    return values


def partial(values: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Adds the number of rotated dimensions."""

    def result(config: Any) -> dict[str, Any]:
        share = config.rope_parameters["partial_rotary_factor"]
        return {
            **values(config),
            "rope.dimension_count": int(share * (config.hidden_size // config.num_attention_heads)),
            "rope.freq_base": config.rope_parameters["rope_theta"],
        }

    return result


def permuted(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Reorders queries and keys, so that the pairs of rotary positions are neighbours."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if f".{part}." in name:
            return array.reshape(count, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
    return array


def separated(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Writes all queries, then keys and values."""
    if "query_key_value" not in name:
        return array
    heads = array.reshape(config.num_attention_heads, 3, -1, *array.shape[1:])
    return np.concatenate([heads[:, index].reshape(-1, *array.shape[1:]) for index in range(3)])


def transposed(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Transposes the matrices of `Conv1D`."""
    return array.T if ".c_" in name and array.ndim == 2 else array


def shifted(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Adds 1 to the scales of norms."""
    return array + 1 if name.endswith("norm.weight") else array


def chopped(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Removes the rows of positions before those of texts."""
    return array[config.pad_token_id + 1 :] if "position_embeddings" in name else array


def gemma(config: Any) -> dict[str, Any]:
    """The settings of Gemma 3."""
    return {**gated(config), "attention.sliding_window": config.sliding_window}


def t5(config: Any) -> dict[str, Any]:
    """The settings of T5."""
    return {
        "context_length": 512,
        "embedding_length": config.d_model,
        "block_count": config.num_layers,
        "decoder_block_count": config.num_decoder_layers,
        "feed_forward_length": config.d_ff,
        "attention.head_count": config.num_heads,
        "attention.key_length": config.d_kv,
        "attention.value_length": config.d_kv,
        "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
        "attention.relative_buckets_count": config.relative_attention_num_buckets,
        "decoder_start_token_id": config.decoder_start_token_id,
        "vocab_size": config.vocab_size,
    }


def encoder(config: Any) -> dict[str, Any]:
    """The settings of BERT."""
    return {**layer_norm("layer_norm_eps")(config), "attention.causal": False}


def modernbert(config: Any) -> dict[str, Any]:
    """The settings of ModernBERT."""
    rope = config.rope_parameters
    return {
        **layer_norm("norm_eps")(config),
        "attention.causal": False,
        "attention.sliding_window": config.local_attention,
        "rope.freq_base": rope["full_attention"]["rope_theta"],
        "rope.freq_base_swa": rope["sliding_attention"]["rope_theta"],
        "rope.scaling.type": "none",
    }


_LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
_BLOOM = layer_norm("layer_norm_epsilon", **{"attention.head_count_kv": "n_head"})
_GPT_2 = layer_norm("layer_norm_epsilon", inner="n_inner")
_MULTI_QUERY = {"attention.head_count_kv": 1}
_NEOX = partial(layer_norm("layer_norm_eps", use_parallel_residual="use_parallel_residual"))
_PHI = partial(layer_norm("layer_norm_eps", **{"attention.head_count_kv": "num_key_value_heads"}))
_OF_T5 = {"relative_attention_max_distance": 128}  # which llama.cpp assumes
_OF_GEMMA = {"query_pre_attn_scalar": 8, "num_hidden_layers": 7, "layer_types": None}

ROWS = (
    Row("llama", "llama", gated, permuted),
    # `transformers` ignores the frequencies of Llama 3, and the size of the heads of Qwen3.
    Row("llama", "llama-3.2", gated, permuted, {"rope_parameters": _LLAMA_3}, in_transformers=False),
    Row(
        "llama", "llama-biased", gated, permuted,
        {"hidden_act": "silu", "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0}},
        in_transformers=False,
    ),
    Row("smollm3", "smollm3", gated, permuted, {"num_hidden_layers": 5}, in_transformers=False),
    Row("qwen2", "qwen2", gated),
    Row("qwen3", "qwen3", gated, in_transformers=False),
    Row("gemma3", "gemma3", gemma, shifted, _OF_GEMMA, in_transformers=False),
    # `transformers` takes the default for the number of positions.
    Row("gpt2", "gpt2", _GPT_2, transposed, {"n_positions": 1024}),
    Row("starcoder", "gpt_bigcode", lambda config: {**_GPT_2(config), **_MULTI_QUERY}, in_transformers=False),
    Row("gptneox", "gpt_neox", _NEOX, separated, in_transformers=False),
    Row("bloom", "bloom", _BLOOM, separated),
    Row("phi2", "phi", _PHI, in_transformers=False),
    Row("t5", "t5", t5, settings=_OF_T5, in_transformers=False),
    Row("t5", "umt5", t5, settings=_OF_T5, in_transformers=False),
    Row("bert", "bert", encoder, settings={"hidden_act": "gelu"}, tokenizer="bert", in_transformers=False),
    Row("bert", "roberta", encoder, chopped, in_transformers=False),
    Row("bert", "xlm-roberta", encoder, chopped, tokenizer="t5", in_transformers=False),
    Row("modern-bert", "modernbert", modernbert, in_transformers=False),
)  # fmt: skip


def vocabulary(size: int) -> dict[str, Any]:
    """A byte-level vocabulary, of which only the size matters."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*(chr(0x100 + index) for index in range(size - 1)), "Āā"],
        "tokenizer.ggml.token_type": [1] * size,
        "tokenizer.ggml.merges": ["Ā ā"],
    }


def write(path: Path, architecture: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Path:
    """Writes a file.

    Args:
        path: Its path.
        architecture: Content of `general.architecture`.
        values: Further values; keys without a dot before the first name are those of the architecture.
        tensors: Arrays by their names; or pairs of the bytes of blocks and their type.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        if value is None:
            continue
        name = key if key.startswith(("tokenizer.", "general.", "split.")) else f"{architecture}.{key}"
        kinds = {
            bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
            list: writer.add_array,
        }  # fmt: skip
        kinds[type(value)](name, value)
    for name, value in tensors.items():
        data, kind = value if isinstance(value, tuple) else (value, None)
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors_of(row: Row, model: Any) -> dict[str, np.ndarray]:
    """Returns the tensors of a model by their names in the file, as the converter writes them."""
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == row.architecture)
    names = gguf.get_tensor_name_map(arch, max(model.config.num_hidden_layers, 3))
    tied = {"lm_head.weight", "embed_out.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    result = {}
    for name, value in model.state_dict().items():
        stem, _, suffix = name.rpartition(".")
        if suffix not in ("weight", "bias") or stem.startswith("pooler"):
            continue
        if name in tied and model.config.tie_word_embeddings:
            continue
        own = names.get_name(stem.removeprefix("transformer.") if row.architecture == "bloom" else stem)
        if own is None:
            raise AssertionError(f"{name} has no name in {row.architecture}")
        result[f"{own}.{suffix}"] = row.change(name, value.numpy().astype("float32"), model.config)
    return result


def rope_freqs(config: Any) -> np.ndarray:
    """Returns the divisors of frequencies that the converter writes for Llama 3."""
    rope, size = config.rope_parameters, config.head_dim
    factors = []
    for index in range(0, size, 2):
        length = 2 * np.pi * rope["rope_theta"] ** (index / size)
        original, low, high = (
            rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(rope["factor"])
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, "float32")


def write_model(row: Row, model: Any, path: Path) -> Path:
    """Writes a model of `transformers`."""
    config = model.config
    values, tensors = row.values(config), tensors_of(row, model)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = rope_freqs(config)
    if rope.get("rope_type") == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope["factor"]}
    ids = {key: getattr(config, f"{name}_token_id", None) for key, name in _IDS.items()}
    own = {key: index for key, index in ids.items() if isinstance(index, int)}
    tokens = {**vocabulary(config.vocab_size), "tokenizer.ggml.model": row.tokenizer}
    return write(path, row.architecture, {**values, **tokens, **own}, tensors)


_IDS = {
    "tokenizer.ggml.bos_token_id": "bos",
    "tokenizer.ggml.eos_token_id": "eos",
    "tokenizer.ggml.padding_token_id": "pad",
}
