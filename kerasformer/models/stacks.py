"""The stacks of a model, and its outputs with their attention weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerasformer.models.pretrained import PretrainedModel


def family(model: PretrainedModel) -> str:
    """Returns which stacks a model has: `"encoder"`, `"decoder"` or `"encoder-decoder"`."""
    backbone = model.backbone
    stacks = [name for name in ("encoder", "decoder") if getattr(backbone, name, None) is not None]
    return stacks[0] if getattr(backbone, "encoder_only", False) else "-".join(stacks)


def attention_outputs(model: PretrainedModel) -> dict[str, str]:
    """Returns the names of the outputs with attention weights, by `"encoder"`, `"decoder"` and `"cross"`."""
    if family(model) == "encoder-decoder":  # which need not generate
        return {"encoder": "encoder_attentions", "decoder": "attentions", "cross": "cross_attentions"}
    return {family(model): "attentions"}
