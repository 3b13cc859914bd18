"""Published checkpoints: their `config.json` is read, and small models of it have parity.

`checkpoints.json` has the configuration of each, the page that shows it or a copy of it, and the task of a file
that names none and has no head.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest
import transformers

from kerasformer import zoo
from kerasformer.models.gated_encoder_decoder import PairedConfig
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import Loaded, assert_same_outputs, make_inputs, run, run_reference
from tests.grids import repeats

ROWS = json.loads(Path(__file__).with_name("checkpoints.json").read_text(encoding="utf-8"))
SCALED = ("intermediate_dim", "decoder_intermediate_dim", "inner_dim", "token_dim")
"""Sizes that are reduced with the hidden size."""


def name_of(row: dict[str, Any]) -> str:
    return str(row["checkpoint"]).split("/")[1]


def model_type(row: dict[str, Any]) -> str:
    """Returns the architecture of a checkpoint, which old files do not name."""
    named = row["config"].get("model_type")
    return named or ("roberta" if "roberta" in row["checkpoint"] else "bert")


def config_type(row: dict[str, Any]) -> Any:
    return next(iter(zoo.architecture(model_type(row)).MODELS.values())).backbone_type.config_type


def entry(content: Any, key: str) -> Any:
    """Returns an entry of a configuration, whose key has dots inside of nested ones; `None` if there is none."""
    return functools.reduce(lambda inner, name: (inner or {}).get(name), key.split("."), content)


def keys(content: dict[str, Any], kind: Any) -> dict[str, str]:
    """Returns the keys of a `config.json` by the names of the fields that have values."""
    fields = {field.name: field.metadata.get("hf", ()) for field in dataclasses.fields(kind)}
    found = {name: [key for key in names if entry(content, key) is not None] for name, names in fields.items()}
    return {name: present[0] for name, present in found.items() if present}


def common(ours: dict[str, Any], theirs: dict[str, Any], omitted: Container[str] = ()) -> dict[str, Any]:
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


def reduced(row: dict[str, Any]) -> dict[str, Any]:
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


def reduced_part(content: dict[str, Any], kind: Any) -> dict[str, Any]:
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
    distances |= {"head_dim": 8, "layer_types": sorted(set(content.get("layer_types") or ()))}
    layers = 4 if "no_rope_layers" in content else 2  # the last one without positions
    distances["num_hidden_layers"] = layers  # a key beside that of the field
    sizes_of_parts = {positions: 41 + offset} if positions else {names["head_dim"]: 8}
    if decoder := names.get("num_decoder_layers"):
        sizes_of_parts[decoder] = max(layers * content[decoder] // content[names["num_layers"]], 1)
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


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_configuration_has_the_values_of_the_reference(row):
    config = config_type(row).from_hf(row["config"])  # a warning would be an error
    reference = transformers.AutoConfig.for_model(**{"model_type": model_type(row), **row["config"]})
    theirs = reference.to_dict()
    written = config.to_hf()
    if isinstance(terms := written.get("pos_att_type"), str):
        written["pos_att_type"] = terms.split("|")  # the reference reads both forms
    # For models of the T5 family, the reference reads from the tensors whether the output is tied.
    omitted = {"id2label", "label2id"} | ({"tie_word_embeddings"} if hasattr(reference, "d_kv") else set())
    shared = common(written, theirs, omitted)
    assert len(shared) >= 12
    assert shared == common(theirs, written, omitted)
    assert config.id2label == reference.id2label


SEEN = repeats([[model_type(row)] for row in ROWS])
"""Whether an earlier checkpoint has the same architecture."""


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.release if seen else ()) for row, seen in zip(ROWS, SEEN, strict=True)],
    ids=name_of,
)
@pytest.mark.grid
def test_parity(row, tmp_path):
    content = reduced(row)
    kinds = zoo.architecture(model_type(row)).MODELS.items()
    saved = content.get("architectures", [])
    task = next((task for task, kind in kinds if kind.architecture in saved), row.get("task", "fill-mask"))
    omitted = ("model_type", "torch_dtype", "id2label", "label2id", "num_labels")
    settings = {key: value for key, value in content.items() if key not in omitted}
    case = Case(
        row["checkpoint"],
        model_type(row),
        settings,
        std=(1.2 if "d_kv" in content else 1.8)
        / entry(content, keys(content, config_type(row))["hidden_dim"]) ** 0.5,  # T5's scores are not scaled
        zero_padding="trigram_input" in content,
    )
    reference = case.reference(task)
    reference.save_pretrained(tmp_path)
    saved_labels = {"id2label": reference.config.id2label} if task == "text-classification" else {}
    (tmp_path / "config.json").write_text(json.dumps(content | saved_labels))
    it = Loaded(case, task, tmp_path, reference, zoo.load(tmp_path, model_type=model_type(row)))
    assert type(it.model) is case.kind(task)
    inputs = make_inputs(it)
    assert_same_outputs(inputs, run(it, inputs), run_reference(reference, inputs))
