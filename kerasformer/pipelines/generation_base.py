"""Base class of the pipelines that generate text: settings, batches, streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, Arguments, check, integer
from kerasformer.engines import Step
from kerasformer.generation import GenerationConfig, Request, Steps, Stream, TextCache, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import LengthOptions, Pipeline
from kerasformer.pipelines.inputs import Inputs, progress_bar
from kerasformer.pipelines.opening import Opened, open_step

WHOLE = LengthOptions(in_chunks=False)
"""Prompts are neither truncated nor split."""


@dataclass(frozen=True)
class Prompt:
    """A prompt with its settings, ready to be continued.

    Attributes:
        request: Generation request.
        ids: Token ids, `(1, P)`.
        mask: Mask of the tokens, `(1, P)`.
        step: Engine.
        cache: Caches of earlier texts, or `None` if the engine reads an encoder input.
    """

    request: Request
    ids: np.ndarray
    mask: np.ndarray
    step: Step
    cache: TextCache | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the prompt."""
        return int(self.mask.sum())

    @property
    def before(self) -> list[int]:
        """Token ids that precede the new text: those of the prompt, or none for an encoder-decoder."""
        tokens: list[int] = [] if self.step.is_encoder_decoder else self.ids[0][self.mask[0] > 0].tolist()
        return tokens

    def steps(self, reuse: bool = True) -> Steps:
        """Generates token by token.

        Args:
            reuse: Whether to continue the caches of an earlier text that begins with the same tokens.
        Raises:
            CapacityError: the prompt does not fit into the cache.
            GenerationError: settings that the engine does not support, such as beam search.
        """
        return self.request.steps(self.step, self.ids, self.mask, self.cache if reuse else None)


class GenerationPipeline(Pipeline):
    """Base class of the pipelines that generate text.

    Attributes:
        generation_config: Settings of the model, which those of a call override.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.generation_config = GenerationConfig.from_dict(opened.info.generation)

    def _request(self, settings: Arguments) -> Request:
        return request(settings, self._base_config(), self.tokenizer, open_step)

    def _base_config(self) -> GenerationConfig:
        base = self.generation_config
        if not base.eos_token_id and self.info.eos_token_id:
            base = base.replace(eos_token_id=self.info.eos_token_id)
        return base

    def _batches(
        self, generation: Request, inputs: Inputs[Any], batch_size: int, progress: bool
    ) -> Iterator[tuple[Request, list[Any]]]:
        """Yields inputs in batches, each with the request for its prompts.

        Args:
            generation: The request for all inputs; lists in it, such as negative prompts, are split like the inputs.
            inputs: Prompts, or inputs of the encoder.
            batch_size: Number of inputs in one batch; 1 is used if the results are not texts.
            progress: Whether to show a progress bar.
        """
        size = check("batch_size", batch_size, integer(1)) if generation.result == "texts" else 1
        with progress_bar(self.task, inputs.total, check("progress", progress, BOOLEAN)) as advance:
            items, start = iter(inputs.items), 0
            while batch := list(islice(items, size)):
                first = 0 if inputs.total is None else start
                rows = range(first, first + len(batch))
                yield generation.for_prompts(rows, inputs.total or len(batch)), batch
                start += len(batch)
                advance(len(batch))

    def _streamed(
        self, text: str, callback: Callback | None, settings: Arguments, cache: TextCache | None = None
    ) -> Stream:
        """Returns the new text piece by piece; arguments are checked immediately, not at the first piece."""
        generation, encoded = self._request(settings), self._encode([text], WHOLE)
        return generation.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback, cache)
