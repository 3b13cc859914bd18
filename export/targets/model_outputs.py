"""Remarks of a card on outputs of the graph, for targets without a pipeline for a task."""

from __future__ import annotations

from kerasformer.bundle import EmbeddingInfo, ModelInfo
from kerasformer.export.card.quoting import code


def example(info: EmbeddingInfo) -> str:
    """Returns an example text, with the prompt before it that `kf.pipeline` uses by default."""
    return f"{info.prompts[info.default_prompt] if info.default_prompt else ''}A text."


def embeddings(info: EmbeddingInfo) -> str:
    """Returns what a program does with embeddings of texts, in addition to running the graph."""
    length = ", which have length 1" if info.normalized else ""
    lines = [f"Pooling and all that follows it are in the graph: the output is one embedding for each text{length}."]
    if info.truncate_dim:
        lines.append(f"Keep only the first {info.truncate_dim} entries of each.")
    if info.prompts:
        listed = ", ".join(f"{code(text)} ({code(name)})" for name, text in info.prompts.items())
        lines.append(f"Put the prompt before a text: {listed}.")
    return "\n" + "\n".join(lines) + "\n"


def scores(info: ModelInfo) -> str:
    """Returns how the logits of a cross-encoder become the scores of `kf.pipeline`."""
    single = "Sigmoid" if len(info.labels) == 1 else "Identity"
    function = (info.score_activation or single).rpartition(".")[2].lower()
    logits = "the logits" if function == "identity" else f"the {function} of the logits"
    return f"\nEach row belongs to a pair of a query and a text. The scores of `kf.pipeline` are {logits}.\n"
