"""Classification by likelihood: which of several texts a language model finds most probable after a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kerasformer.basics.arguments import STRING, check, integer, one_of, optional, sequence
from kerasformer.basics.progress import CountProgress
from kerasformer.bundle import ModelInfo
from kerasformer.engines import Step, left_padded, next_distributions, right_padded
from kerasformer.errors import CapacityError, InputError, TokenizerError
from kerasformer.generation import GenerationConfig, decoder_start
from kerasformer.pipelines import Label, open_reader, read_inputs, read_text, softmax
from kerasformer.tokenization import Tokenizer

Normalization = Literal["bytes", "tokens"]
NORMALIZATIONS = ("bytes", "tokens")
BLANK = "XXXXX"
"""The gap of a cloze, as in the Children's Book Test (Hill et al. 2015, arXiv:1511.02301)."""
_GAP = re.compile(rf"{BLANK}|_{{3,}}")
Row = tuple[Sequence[int], Sequence[int]]
"""Ids of at least one token that is read, and of the tokens after it whose probabilities are computed.

For an encoder-decoder, the encoder reads the former, and the decoder writes the latter.
"""


@dataclass(frozen=True)
class Continuation:
    """What a model thinks of given tokens.

    Attributes:
        logprobs: Log-probability of each token given all tokens before it, natural logarithms, float32 `(N,)`.
        greedy: Whether each of them is the most probable token, so that a greedy search would write them.
    """

    logprobs: np.ndarray
    greedy: bool


def choose(
    model: object,
    inputs: str | Sequence[str],
    choices: Sequence[str],
    *,
    normalization: Normalization | None = None,
    blank: str | None = BLANK,
    batch_size: int = 8,
) -> list[Label] | list[list[Label]]:
    """Ranks texts by their likelihood after a prompt, or in its gap, which makes any language model a classifier.

        pipe = kf.pipeline("story-gpt2")
        kf.choose(pipe, "The soup was cold and the waiter rude. It was ", ["good", "bad"])
        kf.choose(pipe, "The XXXXX barked at the moon.", ["dog", "soup"])

    White space at the end of a prompt is counted to the choices, since most vocabularies join it to the next word.
    In a gap, the likelihood is that of the choice and of the rest of the text after it.

    An encoder-decoder such as T5 reads the prompt, which needs the prefix of its task, and the likelihood is that of
    the choice as the whole answer, with its end token.

    Args:
        model: Pipeline for text-generation or text2text-generation on any engine, Keras model, or source of
            `kerasformer.pipeline`.
        inputs: A prompt or several, such as those of `kerasformer.prompt`.
        choices: Texts that may follow each prompt.
        normalization: Divide the log-likelihood of a choice by its number of `"bytes"` (as the normalized accuracy of
            HellaSwag and ARC) or of `"tokens"` (as GPT-3), so that long choices are not at a disadvantage. None by
            default. In a gap, the rest of the text counts.
        blank: Gap that a choice takes the place of, if a prompt has it once; by default `XXXXX`, or a line of at least
            three `_`. `None` if choices follow every prompt. Only for decoders.
        batch_size: Number of pairs of a prompt and a choice in one batch.

    Returns:
        For a prompt, `{"label", "score"}` of each choice, the best first; scores are the softmax of the likelihoods,
        and add up to 1. For several prompts, a list of such lists.

    Raises:
        InputError: there are less than two choices, or one is empty or repeated; a prompt has several gaps; the model
            does not generate.
        CapacityError: a prompt with a choice exceeds the capacity of the model.

    Reference: Brown et al. 2020, arXiv:2005.14165, section 2.4.
    """
    reader = open_chooser(model)
    prompts = read_inputs(inputs, read_text, "prompt")
    texts = check("choices", choices, sequence(STRING))
    if len(set(texts)) < max(len(texts), 2) or not all(text.strip() for text in texts):
        raise InputError(f"choices must be at least two different texts. Received: choices={choices!r:.80}")
    check("normalization", normalization, one_of(*NORMALIZATIONS, None))
    parts = [reader.split(prompt, text, blank) for prompt in prompts.items for text in texts]
    found = reader.continuations([part.row for part in parts], batch_size)
    answers = []
    for start in range(0, len(found), len(texts)):
        rows = slice(start, start + len(texts))
        scores = softmax(likelihoods([part.text for part in parts[rows]], found[rows], normalization))
        order = np.argsort(-scores, kind="stable")
        answers.append([Label(label=texts[index], score=float(scores[index])) for index in order])
    return answers[0] if prompts.form == "one" else answers


