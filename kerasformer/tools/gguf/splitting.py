"""How byte-level vocabularies split a text before its bytes are merged, by `tokenizer.ggml.pre`.

Reference: `llm_tokenizer_bpe` of llama.cpp, and `tokenizer.json` of the models that a name stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_ENGLISH_SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_MARKS_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = (
    rf"{_ENGLISH_SUFFIXES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|"
    f"{_MARKS_AND_SPACES}"
)
_QWEN_2 = _LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_FIRST = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = (
    rf"{_FIRST}[{_UPPER}]*[{_LOWER}]+|{_FIRST}[{_UPPER}]+[{_LOWER}]*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|"
    f"{_MARKS_AND_SPACES}"
)
_GPT_4O = (
    rf"{_FIRST}[{_UPPER}]*[{_LOWER}]+{_ENGLISH_SUFFIXES}?|{_FIRST}[{_UPPER}]+[{_LOWER}]*{_ENGLISH_SUFFIXES}?|"
    rf"\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_MARKS_AND_SPACES}"
)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


@dataclass(frozen=True)
class Splitting:
    """How a text is split.

    Attributes:
        pattern: Regular expression of the parts; that of GPT-2 by default.
        digits: Whether each digit is a part before that.
        whole_words: Whether a part that is a token stays whole, whatever the merges are.
        begins: Whether texts begin with the first token if the file does not say so.
    """

    pattern: str | None = None
    digits: bool = False
    whole_words: bool = False
    begins: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """Returns the step of the tokenizer."""
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        if self.pattern is not None:
            steps.append(pre_tokenizers.Split(Regex(self.pattern), "isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None))
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


GPT_2 = Splitting()
_NAMES: Mapping[Splitting, str] = {
    GPT_2: """gpt-2 phi-2 roberta-bpe modern-bert mpt olmo jais trillion granite-docling exaone4 mellum gigachat a.x-4.0
        jina-es jina-de jina-v1-en jina-v2-en jina-v2-es jina-v2-de jina-v2-code""",
    Splitting(digits=True): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    Splitting(_LLAMA_3, whole_words=True, begins=True): """llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0
        lfm2 jina-v5-nano""",
    Splitting(_LLAMA_3): "dbrx smaug-bpe chatglm-bpe",
    Splitting(_LLAMA_3, whole_words=True): "glm4",
    Splitting(_QWEN_2): "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open",
    Splitting(_TEKKEN, whole_words=True, begins=True): "tekken",
    Splitting(_GPT_4O): "gpt-4o llama4 kanana2 talkie minimax-m2",
    Splitting(_BLOOM): "bloom poro-chat gpt3-finnish",
}
SPLITTINGS: Mapping[str, Splitting] = {name: splitting for splitting, names in _NAMES.items() for name in names.split()}
"""Splittings by `tokenizer.ggml.pre`."""
