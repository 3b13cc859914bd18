"""Summarization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kerasformer.errors import InputError
from kerasformer.generation import GenerationConfig
from kerasformer.pipelines.text_parts import Parts
from kerasformer.pipelines.text_to_text import Text2TextGenerationPipeline
from kerasformer.tokenization import Encoding


class SummarizationPipeline(Text2TextGenerationPipeline):
    """Summarizes texts: `[{"summary_text": …}]`.

    With `split="chunks"`, a long text is read in chunks of whole sentences that are of similar length and as few as
    possible, and the summaries of the chunks are joined.

    A text that is shorter than the minimum length of its summary is an error.
    """

    key: ClassVar[str] = "summary_text"
    splits: ClassVar[tuple[str, ...]] = ("chunks",)
    chunks_across_lines: ClassVar[bool] = True

    def _joined(self, parts: Parts, texts: Sequence[str]) -> str:
        return " ".join(text.strip() for text in texts if text.strip())

    def _check_read(self, encoded: Encoding, config: GenerationConfig) -> None:
        shortest = int(encoded.attention_mask.sum(axis=1).min())
        name, minimum = "min_new_tokens", config.min_new_tokens
        if minimum is None:
            name, minimum = "min_length", config.min_length
        if shortest < minimum:
            raise InputError(
                f"A text is shorter than its summary must be. Expected: at least {minimum} tokens, because of "
                f"{name}={minimum!r}. Received: {shortest}. Pass a smaller {name}"
            )
