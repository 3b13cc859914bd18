"""What a run wrote, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kerasformer.decoding import GenerationOutput
from kerasformer.generation.explanation import explanations
from kerasformer.tokenization import Tokenizer


@dataclass(frozen=True)
class GeneratedText:
    """Texts of a run.

    Attributes:
        tokenizer: Of the model.
        prompts: The ids that a decoder continued, for each prompt; empty ones for an encoder-decoder.
        output: The new tokens.
    """

    tokenizer: Tokenizer
    prompts: Sequence[Sequence[int]]
    output: GenerationOutput

    def result(self, kind: str) -> Any:
        """What a `Request` asks for, if that is no text: the `"output"`, or an `"explanation"` of each text."""
        if kind == "output":
            return self.output
        found = explanations(self.output, self.tokenizer, self.prompts)
        return found[0] if len(found) == 1 else found

    @property
    def texts(self) -> list[list[str]]:
        """For each prompt its `num_return_sequences` new texts."""
        copies = len(self.output.sequences) // len(self.prompts)
        return [
            [self._after(prompt, tokens.tolist()) for tokens in self.output.sequences[i * copies : (i + 1) * copies]]
            for i, prompt in enumerate(self.prompts)
        ]

    def _after(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """New tokens as they read after the prompt, for one may begin with a space or within a word."""
        before = self.tokenizer.decode(prompt, skip_special_tokens=True)
        return self.tokenizer.decode([*prompt, *tokens], skip_special_tokens=True)[len(before) :]
