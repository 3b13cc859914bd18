"""The result of text generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kerasformer.extras import tool
from kerasformer.generation.output import GenerationOutput
from kerasformer.tokenization import Tokenizer

_EXPLAINER = "kerasformer.tools.interpretability.explanation"
"""Module with `explanations(output, tokenizer, prompts)`, which is imported when an explanation is requested."""


@dataclass(frozen=True)
class GeneratedText:
    """Generated texts.

    Attributes:
        tokenizer: Tokenizer of the model.
        prompts: Token ids of each prompt of a decoder; empty for an encoder-decoder.
        output: Generated tokens.
    """

    tokenizer: Tokenizer
    prompts: Sequence[Sequence[int]]
    output: GenerationOutput

    def result(self, kind: str) -> GenerationOutput | Any:
        """Returns a result other than the texts: the `"output"`, or an `"explanation"` of the text or of each one."""
        if kind == "output":
            return self.output
        results = tool(_EXPLAINER).explanations(self.output, self.tokenizer, self.prompts)
        return results[0] if len(results) == 1 else results

    @property
    def texts(self) -> list[list[str]]:
        """The `num_return_sequences` new texts of each prompt."""
        copies = len(self.output.sequences) // len(self.prompts)
        return [
            [self._after(prompt, tokens.tolist()) for tokens in self.output.sequences[i * copies : (i + 1) * copies]]
            for i, prompt in enumerate(self.prompts)
        ]

    def _after(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Decodes new tokens in the context of the prompt, since a token may start with a space or within a word."""
        before = self.tokenizer.decode(prompt, skip_special_tokens=True)
        return self.tokenizer.decode([*prompt, *tokens], skip_special_tokens=True)[len(before) :]
