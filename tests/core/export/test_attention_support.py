"""Models with attention features that a format or a target does not support are refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import kerasformer as kf
from kerasformer.errors import ExportError
from kerasformer.export.attention_support import FEATURES, AttentionSupport, check_attention
from kerasformer.export.formats import registry
from kerasformer.export.targets import TARGETS
from kerasformer.layers import SparseBlocks
from kerasformer.layers.attention_spec import AttentionSpec, Rotary, RotaryScaling
from tests.core.export.described import GROUPS, LLAMA, SCALING, DescribedDecoder
from tests.core.export.onnx_bundles import tiny


def job(*attentions: dict[str, Any], capacity: int = 64) -> Any:
    """Returns the export options of a decoder with these attentions."""
    return SimpleNamespace(model=DescribedDecoder(attentions), capacity=capacity, lengths=(16,))


def test_features_of_attention_are_complete():
    """A feature that is added to `AttentionSpec` has to be listed here once the lowerings support it."""
    rotary = Rotary(dim=8, scaling=SCALING)
    spec = AttentionSpec(
        num_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        scale=1.0,
        softcap=2.0,
        rotary=rotary,
        query_key_norm=True,
        window=3,
        blocks=SparseBlocks(4, 1, 64),
    )
    assert set(spec.features) == FEATURES


@pytest.mark.parametrize(
    ("settings", "switch"),
    [
        ({"window": 5}, "window=5"),
        ({"softcap": 30.0}, "softcap=30.0"),
        ({"query_key_norm": 1e-6}, "query_key_norm=True"),
        (GROUPS, "num_key_value_heads=2"),
        ({"rotary": Rotary(dim=8)}, "rotary=Rotary"),
        ({"rotary": Rotary(dim=8, scaling=SCALING)}, "rotary_scaling='llama3'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unsupported_feature(settings, switch):
    name = switch.partition("=")[0]
    with pytest.raises(ExportError, match=rf"The format .*{switch}.* in the layer 'decoder/layer_1/attention'"):
        check_attention(job({}, settings), "The format", AttentionSupport(FEATURES - {name}))
    check_attention(job({}, settings), "The format", AttentionSupport())


def test_rotary_scaling_by_length_of_a_prompt_in_several_calls():
    rotary = Rotary(dim=8, scaling=RotaryScaling(kind="dynamic", factor=2.0, original_length=64))
    in_pieces = AttentionSupport(reads_whole_prompts=False)
    check_attention(job({"rotary": rotary}, capacity=64), "A", in_pieces)
    check_attention(job({"rotary": rotary}, capacity=128), "A", AttentionSupport())
    with pytest.raises(ExportError, match="at most original_length=64. Received: rotary_scaling='dynamic'"):
        check_attention(job({"rotary": rotary}, capacity=128), "A", in_pieces)


def test_layers_with_different_caches():
    same, different = job(LLAMA, {**LLAMA, "window": 5}), job(LLAMA, {})
    one_shape = AttentionSupport(caches_may_differ=False)
    check_attention(same, "A", one_shape)
    check_attention(different, "A", AttentionSupport())
    with pytest.raises(
        ExportError,
        match="A needs the same number and size of key and value heads in all layers. Received: 2 of 16, 4 of",
    ):
        check_attention(different, "A", one_shape)


@pytest.mark.parametrize("of", ["format", "target"])
def test_export_refuses_before_it_traces(of, tmp_path, monkeypatch):
    model = tiny("gpt2")
    attention = model.backbone.decoder.layers[1].attention
    attention.spec = replace(attention.spec, window=7)
    kind = registry.find_format("onnx") if of == "format" else TARGETS["genai"]
    monkeypatch.setattr(kind, "attention", AttentionSupport(frozenset()), raising=True)
    name = "format='onnx'" if of == "format" else "target='genai'"
    with pytest.raises(ExportError, match=rf"{name} does not support .*window=7 in the layer '.*layer_1/attention'"):
        kf.export.export(model, tmp_path / "out", **({"format": "onnx"} if of == "format" else {"target": "genai"}))
    assert not list(tmp_path.iterdir())
