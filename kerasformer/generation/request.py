"""From the keyword arguments of `model.generate` and of a pipeline to a run of `kerasformer.decoding`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer import decoding
from kerasformer.decoding import Controls, GenerationConfig, GenerationOutput, Step, Stop
from kerasformer.errors import GenerationError, InputError, TokenizerError
from kerasformer.tokenization import Tokenizer


@dataclass(frozen=True)
class Request:
    """A run that was asked for.

    Attributes:
        config: The settings.
        controls: What steers it beside them.
    """

    config: GenerationConfig
    controls: Controls

    def generate(self, step: Step, ids: np.ndarray, mask: np.ndarray | None) -> GenerationOutput:
        """See `decoding.generate`."""
        return decoding.generate(step, ids, mask, self.config, self.controls)

    def stream(self, step: Step, ids: np.ndarray, mask: np.ndarray | None) -> Iterator[np.ndarray]:
        """See `decoding.stream`."""
        return decoding.stream(step, ids, mask, self.config, self.controls)


def request(
    settings: Mapping[str, Any],
    base: GenerationConfig,
    tokenizer: Tokenizer | None,
    open_assistant: Callable[[Any], Step],
) -> Request:
    """Sorts keyword arguments into settings and controls.

    Args:
        settings: Fields of `GenerationConfig`, and
            `stop`: a function of a row's new tokens `(N,)` that ends the row when true;
            `rules`: functions of `History` and logits `(R, V)` that give logits;
            `cancelled`: a function that ends all rows when true;
            `negative_prompt`: a text, or a text a prompt, that guidance leads away from;
            `assistant`: a smaller model that guesses ahead.
        base: Settings of the model; those given here win.
        tokenizer: For stop strings and negative prompts.
        open_assistant: From what a caller gives as `assistant` to an engine.
    Raises:
        GenerationError: an unknown name, or a value that cannot be.
        TokenizerError: texts without a tokenizer.
    """
    live = {name: value for name, value in settings.items() if name in _LIVE and value is not None}
    config = base.replace(**{name: value for name, value in settings.items() if name not in _LIVE})
    negative: dict[str, Any] = {}
    if "negative_prompt" in live:
        if config.guidance_scale == 1:
            raise GenerationError(
                "A negative prompt needs guidance_scale other than 1, which says how far to lead away from it. "
                "Received: guidance_scale=1. Try guidance_scale=1.5."
            )
        encoded = _tokenizer(tokenizer, "negative_prompt")(_texts(live.pop("negative_prompt")), padding_side="right")
        negative = {"negative_ids": encoded.input_ids, "negative_mask": encoded.attention_mask}
    assistant = open_assistant(live.pop("assistant")) if "assistant" in live else None
    stop = _any(live.pop("stop", ()))
    decode = _tokenizer(tokenizer, "stop_strings").decode if config.stop_strings else None
    rules = tuple(live.pop("rules", ()))
    return Request(config, Controls(stop, decode, rules, assistant=assistant, **live, **negative))


_LIVE = frozenset({"stop", "rules", "cancelled", "negative_prompt", "assistant"})


def _any(stops: Stop | Sequence[Stop]) -> Stop | None:
    """Ends a row when one of them does."""
    if callable(stops):
        return stops
    return (lambda tokens: any(stop(tokens) for stop in stops)) if stops else None


def _texts(value: str | Sequence[str]) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise InputError(f"negative_prompt must be a text or a text for each prompt. Received: {value!r}")
    return texts


def _tokenizer(tokenizer: Tokenizer | None, what: str) -> Tokenizer:
    if tokenizer is None:
        raise TokenizerError(f"{what} needs a tokenizer, and this model has none. Set model.tokenizer.")
    return tokenizer
