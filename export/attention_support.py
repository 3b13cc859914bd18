"""Attention features that formats and third-party runtimes support, as data, and the check that applies it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kerasformer.errors import ExportError
from kerasformer.export.job import ExportJob
from kerasformer.layers.attention_spec import AttentionSpec

FEATURES = frozenset(
    {"blocks", "num_key_value_heads", "query_key_norm", "rotary", "rotary_scaling", "softcap", "window"}
)
"""Keys of `AttentionSpec.features` that the lowerings of all formats support."""


@dataclass(frozen=True)
class AttentionSupport:
    """Attention features that a format or a runtime supports. Models with any other feature are refused.

    Attributes:
        features: Supported keys of `AttentionSpec.features`.
        reads_whole_prompts: Whether a prompt is read in one call. If not, rotary scalings that depend on the length of
            the whole text (`dynamic` and `longrope`) match Keras only up to the original length.
        caches_may_differ: Whether the caches of different layers may differ in the number and size of heads.
        states: Whether layers may keep something else of earlier tokens than keys and values.
        recurrent: Whether layers may have states without an axis of tokens.
    """

    features: frozenset[str] = FEATURES
    reads_whole_prompts: bool = True
    caches_may_differ: bool = True
    states: bool = True
    recurrent: bool = True


def check_attention(job: ExportJob, name: str, support: AttentionSupport) -> None:
    """Refuses a model whose attention a format or target would compute differently from Keras.

    Args:
        job: The model and its lengths.
        name: The format or target, as shown in the error.
        support: The features that it supports.

    Raises:
        ExportError: A feature is unsupported; the message has its name, its value and the layer. Or the model is a
            prefix language model.
    """
    if job.model.config.prefix_lm:
        raise ExportError(
            f"{name} reads prompts causally, but in a prompt of a prefix language model tokens attend to later ones. "
            "Expected: a causal model. Received: prefix_lm=True in the configuration. Run the Keras model"
        )
    longest = max(job.capacity or 0, *job.lengths)
    for layer, spec in job.model.attention_specs().items():
        for feature, reason in _refusals(spec, support, longest):
            value = spec.features[feature]
            raise ExportError(f"{name} {reason}. Received: {feature}={value!r} in the layer {layer!r}")
    if not job.model.generates:
        return
    specs = job.model.cache_specs()
    others = {index: spec.names for index, spec in enumerate(specs) if not spec.attends or spec.states}
    refused = not support.states or not (support.recurrent or job.model.rewinds)
    if others and refused:
        index, tensors = next(iter(others.items()))
        kept = "has no recurrent states" if support.states else "passes only keys and values from one step to the next"
        raise ExportError(
            f"{name} {kept}. Received: {', '.join(tensors)} of {len(others)} layers, the first of which is layer "
            f"{index}. Remove target: this package runs the plain bundle"
        )
    sizes = sorted({(spec.num_heads, spec.size) for spec in specs})
    if len(sizes) > 1 and not support.caches_may_differ:
        received = ", ".join(f"{heads} of {width}" for heads, width in sizes)
        raise ExportError(
            f"{name} needs the same number and size of key and value heads in all layers. Received: {received}"
        )


def _refusals(spec: AttentionSpec, support: AttentionSupport, longest: int) -> Iterator[tuple[str, str]]:
    """Yields each unsupported feature with the reason."""
    for feature in spec.features:
        if feature not in support.features:
            supported = ", ".join(sorted(support.features)) or "none"
            yield feature, f"does not support this feature of attention. Supported: {supported}"
    scaling = None if spec.rotary is None else spec.rotary.scaling
    if scaling is None or support.reads_whole_prompts or scaling.kind not in ("dynamic", "longrope"):
        return
    if longest > scaling.original_length:
        yield (
            "rotary_scaling",
            "reads a prompt in several calls, but this scaling depends on the length of the whole text. Expected: "
            f"capacity and lengths of at most original_length={scaling.original_length}",
        )