@dataclass(frozen=True)
class Part:
    """A choice as a model reads it.

    Attributes:
        row: Tokens that are read, and tokens whose probabilities are computed.
        text: The text of the latter.
    """

    row: Row
    text: str


@dataclass(frozen=True)
class Chooser:
    """Engine and tokenizer of a model that generates.

    Attributes:
        step: The engine.
        tokenizer: The tokenizer.
        info: Properties of the model, which an engine alone lacks.
    """

    step: Step
    tokenizer: Tokenizer
    info: ModelInfo | None = None

    def split(self, prompt: str, choice: str, blank: str | None = BLANK) -> Part:
        """Returns the tokens of a prompt, and those of a choice after it or in its gap.

        Args:
            prompt: The prompt.
            choice: The choice.
            blank: The gap, as in `choose`.

        Raises:
            InputError: the prompt has several gaps, or no token before the gap or the choice.
        """
        if self.step.is_encoder_decoder:
            written = self.tokenizer.writer.encode(choice.strip())
            return Part((self.tokenizer.encode(prompt), written), choice)
        gap = gap_of(prompt, blank)
        if gap is None:
            return Part(split_tokens(self.tokenizer, prompt, choice), choice)
        text = choice.strip() + prompt[gap[1] :]
        return Part(split_tokens(self.tokenizer, prompt[: gap[0]], text), text)

    def continuations(
        self, rows: Sequence[Row], batch_size: int = 8, progress: CountProgress | None = None
    ) -> list[Continuation]:
        """As the function `continuations`, with the first token that a decoder reads after an encoder's text."""
        first = None
        if self.step.is_encoder_decoder:
            settings = {} if self.info is None else self.info.generation
            first = decoder_start(self.step, GenerationConfig.from_dict(settings))
        return continuations(self.step, rows, batch_size, progress, first)


def gap_of(prompt: str, blank: str | None = BLANK) -> tuple[int, int] | None:
    """Returns the start and the end of the only gap of a prompt, as for `choose`; `None` without one.

    Raises:
        InputError: there are several.
    """
    if check("blank", blank, optional(STRING)) is None:
        return None
    gaps = list((_GAP if blank == BLANK else re.compile(re.escape(str(blank)))).finditer(prompt))
    if len(gaps) > 1:
        raise InputError(
            "A choice takes the place of one gap. Pass blank=None to put choices after the prompt. "
            f"Received: {len(gaps)} times {gaps[0].group()!r} in {prompt!r:.80}"
        )
    return gaps[0].span() if gaps else None


def open_chooser(model: Any) -> Chooser:
    """Returns the engine and the tokenizer of a model that generates.

    Raises:
        InputError: the model does not generate.
        TokenizerError: there is no tokenizer.
    """
    step, tokenizer, info = open_reader(model)
    if tokenizer is None:
        raise TokenizerError("A pipeline or a source was expected, whose tokenizer reads texts. Received: an engine")
    return Chooser(step, tokenizer, info)


def open_decoder(model: Any) -> tuple[Step, Tokenizer]:
    """Returns the engine and the tokenizer of a decoder-only model.

    Raises:
        InputError: the model does not generate, or has an encoder.
        TokenizerError: there is no tokenizer.
    """
    reader = open_chooser(model)
    if reader.step.is_encoder_decoder:
        raise InputError("A decoder-only model for text-generation was expected. Received: an encoder-decoder")
    return reader.step, reader.tokenizer


def split_tokens(tokenizer: Tokenizer, prompt: str, text: str) -> Row:
    """Returns the tokens of a prompt, and those of a text after it.

    Both are tokenized as one text, as they would be in a corpus. White space at the end of the prompt belongs to the
    text; so does a token that begins in the prompt and ends in the text.

    Raises:
        InputError: the prompt has no tokens.
    """
    start = prompt.rstrip()
    before, whole = tokenizer.encode(start), tokenizer.encode(prompt + text)
    common = next((i for i, pair in enumerate(zip(before, whole, strict=False)) if pair[0] != pair[1]), len(before))
    written = whole[common:]
    while written and written[-1] in tokenizer.all_special_ids:  # such as the end token of a whole text
        written = written[:-1]
    if not whole[:common] or not written:
        raise InputError(
            "A text, and a prompt of at least one token before it, were expected. "
            f"Received: prompt={prompt!r:.40}, text={text!r:.40}. Begin the prompt with other words or the start token"
        )
    return whole[:common], written


