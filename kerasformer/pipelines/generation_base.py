"""Base class of the pipelines that generate text: settings, batches, streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.arguments import Arguments, check, integer
from kerasformer.decoding import GenerationConfig, Step, TextCache
from kerasformer.generation import GeneratedText, Request, Stream, TokenRun, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines.base import LengthOptions, Pipeline
from kerasformer.pipelines.inputs import Inputs, map_inputs
from kerasformer.pipelines.opening import Opened, open_step
from kerasformer.tokenization import Encoding

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

    def run(self, reuse: bool = True) -> TokenRun:
        """Starts generation.

        Args:
            reuse: Whether to continue the caches of an earlier text that begins with the same tokens.
        Raises:
            CapacityError: the prompt does not fit into the cache.
            GenerationError: settings that the engine does not support, such as beam search.
        """
        return self.request.run(self.step, self.ids, self.mask, self.cache if reuse else None)


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

    def _generated(self, generation: Request, encoded: Encoding, cache: TextCache | None = None) -> GeneratedText:
        return generation.write(self._step(), encoded.input_ids, encoded.attention_mask, cache)

    def _generate(
        self,
        generation: Request,
        inputs: Inputs[Any],
        result: Callable[[Any, Any], Any],
        *,
        batch_size: int,
        write: Callable[[Request, Sequence[Any]], GeneratedText],
        progress: bool,
        rows: Callable[[GeneratedText], Sequence[Any]] = lambda generated: generated.texts,
    ) -> Any:
        """Generates texts and returns results in the form of the inputs.

        Args:
            generation: Checked settings.
            inputs: Prompts, or inputs of the encoder.
            result: Creates the result for an input from it and its row of `rows`.
            batch_size: Number of inputs in one batch; 1 is used if a `GenerationOutput` is requested.
            write: Generates the texts for a batch of inputs.
            progress: Whether to show a progress bar.
            rows: What `result` needs of the texts of each input; by default the texts.
        """
        returns_texts = generation.result == "texts"
        size = check("batch_size", batch_size, integer(1)) if returns_texts else 1
        # Lists in the settings, such as negative prompts, are split into the same batches as the inputs.
        sizes = [min(size, inputs.total - start) for start in range(0, inputs.total, size)] if inputs.total else []
        batches = iter(generation.split(sizes)) if inputs.form != "iterator" else None

        def answer(texts: Sequence[Any]) -> list[Any]:
            batch = next(batches) if batches is not None else generation.split([len(texts)])[0]
            generated = write(batch, texts)
            if not returns_texts:
                return [generated.result(generation.result)]
            return [result(text, row) for text, row in zip(texts, rows(generated), strict=True)]

        return map_inputs(inputs, answer, batch_size=size, progress=progress, label=self.task)

    def _streamed(
        self, text: str, callback: Callback | None, settings: Arguments, cache: TextCache | None = None
    ) -> Stream:
        """Returns the new text piece by piece; arguments are checked immediately, not at the first piece."""
        generation, encoded = self._request(settings), self._encode([text], WHOLE)
        return generation.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback, cache)
