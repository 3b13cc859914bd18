"""Texts that are continued, and texts that are rewritten into others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasformer.arguments import BOOLEAN, STRING, check, optional
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError, argument
from kerasformer.generation import Request, Stream, Written, request
from kerasformer.generation.streams import Callback
from kerasformer.pipelines._base import Pipeline, batches, listed
from kerasformer.pipelines._open import Opened, open_step
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known


class _Writes(Pipeline):
    """What both kinds of generation share: settings, batches, streams."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.generation_config = GenerationConfig.from_dict(opened.info.generation)

    def _request(self, settings: dict[str, Any]) -> Request:
        base = self.generation_config
        if not base.eos_token_id and self.info.eos_token_id:
            base = base.replace(eos_token_id=self.info.eos_token_id)
        return request(settings, base, self.tokenizer, open_step)

    def _written(self, asked: Request, encoded: Encoding) -> Written:
        return asked.write(self._step(), encoded.input_ids, encoded.attention_mask)

    def _texts(
        self, asked: Request, texts: Sequence[str], batch_size: int, truncation: bool = False
    ) -> list[list[str]]:
        """For each text the `num_return_sequences` that are written from it."""
        parts = list(batches(texts, batch_size))
        requests = zip(asked.split(list(map(len, parts))), parts, strict=True)
        return [row for each, part in requests for row in self._written(each, self._encode(part, truncation)).texts]

    def _whole(self, asked: Request, texts: Sequence[str], truncation: bool = False) -> list[Any]:
        """For each text, alone, all of its run in the form that was asked for."""
        requests = zip(asked.split([1] * len(texts)), texts, strict=True)
        return [self._written(each, self._encode([text], truncation)).result(asked.result) for each, text in requests]

    def _streamed(self, text: str, callback: Callback | None, settings: dict[str, Any]) -> Stream:
        """The new text piece by piece; arguments are checked at the call, not at the first piece."""
        asked, encoded = self._request(settings), self._encode([text], False)
        return asked.stream(self._step(), encoded.input_ids, encoded.attention_mask, callback)


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
            settings: Fields of `GenerationConfig`, such as `max_new_tokens=40`, `num_beams=4`, `top_p=0.9`, `seed=1`,
                and what `kerasformer.generation.request` knows beside them: `stop`, `negative_prompt`, `assistant`, …

        Returns:
            For a prompt, a list of `num_return_sequences` results; for a list, a list each. With
            `return_dict_in_generate` or `output_scores` the `GenerationOutput` of each prompt instead.

        Raises:
            CapacityError: a prompt is longer than the cache.
            GenerationError: settings that cannot be.
        """
        texts, single = listed(inputs, "prompt")
        return_full_text = check("return_full_text", return_full_text, BOOLEAN)
        asked = self._request(settings)
        if asked.result != "texts":
            results = self._whole(asked, texts)
        else:
            written = zip(texts, self._texts(asked, texts, batch_size), strict=True)
            results = [[{"generated_text": text * return_full_text + new} for new in row] for text, row in written]
        return results[0] if single else results

    def _encode(self, texts: Sequence[str], truncation: bool, pairs: Sequence[str] | None = None) -> Encoding:
        """Tokens of some prompts, never cut: what is too long for the engine's cache is told when it is to be read."""
        encoded = self.tokenizer(texts, padding_side="right")
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        empty = [text for text, mask in zip(texts, encoded.attention_mask, strict=True) if not mask.any()]
        if empty:
            raise InputError(f"A prompt needs a token to be continued. Received: {empty[0]!r}. Give at least a letter.")
        return encoded

    def stream(self, inputs: str, *, callback: Callback | None = None, **settings: Any) -> Stream:
        """Pieces of the continuation as they come.

        Args:
            inputs: One prompt.
            callback: Is given each piece.
            settings: As in a call; without beams.
        """
        return self._streamed(listed(inputs, "prompt")[0][0], callback, settings)


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
            settings: As for `TextGeneration`.

        Returns:
            For a text, a list of `num_return_sequences` results. For a list, one result a text, or a list each if
            `num_return_sequences` is not 1. With `return_dict_in_generate` or `output_scores` the `GenerationOutput`
            of each text instead.

        Raises:
            CapacityError: a text is longer than the encoder.
            InputError: several prefixes would fit.
        """
        texts, single = listed(inputs)
        before = self._prefix(prefix)
        asked, key = self._request(settings), self._KEYS.get(self.task, "generated_text")
        if "" in texts:
            raise InputError(f"There is nothing to write from. Received: an empty text at place {texts.index('')}.")
        texts = [before + text for text in texts]
        if asked.result != "texts":
            results = self._whole(asked, texts, truncation)
            return results[0] if single else results
        results = [[{key: text} for text in row] for row in self._texts(asked, texts, batch_size, truncation)]
        if single:
            return results[0]
        return [row[0] for row in results] if all(len(row) == 1 for row in results) else results

    def stream(
        self, inputs: str, *, prefix: str | None = None, callback: Callback | None = None, **settings: Any
    ) -> Stream:
        """Pieces of the text as they come; arguments as in a call and for `TextGeneration.stream`."""
        before = self._prefix(prefix)
        return self._streamed(before + listed(inputs)[0][0], callback, settings)

    def _prefix(self, given: str | None) -> str:
        """What was given, or what the checkpoint puts before a text for this task; translations name languages."""
        if check("prefix", given, optional(STRING)) is not None:
            return str(given)
        fitting = {task: text for task, text in self.info.task_prefixes.items() if task.startswith(self.task)}
        if len(fitting) > 1:
            raise InputError(
                f"This model has several prefixes for {self.task}. Expected {argument('prefix', ...)} to be one of "
                f"{', '.join(map(repr, fitting.values()))}. Received none"
            )
        return next(iter(fitting.values()), "")