def likelihoods(
    choices: Sequence[str], continuations: Sequence[Continuation], normalization: Normalization | None = None
) -> np.ndarray:
    """Returns the log-likelihood of each choice, float64 `(N,)`, divided by its length if requested."""
    sums = np.array([one.logprobs.sum(dtype=np.float64) for one in continuations])
    if normalization == "tokens":
        return sums / [len(one.logprobs) for one in continuations]
    return sums / [len(choice.encode()) for choice in choices] if normalization == "bytes" else sums


def continuations(
    step: Step,
    rows: Sequence[Row],
    batch_size: int = 8,
    progress: CountProgress | None = None,
    first_token: int | None = None,
) -> list[Continuation]:
    """Computes the probabilities of given tokens after others, in batches of similar length.

    Args:
        step: The engine.
        rows: Tokens that are read, and tokens whose probabilities are computed.
        batch_size: Number of rows in one batch.
        progress: Called with the number of completed rows.
        first_token: First token that an encoder-decoder's decoder reads; `None` for a decoder-only model.

    Returns:
        A result for each row, in their order.

    Raises:
        CapacityError: a row exceeds the capacity.
        GenerationError: logits are not finite.
    """
    results: dict[int, Continuation] = {}
    has_encoder = first_token is not None
    for part in _batches(rows, check("batch_size", batch_size, integer(1)), step.capacity, has_encoder):
        read, written = ([rows[index][side] for index in part] for side in (0, 1))
        # What several texts follow is read once.
        contexts = {tuple(row): index for index, row in enumerate(dict.fromkeys(map(tuple, read)))}
        ids, mask = right_padded(list(contexts)) if has_encoder else left_padded(list(contexts))
        state, rows_of_contexts = step.start(ids, mask), np.array([contexts[tuple(row)] for row in read])
        if len(contexts) < len(part):
            state = step.reorder(state, rows_of_contexts)
        # Padding on the right does not affect the tokens before it.
        count = _padded_count(step, 1 if has_encoder else ids.shape[1], max(map(len, written)))
        targets = np.stack([np.pad(row, (0, count - len(row))) for row in written]).astype(np.int32)
        logs, best = np.zeros(targets.shape, np.float32), np.zeros(targets.shape, bool)
        last = np.full(len(part), first_token, np.int32) if has_encoder else ids[rows_of_contexts, -1]
        for columns, distributions in next_distributions(step, state, last, targets):
            logs[:, columns] = np.take_along_axis(distributions, targets[:, columns, None], axis=2)[..., 0]
            best[:, columns] = distributions.argmax(axis=2) == targets[:, columns]
        for row, index in enumerate(part):
            length = len(rows[index][1])
            results[index] = Continuation(logs[row, :length], bool(best[row, :length].all()))
        if progress is not None:
            progress(len(results), len(rows))
    return [results[index] for index in range(len(rows))]


def _padded_count(step: Step, width: int, count: int) -> int:
    """Returns the number of tokens, with padding, that takes the fewest steps to read after `width` tokens."""
    rest = count % max(step.step_lengths)
    padded = count - rest + min((length for length in step.step_lengths if length >= rest > 0), default=0)
    return padded if width + padded - 1 <= step.capacity else count


def _batches(rows: Sequence[Row], size: int, capacity: int, has_encoder: bool) -> Iterator[list[int]]:
    """Yields the indices of rows that fit into the cache together: the longest prompt and the longest text of them.

    What an encoder reads takes no room there, except the first token of its decoder.
    """
    part: list[int] = []
    width = count = 0
    # The last token of a text is not read.
    order = sorted((len(read), tuple(read), len(written), index) for index, (read, written) in enumerate(rows))
    for read, _, written, index in order:
        read = 1 if has_encoder else read
        if read + written > capacity + 1:
            raise CapacityError(
                f"A prompt and a text after it exceed the cache. Expected at most {capacity + 1} tokens. Received: "
                f"{read} + {written}. Shorten the prompt, or load or export the model with a larger capacity"
            )
        if part and (len(part) == size or max(width, read) + max(count, written) > capacity + 1):
            yield part
            part, width, count = [], 0, 0
        part.append(index)
        width, count = max(width, read), max(count, written)
    if part:
        yield part
