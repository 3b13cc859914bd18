"""Configurations of published checkpoints, and small ones with the same keys.

`checkpoints.json` has those of which small models are compared. `hundred.json` has the hundred most used text models of
at most a billion parameters, the most used first, with their downloads in 30 days. Its rows with a `config` have one of
their own, from the page `source`, or a copy of it there. A row `like` another one has the layers of that
configuration, with `changes`; `source` is then its model card. Those of the other rows are in `checkpoints.json`. A
row that is `refused` has a configuration that the zoo does not support; `tensors` are those of its file that are not
tensors of its architecture.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Container
from functools import cache
from pathlib import Path
from typing import Any

from kerasformer import zoo
from kerasformer.files.reading import JsonObject
from kerasformer.models.gated_encoder_decoder import PairedConfig

Row = dict[str, Any]

SCALED = ("embedding_dim", "intermediate_dim", "decoder_intermediate_dim", "inner_dim", "token_dim")
"""Sizes that are reduced with the hidden size."""


@cache
def published() -> dict[str, Row]:
    """Returns the rows of `checkpoints.json` by checkpoint."""
    return _read("checkpoints.json")


@cache
def hundred() -> dict[str, Row]:
    """Returns the rows of `hundred.json` by checkpoint, each with its configuration and the page that shows it."""
    return {name: {**published().get(name, {}), **row, "config": _config(name)} for name, row in _hundred().items()}


@cache
def _hundred() -> dict[str, Row]:
    return _read("hundred.json")


def _config(name: str) -> JsonObject:
    row = _hundred().get(name, {})
    if "like" in row:
        return {**_config(row["like"]), **row.get("changes", {})}
    config: JsonObject = (row if "config" in row else published()[name])["config"]
    return config


def _read(name: str) -> dict[str, Row]:
    rows = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return {row["checkpoint"]: row for row in rows}


def model_type(row: Row) -> str:
    """Returns the architecture of a checkpoint, which old files do not name."""
    named = row["config"].get("model_type")
    return named or ("roberta" if "roberta" in row["checkpoint"] else "bert")


def config_type(row: Row) -> Any:
    """Returns the class of a configuration."""
    return next(iter(zoo.architecture(model_type(row)).MODELS.values())).backbone_type.config_type


def entry(content: Any, key: str) -> Any:
    """Returns an entry of a configuration, whose key has dots inside of nested ones; `None` if there is none."""
    return functools.reduce(lambda inner, name: (inner or {}).get(name), key.split("."), content)


def keys(content: JsonObject, kind: Any) -> dict[str, str]:
    """Returns the keys of a `config.json` by the names of the fields that have values."""
    fields = {field.name: field.metadata.get("hf", ()) for field in dataclasses.fields(kind)}
    found = {name: [key for key in names if entry(content, key) is not None] for name, names in fields.items()}
    return {name: present[0] for name, present in found.items() if present}


def common(ours: JsonObject, theirs: JsonObject, omitted: Container[str] = ()) -> JsonObject:
    """Returns our values of the entries that both configurations have, by their keys, as `entry` takes them."""
    found = {}
    for name, value in ours.items():
        if name not in theirs or name in omitted:
            continue
        if isinstance(value, dict) and "model_type" in value:
            # The reference generates with the end tokens of the whole model.
            inner = common(value, theirs[name], {"eos_token_id"})
            found |= {f"{name}.{key}": each for key, each in inner.items()}
        else:
            found[name] = value
    return found


def in_float32(content: Any) -> Any:
    """Returns a configuration without the data type of its weights, also inside."""
    if not isinstance(content, dict):
        return content
    return {name: in_float32(value) for name, value in content.items() if name not in ("dtype", "torch_dtype")}


VISION = {
    "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
}  # fmt: skip


def reduced(row: Row) -> JsonObject:
    """Returns a small configuration, in each of its parts."""
    content, kind = row["config"], config_type(row)
    if not issubclass(kind, PairedConfig):
        return reduced_part(content, kind)
    # A file with the encoder alone has a decoder of the same sizes.
    parts = [entry(content, key) or entry(content, kind.part_keys["encoder"]) for key in kind.part_keys.values()]
    encoder, decoder = (reduced_part(part, kind.part_type) for part in parts)
    if "text_config" in content["encoder"]:
        vision = {**content["encoder"]["vision_config"], **VISION}
        encoder = {**content["encoder"], "text_config": encoder, "vision_config": vision, "mm_tokens_per_image": 1}
    ids = {name: value % 97 for name, value in content.items() if name.endswith("_token_id") and isinstance(value, int)}
    return in_float32({**content, **ids, "encoder": encoder, "decoder": decoder, "vocab_size": 97})


def reduced_part(content: JsonObject, kind: Any) -> JsonObject:
    """Returns a small configuration with the same keys, and the same ratios and hidden size if it is below 400."""
    names = keys(content, kind)
    heads, hidden = content[names["num_heads"]], content[names["hidden_dim"]]
    # The smallest heads of which an even number of entries can be rotated.
    share = content.get("rotary_pct", content.get("partial_rotary_factor", 1.0))
    head_size = next(size for size in range(4, 65, 2) if (share * size) % 2 == 0)
    small = hidden if hidden < 400 or "intra_bottleneck_size" in content else head_size * heads
    positions = names.get("max_length") or names.get("num_positions")
    offset = content[positions] - 512 if positions and content[positions] in (512, 514) else 2
    distances = {
        "attention_window": [8, 8],
        "position_buckets": 12,
        "local_attention": 8,
        "sliding_window": 4,
        "sliding_window_pattern": 2,
        "window_size": 4,
        "rotary_dim": 2,
        "attention_types": [[["global", "local"], 1]],
        "attention_layers": ["global", "local"],
        "num_hidden_layers": 2,  # beside `encoder_layers`
    }
    layers = 4 if "no_rope_layers" in content else 2  # the last one without positions
    types = (sorted(set(content.get("layer_types") or ())) * layers)[:layers]
    # `num_hidden_layers` is a key beside that of the field.
    distances |= {"head_dim": 8, "layer_types": types, "num_hidden_layers": layers}
    if not content.get("mamba_d_ssm"):
        distances |= {"mamba_n_heads": small, "mamba_d_head": content.get("mamba_expand")}
    sizes_of_parts = {positions: 41 + offset} if positions else {names["head_dim"]: 8}
    if decoder := names.get("num_decoder_layers"):
        sizes_of_parts[decoder] = max(layers * content[decoder] // content[names["num_layers"]], 1)
    if content.get("query_pre_attn_scalar") == content.get("head_dim"):
        distances["query_pre_attn_scalar"] = distances["head_dim"]
    tokens = [(name, value) for name, value in content.items() if name.endswith("_token_id")]
    vocabularies = [name for name in ("decoder_vocab_size",) if name in content]
    sizes = {
        **{name: value for name, value in distances.items() if name in content},
        **dict.fromkeys(vocabularies, 97),
        **{name: value % 97 for name, value in tokens if isinstance(value, int)},
        "vocab_size": 97,
        names["num_layers"]: layers,
        names["hidden_dim"]: small,
        **sizes_of_parts,
    }
    if "attention_head_size" in content:
        sizes["attention_head_size"] = small // heads
    scaled = [names[name] for name in SCALED if name in names]
    return {**content, **sizes, **{key: content[key] * small // hidden for key in scaled}}
