"""Log-probabilities of texts, and the distribution of the next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.basics.arguments import STRING, Kind, check, integer, sequence
from kerasformer.bundle import ModelInfo
from kerasformer.engines import (
    Step,
    check_capacity,
    input_vocab_size,
    log_probabilities,
    next_log_probabilities,
    right_padded,
    softmax,
)
from kerasformer.errors import InputError, TokenizerError
from kerasformer.generation import TEMPERATURE, GenerationConfig, NewTokens, decoder_start, readable_token, sampling_of
from kerasformer.pipelines import open_reader
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.evaluation.choosing import Row, continuations, split_tokens

Texts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | np.ndarray
"""A text or its token ids, or several of them; ids may have different lengths."""


def sequence_logprob(model: object, text: Texts, input_len: int = 0, *, target: Texts | None = None) -> Any:
    """Computes the log-probability of a text: the sum of `log p(token | preceding tokens)`, natural logarithms.

    The first token of a decoder-only model has no preceding tokens and is never counted. For an encoder-decoder, `text`
    is the input of the encoder (a task prefix is not added), and the log-probability is that of `target`. With a
    decoder-only model, `target` follows `text`, as what `generate` returns follows its prompt:

        new = model.generate(ids, max_new_tokens=20)
        kf.sequence_logprob(model, ids, target=new)

    Args:
        model: Keras model, pipeline, engine (supports ids only), or a source: folder, preset, hub id or bundle.
        text: A text or its token ids, or several of them.
        input_len: Number of tokens at the start that are not counted, such as those of the prompt; with a target, at
            its start.
        target: A target for each text; an encoder-decoder needs it. With a decoder-only model, the tokens of the text
            are not counted. A text and a target that are strings are tokenized as one text, see `choose`.

    Returns:
        A float for one text; float64 `(B,)` for several.

    Raises:
        CapacityError: a text exceeds the capacity of the model.
        InputError: there is no text, `input_len` exceeds the length of a text or belongs to a prompt that the tokens
            do not contain, or `target` is missing.
        TokenizerError: a text was passed and the model has no tokenizer.

    Reference: Tunstall, von Werra, Wolf 2022, "Natural Language Processing with Transformers", chapter 5. The function
        there also omits the first token after `input_len`; to compare results, pass it a value smaller by one.
    """
    opened = _Opened(*open_reader(model))
    rows, single = _rows(opened, text, "text")
    if opened.step.is_encoder_decoder:
        if target is None:
            raise InputError("An encoder-decoder needs target=, the text whose probability is computed. Received: none")
        targets, _ = _rows(opened, target, "target", len(rows))
        logs = _of_targets(opened, rows, targets, _checked_length(input_len, targets))
    elif target is not None:
        targets, _ = _rows(opened, target, "target", len(rows))
        length = _checked_length(input_len, targets)
        pairs = list(zip(_listed(text), _listed(target), rows, targets, strict=True))
        found = continuations(opened.step, [_joined(opened, *pair) for pair in pairs])
        logs = [one.logprobs[length:] for one in found]
    else:
        if input_len and any(isinstance(row, NewTokens) for row in (text, *_listed(text))):
            raise InputError(
                "input_len is for tokens that begin with those of a prompt, and generate returns the new tokens alone. "
                f"Received: new tokens and input_len={input_len}. Pass the prompt and target=: "
                "sequence_logprob(model, ids, target=new)"
            )
        logs = _of_continuations(opened, rows, max(_checked_length(input_len, rows), 1))
    sums = np.array([row.sum(dtype=np.float64) for row in logs])
    return float(sums[0]) if single else sums


@dataclass(frozen=True)
class NextTokens:
    """Distribution of the next token.

    Attributes:
        probabilities: Probabilities of all tokens, float32 `(V,)`.
        tokenizer: Tokenizer of the model.
    """

    probabilities: np.ndarray
    tokenizer: Tokenizer

    def best(self, count: int = 10) -> list[tuple[str, float]]:
        """Returns the most probable tokens in readable form, with their probabilities."""
        check("count", count, integer(1))
        order = np.argsort(-self.probabilities, kind="stable")[:count].tolist()
        return [(readable_token(self.tokenizer, token), float(self.probabilities[token])) for token in order]

    def left(self, **cuts: object) -> int:
        """Returns the number of tokens that remain after the filters of sampling.

        Args:
            cuts: Sampling settings, such as `top_k=50`, `top_p=0.9`, `temperature=0.7`.
        """
        with np.errstate(divide="ignore"):
            logits = np.log(self.probabilities[None])
        return int((sampling_of(GenerationConfig().replace(**cuts)).filtered(logits) > -np.inf).sum())

    def at(self, temperature: float) -> NextTokens:
        """Returns the distribution at a temperature, by which the logits are divided once more.

        Args:
            temperature: Above 0; below 1 the most probable tokens gain, above 1 they lose.
        """
        divisor = np.float32(check("temperature", temperature, TEMPERATURE))
        with np.errstate(divide="ignore"):
            return NextTokens(softmax(np.log(self.probabilities) / divisor), self.tokenizer)

    def temperatures(
        self,
        path: str | Path,
        temperatures: Sequence[float] = (0.5, 1.0, 2.0),
        top_k: int | None = None,
        top_p: float | None = None,
        count: int = 12,
        title: str = "",
        dark: bool = False,
    ) -> None:
        """Draws the most probable tokens at several temperatures, with what top-k and top-p sampling leave.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            temperatures: Temperatures, one panel each.
            top_k: Value of top-k; tokens that it cuts are grey.
            top_p: Value of top-p, likewise.
            count: Number of tokens in a panel.
            title: Title of the figure.
            dark: Use colours for dark pages.

        Raises:
            InputError: `path` has another suffix, or its folder does not exist.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_temperatures
        from kerasformer.tools.viz.patterns import Candidate

        cuts = {name: value for name, value in (("top_k", top_k), ("top_p", top_p)) if value is not None}
        panels = {}
        for temperature in temperatures:
            tokens = self.at(temperature)
            left = tokens.left(**cuts) if cuts else len(self.probabilities)
            named = f"temperature {temperature:g}" + (f": {left:,} left" if cuts else "")
            best = enumerate(tokens.best(count))
            panels[named] = [Candidate(text, probability, rank < left) for rank, (text, probability) in best]
        draw_temperatures(panels, path, title, dark)

    def picture(
        self, path: str | Path, top_k: int | None = 50, top_p: float | None = 0.9, title: str = "", dark: bool = False
    ) -> None:
        """Draws the histogram and the cumulative distribution, with the cutoffs of top-k and top-p sampling.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            top_k: Value of top-k to mark; `None` for no mark.
            top_p: Value of top-p to mark; `None` for no mark.
            title: Title of the figure.
            dark: Use colours for dark pages.

        Raises:
            InputError: `path` has another suffix, or its folder does not exist.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_distribution

        cuts = []
        if top_k is not None:
            cuts.append((f"top-k = {top_k}", self.left(top_k=top_k)))
        if top_p is not None:
            cuts.append((f"top-p = {top_p:g}", self.left(top_p=top_p)))
        draw_distribution(self.probabilities, path, tuple(cuts), title, dark)


def next_token_distribution(model: object, text: str, temperature: float = 1.0) -> NextTokens:
    """Computes the distribution of the token after a text, or of the first token that an encoder-decoder generates.

    Args:
        model: Keras model, pipeline, or a source: folder, preset, hub id or bundle.
        text: Prompt, or input of the encoder.
        temperature: Divisor of the logits.

    Raises:
        CapacityError: the text exceeds the capacity of the model.
    """
    divisor = np.float32(check("temperature", temperature, TEMPERATURE))
    opened = _Opened(*open_reader(model))
    (row,), _ = _rows(opened, check("text", text, STRING), "text")
    ids = row[None]
    check_capacity(opened.step, 1 if opened.step.is_encoder_decoder else len(row))
    first = np.array([opened.decoder_start]) if opened.step.is_encoder_decoder else row[-1:]
    logs = next_log_probabilities(opened.step, ids, np.ones_like(ids), first.astype(np.int32))
    return NextTokens(softmax(logs[0] / divisor), opened.needed_tokenizer.writer)


@dataclass(frozen=True)
class _Opened:
    """Engine, tokenizer and properties of a model."""

    step: Step
    tokenizer: Tokenizer | None
    info: ModelInfo | None

    @property
    def needed_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise TokenizerError("Texts need a tokenizer, and this model has none. Pass token ids instead.")
        return self.tokenizer

    @property
    def decoder_start(self) -> int:
        return decoder_start(self.step, GenerationConfig.from_dict(self.info.generation if self.info else {}))


def _rows(opened: _Opened, texts: Texts, name: str, count: int | None = None) -> tuple[list[np.ndarray], bool]:
    """Returns the ids of each text, `count` if it is passed, and whether the argument was a single text."""
    written = name == "target" or not opened.step.is_encoder_decoder
    last = (opened.step.vocab_size if written else input_vocab_size(opened.step)) - 1
    ids = sequence(integer(0, last), least=1)

    def encoded(text: str) -> list[int]:
        tokenizer = opened.needed_tokenizer
        return (tokenizer.writer if written else tokenizer).encode(text)

    one = Kind(
        f"a text or its ids from 0 to {last}, of at least one token, or several of them",
        lambda row: ids.convert(encoded(row) if isinstance(row, str) else row),
    )
    single = _is_single(texts)
    several = sequence(one, least=1).convert
    rows = check(name, texts, Kind(one.expected, lambda value: several([value] if single else value)))
    if count not in (None, len(rows)):
        raise InputError(f"Each text needs a target. Expected: {count}. Received: {len(rows)}")
    return [np.array(row, np.int32) for row in rows], single


def _is_single(texts: object) -> bool:
    """Returns whether a value is one text or its ids."""
    if isinstance(texts, np.ndarray):
        return texts.ndim == 1
    return isinstance(texts, str) or (isinstance(texts, Sequence) and bool(texts) and isinstance(texts[0], Integral))


def _listed(texts: Any) -> list[Any]:
    return [texts] if _is_single(texts) else list(texts)


def _joined(opened: _Opened, text: object, target: object, ids: np.ndarray, new: np.ndarray) -> Row:
    """Returns the tokens that are read and those after them; two strings are tokenized as one text."""
    if isinstance(text, str) and isinstance(target, str):
        return split_tokens(opened.needed_tokenizer.writer, text, target)
    return ids.tolist(), new.tolist()


def _checked_length(input_len: int, rows: Sequence[np.ndarray]) -> int:
    advice = "It is a number of tokens at the start of each text, at most the length of the shortest one."
    return int(check("input_len", input_len, integer(0, min(map(len, rows))), advice=advice))


def _of_continuations(opened: _Opened, rows: Sequence[np.ndarray], prefix_length: int) -> list[np.ndarray]:
    check_capacity(opened.step, max(map(len, rows)))
    if max(map(len, rows)) == prefix_length:
        return [np.zeros(0, np.float32) for _ in rows]
    prefixes = np.stack([row[:prefix_length] for row in rows])
    state = opened.step.start(prefixes, np.ones_like(prefixes))
    return log_probabilities(opened.step, state, prefixes[:, -1], [row[prefix_length:] for row in rows])


def _of_targets(
    opened: _Opened, rows: Sequence[np.ndarray], targets: Sequence[np.ndarray], prefix_length: int
) -> list[np.ndarray]:
    check_capacity(opened.step, max(map(len, targets)))
    ids, mask = right_padded(rows)
    first = np.full(len(rows), opened.decoder_start, np.int32)
    logs = log_probabilities(opened.step, opened.step.start(ids, mask), first, targets)
    return [row[prefix_length:] for row in logs]
