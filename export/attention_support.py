"""Which attentions formats and third-party runtimes compute as Keras does, as data, and the one check that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kerasformer.errors import ExportError
from kerasformer.export.options import ExportJob
from kerasformer.layers.attention_spec import AttentionSpec

FEATURES = frozenset({"num_key_value_heads", "query_key_norm", "rotary", "rotary_scaling", "softcap", "window"})
"""Keys of `AttentionSpec.features` that the lowerings of all formats compute."""


@dataclass(frozen=True)
class AttentionSupport:
    """What a format or a runtime computes of an attention. Whatever is not named here is refused.

    Attributes:
        features: Supported keys of `AttentionSpec.features`.
        reads_whole_prompts: A prompt is read in one call. Otherwise angles that depend on the length of the whole text
            (rotary scaling `dynamic` and `longrope`) are those of Keras only up to the original length.
        caches_may_differ: Layers may have caches of different numbers and sizes of heads.
    """

    features: frozenset[str] = FEATURES
    reads_whole_prompts: bool = True
    caches_may_differ: bool = True


def check_attention(job: ExportJob, name: str, support: AttentionSupport) -> None:
    """Refuses a model with an attention that would be computed otherwise than in Keras.

    Args:
        job: With the model and the lengths of its texts.
        name: The format or target, as the caller wrote it.
        support: What it computes.

    Raises:
        ExportError: with the switch of the attention, its value and its layer.
    """
    longest = max(job.capacity or 0, *job.lengths)
    for layer, spec in job.model.attention_specs().items():
        for switch, reason in _refusals(spec, support, longest):
            value = spec.features[switch]
            raise ExportError(f"{name} {reason}. Received: {switch}={value!r} in the layer {layer!r}")
    if support.caches_may_differ or not job.model.generates:
        return
    sizes = sorted({(heads, width) for _, heads, _, width in job.model.cache_shapes("batch", "slots")})
    if len(sizes) > 1:
        received = ", ".join(f"{heads} of {width}" for heads, width in sizes)
        raise ExportError(f"{name} needs the same key and value heads in all layers. Received: {received}")


def _refusals(spec: AttentionSpec, support: AttentionSupport, longest: int) -> Iterator[tuple[str, str]]:
    """Each unsupported switch, and why."""
    for switch in spec.features:
        if switch not in support.features:
            known = ", ".join(sorted(support.features)) or "none"
            yield switch, f"does not compute attention with this switch. Supported: {known}"
    scaling = None if spec.rotary is None else spec.rotary.scaling
    if scaling is None or support.reads_whole_prompts or scaling.kind not in ("dynamic", "longrope"):
        return
    if longest > scaling.original_length:
        yield (
            "rotary_scaling",
            "reads a prompt in several calls, while this scaling depends on the length of the whole text. Expected: a "
            f"capacity and lengths of at most original_length={scaling.original_length}",
        )
