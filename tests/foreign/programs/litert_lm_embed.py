"""Computes embeddings with LiteRT-LM.

The request is `{"model", "texts", "normalize"}`, and optionally `"overflow"`, the name of an `InputOverflowStrategy`,
and `"backend"`. The answer is the embedding of each text, or `null` where LiteRT-LM refused it.
"""

import json
import sys

import litert_lm


def embedding(engine: litert_lm.EmbeddingEngine, text: str, options: litert_lm.EmbeddingOptions) -> list[float] | None:
    """Returns the embedding of a text."""
    try:
        return engine.compute_embedding(text, options).embedding
    except RuntimeError:
        return None


def main() -> None:
    """Answers one request."""
    request = json.load(sys.stdin)
    backend = getattr(litert_lm.Backend, request.get("backend", "CPU"))()
    engine = litert_lm.EmbeddingEngine(request["model"], backend=backend, cache_dir=":nocache")
    overflow = request.get("overflow")
    options = litert_lm.EmbeddingOptions(
        normalize=request["normalize"],
        input_overflow_strategy=overflow and litert_lm.InputOverflowStrategy[overflow],
    )
    print(json.dumps([embedding(engine, text, options) for text in request["texts"]]))


if __name__ == "__main__":
    main()
