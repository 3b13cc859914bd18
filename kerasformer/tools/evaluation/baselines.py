"""Baselines, which a model should exceed: the first sentences, the source, the most frequent class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kerasformer.basics.arguments import check, integer
from kerasformer.basics.progress import CountProgress
from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines import Example
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.evaluation.batches import in_batches
from kerasformer.tools.evaluation.classes import Classes
from kerasformer.tools.evaluation.glue import GlueTask
from kerasformer.tools.evaluation.outcome import Outcome, of_classes
from kerasformer.tools.evaluation.sentences import sentences

_SENTENCES = 3
_CUE = "\nTL;DR:"
_NEW_TOKENS = 100


def lead(text: str, count: int = _SENTENCES) -> str:
    """Returns the first sentences of a text, one per line: with three of them, the baseline lead-3 of summarization.

    Args:
        text: Text to summarize.
        count: Number of sentences.

    Reference: See et al. 2017, arXiv:1704.04368, which compares its models with this baseline.
    """
    return "\n".join(sentences(text)[: check("count", count, integer(1))])


def source(text: str) -> str:
    """Returns the text itself, the baseline of translation."""
    return text


BASELINES: dict[str, dict[str, Callable[[str], str]]] = {
    "summarization": {f"lead-{_SENTENCES}": lead},
    "translation": {"source": source},
}
"""Baselines without a model, by task and name."""


def majority(examples: Sequence[Example], train: Sequence[Example], glue: GlueTask | None = None) -> Outcome:
    """Returns what a classifier scores that always answers the most frequent class.

    Args:
        examples: Evaluated texts with one class each.
        train: Texts whose most frequent class it is.
        glue: Task of GLUE that has the classes and metrics.
    """
    known = class_names([*train, *examples], glue)
    (best, _), *_ = Counter(known.find(example.label) for example in train).most_common(1)
    return of_classes(known, [best] * len(examples), [known.find(example.label) for example in examples])


def class_names(examples: Sequence[Example], glue: GlueTask | None = None) -> Classes:
    """Returns the classes of labelled texts: those of a task of GLUE, or all labels in alphabetical order."""
    names = {str(example.label).strip().lower() for example in examples}
    return Classes(glue.classes if glue is not None and glue.classes else sorted(names), glue)


def tldr(pipe: Any, texts: Sequence[str], *, batch_size: int = 8, progress: CountProgress | None = None) -> list[str]:
    """Summarizes texts with a decoder, which continues each of them after the line "TL;DR:".

    As in the paper, a summary consists of the first three sentences of 100 tokens, which are sampled from the two most
    probable ones at each step (here with a fixed seed). In a cache of less than 200 tokens, they are half of the cache.
    A text that leaves no space for them is shortened at its end.

    Args:
        pipe: Pipeline for text-generation, on any engine.
        texts: Texts to summarize.
        batch_size: Number of texts in one batch.
        progress: Called with the number of completed texts.

    Raises:
        CapacityError: the cache of the decoder has no space for a text.
        InputError: the pipeline is for another task.

    Reference: Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 3.6.
    """
    if pipe.task != "text-generation":
        raise InputError(f"TL;DR: needs a decoder, a model for text-generation. Received: a model for {pipe.task}")
    capacity = pipe.model.capacity
    new_tokens = min(_NEW_TOKENS, capacity // 2)
    settings = {"max_new_tokens": new_tokens, "do_sample": True, "top_k": 2, "seed": 0}

    def write(part: Sequence[str]) -> list[str]:
        prompts = [_prompt(pipe.tokenizer, text, capacity - new_tokens) for text in part]
        rows = pipe(prompts, return_full_text=False, raw=True, batch_size=len(prompts), **settings)
        return [lead(row[0]["generated_text"]) for row in rows]

    return in_batches(texts, write, batch_size, progress)


def _prompt(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """Returns a text and the line after it, shortened to at most `limit` tokens at the end of the text."""
    while (excess := len(tokenizer.encode(text + _CUE)) - limit) > 0:
        offsets = tokenizer(text).offsets[0]
        ends = [int(end) for start, end in offsets if end > start]
        if len(ends) <= excess:
            raise CapacityError(
                "The cache of the decoder has no space for a text and its summary. Expected: more than "
                f"{len(tokenizer.encode(_CUE))} tokens for the text. Received: {limit}"
            )
        # A character may have several tokens, which all end where it ends.
        text = text[: min(ends[-excess - 1], len(text) - 1)]
    return text + _CUE
