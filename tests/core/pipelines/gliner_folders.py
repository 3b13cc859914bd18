"""Tiny folders of GLiNER, and the answers of the package `gliner` to them.

`gliner` allows no version of `transformers` that the tests use, so that its answers are recorded:
`python -m tests.core.pipelines.programs.gliner_answers` writes them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Backend

from tests import tiny_text

ANSWERS = Path(__file__).with_name("gliner_answers.json")
TEXTS = [
    *tiny_text.CORPUS[:2],
    "",
    " \t",
    "Rain is expected in the north-west, ☃ with snow_flakes\tfrom the sea.",
    "Two  engineers",
]
LABELS = ["person", "the train", "city"]
CALLS: list[dict[str, Any]] = [
    {"threshold": 0.5},
    {"threshold": 0.45, "flat_ner": False},
    {"threshold": 0.4, "multi_label": True},
    {"threshold": 0.4, "flat_ner": False, "multi_label": True},
]
MARKS = ["[FLERT]", "<<ENT>>", "<<SEP>>"]
_SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
_DISENTANGLED = {
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "deberta-v2": {
        "hidden_size": 20,
        "max_width": 5,
        "max_len": 40,
        "encoder_config": {"model_type": "deberta-v2", **_SIZES, **_DISENTANGLED, "max_position_embeddings": 64},
    },
    # Without LSTM, and with a tokenizer to which the reference adds its tokens.
    "bert": {
        "hidden_size": 20,
        "num_rnn_layers": 0,
        "max_width": 3,
        "vocab_size": -1,
        "class_token_index": -1,
        "encoder_config": {"model_type": "bert", **_SIZES, "max_position_embeddings": 64},
    },
    # Without projection, and with labels that are represented by their first token.
    "modernbert": {
        "hidden_size": 24,
        "embed_ent_token": False,
        "encoder_config": {
            "model_type": "modernbert",
            **_SIZES,
            "num_hidden_layers": 3,
            "local_attention": 8,
            **dict.fromkeys(("cls_token_id", "bos_token_id"), 2),
            **dict.fromkeys(("sep_token_id", "eos_token_id"), 3),
            "pad_token_id": 0,
        },
    },
}
"""Settings by the architecture of the encoder."""


def values(name: str, shape: list[int]) -> np.ndarray:
    """Returns numbers that depend on nothing but the name and the shape of a tensor."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    deviation = 0.9 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
    around = 1.0 if len(shape) == 1 and name.endswith("orm.weight") else 0.0
    return (around + deviation * random.standard_normal(shape)).astype("float32")


def write_folder(folder: Path, kind: str, shapes: Mapping[str, list[int]], **changes: Any) -> Path:
    """Writes the files of a model whose tensors have these shapes."""
    folder.mkdir()
    marked = CONFIGS[kind].get("vocab_size") != -1
    backend = Backend.from_str(tiny_text.wordpiece().backend.to_str())
    size = backend.get_vocab_size() + len(MARKS)
    if marked:
        backend.add_special_tokens(MARKS)
    backend.save(str(folder / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config: dict[str, Any] = {"model_name": "none", "span_mode": "markerV0", "dropout": 0.1, **CONFIGS[kind]}
    if marked:
        config |= {"vocab_size": size, "class_token_index": size - 2}
    config["encoder_config"] = {**config["encoder_config"], "vocab_size": size}
    (folder / "gliner_config.json").write_text(json.dumps({**config, **changes}))
    save_file({name: values(name, shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    return folder
