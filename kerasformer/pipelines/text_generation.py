"""Texts that are continued, and texts that are rewritten into others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasformer.decoding import GenerationConfig
from kerasformer.errors import GenerationError, InputError
from kerasformer.generation import Request, request
from kerasformer.pipelines._base import Pipeline, batches, listed
from kerasformer.pipelines._open import Opened, open_step
from kerasformer.tokenization.streaming import TextStream


class _Writes(Pipeline):
    """What both kinds of generation share: settings, batches, stop strings."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.generation_config = GenerationConfig.from_dict(opened.info.generation)

    def _request(self, settings: dict[str, Any]) -> Request:
        base = self.generation_config
        if not base.eos_token_id and self.info.eos_token_id:
            base = base.replace(eos_token_id=self.info.eos_token_id)
        return request(settings, base, self.tokenizer, open_step)

    def _generated(
        self, texts: Sequence[str], batch_size: int, settings: dict[str, Any], truncation: bool = False
    ) -> list[list[np.ndarray]]:
        """New tokens: for each text a list of `num_return_sequences`."""
        asked, results = self._request(settings), []
        for part in batches(texts, batch_size):
            encoded = self._encode(part, truncation)
            output = asked.generate(self._step(), encoded.input_ids, encoded.attention_mask)
            copies = asked.config.num_return_sequences
            results += [output.sequences[i * copies : (i + 1) * copies] for i in range(len(part))]
        return results

    def _streamed(self, text: str, settings: dict[str, Any]) -> Iterator[str]:
        """The new text piece by piece; arguments are checked at the call, not at the first piece."""
        asked = self._request(settings)
        if asked.config.num_return_sequences > 1:
            raise GenerationError(
                f"A stream is one text. Expected num_return_sequences=1. Received: {asked.config.num_return_sequences}"
            )
        encoded = self._encode([text], False)
        steps = asked.stream(self._step(), encoded.input_ids, encoded.attention_mask)
        return _pieces(steps, self.tokenizer.streamer())


def _pieces(steps: Iterator[np.ndarray], streamer: TextStream) -> Iterator[str]:
    for tokens in steps:
        if piece := streamer.put(tokens.tolist()):
            yield piece
    if rest := streamer.end():
        yield rest


class TextGeneration(_Writes):
    """Continues a text: `[{"generated_text": …}]`."""

    def __call__(
        self,
        inputs: str | Sequence[str],
        *,
        return_full_text: bool = True,
        batch_size: int = 8,
        **settings: Any,
    ) -> list[Any]:
        """Generates.

        Args:
            inputs: A prompt or a list.
            return_full_text: The prompt is part of the text.
            batch_size: Prompts that go through the model at once.
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`.

        Returns:
            For a prompt, a list of `num_return_sequences` results; for a list, a list each.

        Raises:
            CapacityError: a prompt is longer than the cache.
            GenerationError: settings that cannot be.
        """
        texts, single = listed(inputs, "prompt")
        results = []
        for text, sequences in zip(texts, self._generated(texts, batch_size, settings), strict=True):
            results.append([{"generated_text": self._text(text, sequence, return_full_text)} for sequence in sequences])
        return results[0] if single else results

    def _text(self, prompt: str, sequence: np.ndarray, whole: bool) -> str:
        """The continuation as it reads after the prompt, for a token may begin with a space or within a word."""
        ids = self.tokenizer.encode(prompt)
        before = self.tokenizer.decode(ids, skip_special_tokens=True)
        after = self.tokenizer.decode([*ids, *sequence.tolist()], skip_special_tokens=True)[len(before) :]
        return prompt + after if whole else after

    def stream(self, inputs: str, **settings: Any) -> Iterator[str]:
        """Pieces of the continuation as they come.

        Args:
            inputs: One prompt.
            settings: As in a call; without beams.
        """
        return self._streamed(listed(inputs, "prompt")[0][0], settings)


class Text2TextGeneration(_Writes):
    """Writes a text from another: `[{"generated_text": …}]`, or the key of the task."""

    _KEYS = {"summarization": "summary_text", "translation": "translation_text"}

    def __call__(
        self,
        inputs: str | Sequence[str],
        *,
        prefix: str | None = None,
        batch_size: int = 8,
        truncation: bool = False,
        **settings: Any,
    ) -> list[Any]:
        """Generates.

        Args:
            inputs: A text or a list.
            prefix: Put before each text; for a task, what the checkpoint names for it by default.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are longer than the encoder, with a warning, where otherwise there is an error.
            settings: Fields of `GenerationConfig`.

        Returns:
            For a text, a list of `num_return_sequences` results. For a list, one result a text, or a list each if
            `num_return_sequences` is not 1.

        Raises:
            CapacityError: a text is longer than the encoder.
            InputError: several prefixes would fit.
        """
        texts, single = listed(inputs)
        before = self._prefix() if prefix is None else prefix
        key = self._KEYS.get(self.task, "generated_text")
        written = self._generated([before + text for text in texts], batch_size, settings, truncation)
        results = [
            [{key: self.tokenizer.decode(sequence, skip_special_tokens=True).strip()} for sequence in sequences]
            for sequences in written
        ]
        if single:
            return results[0]
        return [row[0] for row in results] if all(len(row) == 1 for row in results) else results

    def stream(self, inputs: str, *, prefix: str | None = None, **settings: Any) -> Iterator[str]:
        """Pieces of the text as they come; arguments as in a call, without beams."""
        before = self._prefix() if prefix is None else prefix
        return self._streamed(before + listed(inputs)[0][0], settings)

    def _prefix(self) -> str:
        """What the checkpoint puts before a text for this task; translations name their languages."""
        fitting = {task: text for task, text in self.info.task_prefixes.items() if task.startswith(self.task)}
        if len(fitting) > 1:
            raise InputError(
                f"This model has several prefixes for {self.task}. Expected prefix= to be one of "
                f"{', '.join(map(repr, fitting.values()))}. Received none"
            )
        return next(iter(fitting.values()), "")
