"""Random models, prompts and settings, each compared token by token with `transformers.generate`.

Our implementation runs the prompts in one ragged batch and `transformers` one by one, so that a case also shows that
results do not depend on the batch.

If tokens differ only because several continuations are equally good, a case counts as a tie: the order of equal values
is undefined in `torch.topk`, and two correct implementations of log-softmax differ in the last bit. Ties are not
inferred from scores. Instead, `transformers` runs again with a `topk` that returns the first of equal values, as ours
does, and with our log-softmax, and must then return exactly our tokens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from kerasformer.engines.distribution import log_softmax
from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig, GenerationOutput, generate
from tests.core.generation.engines import Recomputing
from tests.core.generation.models import PAD, gpt2, t5, torch

logging.getLogger("transformers").setLevel(logging.ERROR)

Settings = dict[str, Any]

INVALID = -1e5
"""Upper bound of the scores of hypotheses with which `transformers` fills beams if there are too few."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        number: Number of the case, which seeds its random numbers.
        model: Kind, vocabulary size, seed, and the multiple to which logits are rounded (0: no rounding).
        prompts: Token ids of each prompt.
        settings: Generation settings, whose names are the same in both libraries.
        methods: Keys of `METHODS` that the settings come from.
    """

    number: int
    model: tuple[str, int, int, float]
    prompts: tuple[tuple[int, ...], ...]
    settings: Settings
    methods: tuple[str, ...]

    def __str__(self) -> str:
        """Returns a line of the report."""
        return f"{self.number}: {self.model} {self.prompts} {self.settings}"


class Draw:
    """Draws random settings of a case.

    Args:
        random: Random number generator.
        vocab_size: Vocabulary size of the model.
        equal_lengths: Whether all prompts have the same length, so that settings which count the prompt mean the same
            in a batch.
    """

    def __init__(self, random: np.random.Generator, vocab_size: int, equal_lengths: bool) -> None:
        self.random, self.vocab_size, self.equal_lengths = random, vocab_size, equal_lengths

    def one(self, *values: Any) -> Any:
        """Returns one of the values."""
        return values[self.random.integers(len(values))]

    def tokens(self, limit: int) -> list[int]:
        """Returns fewer than `limit` different tokens, but at least one."""
        count = self.random.integers(1, max(2, min(limit, self.vocab_size)))
        return self.random.choice(self.vocab_size, count, replace=False).tolist()

    def sequence(self, limit: int) -> list[int]:
        """Returns a sequence of 1 to `limit` tokens."""
        return self.random.integers(0, self.vocab_size, self.random.integers(1, limit + 1)).tolist()


def _beams(draw: Draw) -> Settings:
    beams = draw.one(2, 3, 4, 5)
    return {
        "num_beams": beams,
        "length_penalty": draw.one(1.0, 1.0, 0.0, 2.0, -1.0, 0.6),
        "early_stopping": draw.one(False, True, "never"),
        "num_return_sequences": draw.one(1, 2, beams),
    }


# Random settings of each method. To test a new setting, add a line.
METHODS: dict[str, Callable[[Draw], Settings]] = {
    "greedy": lambda draw: {},
    "allowed after a prefix": lambda draw: {"prefix_allowed_tokens_fn": _allowed(draw)},
    "tokens of the prompt": lambda draw: {"encoder_repetition_penalty": draw.one(0.5, 1.3, 5.0)},
    "likelier end": lambda draw: {
        "exponential_decay_length_penalty": (draw.one(0, 2), draw.one(0.7, 1.5)),
        "eos_token_id": draw.tokens(3),
    },
    "invalid values": lambda draw: {"remove_invalid_values": True},
    "renormalized": lambda draw: {"renormalize_logits": True},
    "beams": _beams,
    "one end": lambda draw: {"eos_token_id": draw.tokens(2)[0]},
    "several ends": lambda draw: {"eos_token_id": draw.tokens(draw.vocab_size // 3)},
    "repetition penalty": lambda draw: {"repetition_penalty": draw.one(0.5, 1.3, 5.0)},
    "no n-gram twice": lambda draw: {"no_repeat_ngram_size": draw.one(1, 2, 3)},
    "no n-gram of the prompt": lambda draw: {"encoder_no_repeat_ngram_size": draw.one(1, 2, 3)},
    "bad words": lambda draw: {"bad_words_ids": [draw.sequence(3) for _ in range(draw.one(1, 4, 200))]},
    "bias": lambda draw: {"sequence_bias": [[s, draw.one(-9.0, 0.5, 4.0)] for s in _distinct(draw)]},
    "suppressed": lambda draw: {"suppress_tokens": draw.tokens(draw.vocab_size)},
    "suppressed first": lambda draw: {"begin_suppress_tokens": draw.tokens(draw.vocab_size)},
    "forced begin": lambda draw: {"forced_bos_token_id": draw.tokens(2)[0]} if draw.equal_lengths else {},
    "forced end": lambda draw: {"forced_eos_token_id": draw.tokens(3)},
    "min_new_tokens": lambda draw: {"min_new_tokens": draw.one(1, 2)},
    "min_length": lambda draw: {"min_length": draw.one(2, 4)} if draw.equal_lengths else {},
    "max_length": lambda draw: {"max_length": draw.one(13, 16), "max_new_tokens": None} if draw.equal_lengths else {},
}


def _allowed(draw: Draw) -> Callable[[int, Any], list[int]]:
    """Returns a function of the last token; tokens are a tensor in `transformers` and an array in ours."""
    followers = [sorted(draw.tokens(draw.vocab_size)) for _ in range(draw.vocab_size)]
    return lambda prompt, tokens: followers[int(tokens[-1])]


def _distinct(draw: Draw) -> list[list[int]]:
    return [list(s) for s in {tuple(draw.sequence(2)) for _ in range(draw.one(1, 5, 40))}]


def case(number: int) -> Case:
    """Returns the case with a number; consecutive cases cycle through all methods."""
    random = np.random.default_rng(number)
    kind, equal_lengths = str(random.choice(["gpt2", "t5"])), bool(random.integers(2))
    vocab_size = int(random.choice([1, 2, 3, 5, 17, 61, 61, 61, 130]))
    draw = Draw(random, vocab_size, equal_lengths or kind == "t5")
    names = list(METHODS)
    methods = {names[number % len(names)], *random.choice(names, draw.one(0, 1, 2, 4), replace=False).tolist()}
    if random.integers(2):
        methods.add("beams")  # the most complex method
    settings: Settings = {"max_new_tokens": draw.one(1, 2, 5, 9)}
    for name in sorted(methods, key=names.index):
        settings |= METHODS[name](draw)
    if settings["max_new_tokens"] is not None:  # transformers raises if it is below min_new_tokens
        settings["max_new_tokens"] = max(settings["max_new_tokens"], settings.get("min_new_tokens", 0))
    lengths = random.integers(1, 13, draw.one(1, 2, 3))
    texts = [_text(random, vocab_size, int(lengths[0] if equal_lengths else length)) for length in lengths]
    return Case(number, (kind, vocab_size, draw.one(0, 1), draw.one(0.0, 0.5)), tuple(texts), settings, tuple(methods))


def _text(random: np.random.Generator, vocab_size: int, length: int) -> tuple[int, ...]:
    """Returns random tokens; half of the texts are repetitive."""
    tokens = random.integers(0, vocab_size, length)
    if random.integers(2):
        tokens = np.resize(tokens[: random.integers(1, 4)], length)
    return tuple(tokens.tolist())


@functools.cache
def engine(model: tuple[str, int, int, float]) -> Recomputing:
    """Returns the engine of a case."""
    kind, *rest = model
    return {"gpt2": gpt2, "t5": t5}[kind](*rest)


Result = list[tuple[list[int], float | None]]
"""Sequences and their scores."""


def ours(of: Case) -> Result:
    """Runs a case with our implementation."""
    width = max(map(len, of.prompts))
    ids = np.array([[*prompt, *[PAD] * (width - len(prompt))] for prompt in of.prompts])
    mask = np.array([[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in of.prompts])
    config = GenerationConfig(pad_token_id=PAD, decoder_start_token_id=PAD, **of.settings)
    output: GenerationOutput = generate(engine(of.model), ids, mask, config)
    scores = [None] * len(output.sequences) if output.sequence_scores is None else output.sequence_scores.tolist()
    return list(zip([sequence.tolist() for sequence in output.sequences], scores, strict=True))


class Theirs:
    """Runs a case with `transformers`, one prompt at a time.

    Attributes:
        result: Sequences and scores of all prompts; `None` if it raises.
        stuck: Whether it chose a forbidden token because none was allowed, or found no valid hypothesis.
    """

    def __init__(self, of: Case) -> None:
        self.result: Result | None = []
        self.stuck = False
        for prompt in of.prompts:
            try:
                self.result += self._of(of, prompt)
            except (RuntimeError, IndexError, ValueError):
                self.result = None
                return

    def _of(self, of: Case, prompt: tuple[int, ...]) -> Result:
        torch_engine = engine(of.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about lengths
            result = torch_engine.model.generate(  # type: ignore[attr-defined]
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), pad_token_id=PAD,
                return_dict_in_generate=True, output_scores=True, **of.settings,
            )  # fmt: skip
        tokens = result.sequences[:, 1 if torch_engine.is_encoder_decoder else len(prompt) :].tolist()
        if "sequences_scores" not in result:
            self.stuck |= any(not bool((scores > -torch.inf).any()) for scores in result.scores)
            return [(row, None) for row in tokens]
        self.stuck |= not bool((result.sequences_scores > INVALID).any())
        lengths = (result.beam_indices >= 0).sum(dim=1).tolist()
        scores = result.sequences_scores.tolist()
        return [(row[:size], score) for row, size, score in zip(tokens, lengths, scores, strict=True)]


@contextlib.contextmanager
def stable_ties() -> Iterator[None]:
    """Runs `transformers` with our log-softmax and a `topk` that returns the first of equal values."""

    def topk(values: Any, k: int) -> tuple[Any, Any]:
        if k > values.shape[-1]:
            raise RuntimeError("selected index k out of range")
        ordered, indices = values.sort(dim=-1, descending=True, stable=True)
        return ordered[..., :k], indices[..., :k]

    def softmax(logits: Any, dim: int) -> Any:
        return torch.from_numpy(log_softmax(logits.numpy()))

    with contextlib.ExitStack() as patches:
        for owner, name, new in [
            (torch, "topk", topk),
            (torch.nn.functional, "log_softmax", softmax),
            (torch.Tensor, "log_softmax", softmax),
        ]:
            patches.enter_context(mock.patch.object(owner, name, new))
        yield


OUTCOMES = ("equal", "tie", "theirs fails", "no token left")
"""Accepted outcomes of a comparison."""


def compare(of: Case) -> str:
    """Returns the outcome of a comparison.

    - `equal`: the tokens are equal;
    - `tie`: the tokens are equal if ties are broken in the same way;
    - `theirs fails`: `transformers` raises, as beam search does with a vocabulary smaller than its candidates;
    - `no token left`: the rules forbid all tokens, ours raises, and `transformers` had no token either;
    - `different`: none of these, which is a bug.
    """
    theirs = Theirs(of)
    try:
        mine = ours(of)
    except GenerationError as error:
        no_token = "no token can be chosen" in str(error) and theirs.stuck
        if theirs.result is not None:
            return "no token left" if no_token else f"different: {error}"
    if theirs.result is None:
        return "theirs fails"
    if _same(mine, theirs.result):
        return "equal"
    with stable_ties():
        again = Theirs(of).result
    if again is not None and _same(mine, again):
        return "tie"
    return f"different: ours {mine}, theirs {again}"


def _same(mine: Result, theirs: Result) -> bool:
    """Whether tokens are equal and scores are close for all valid hypotheses of `transformers`."""
    for (tokens, score), (others, other) in zip(mine, theirs, strict=True):
        if other is None or score is None:
            if (tokens, score) != (others, other):
                return False
        elif other > INVALID or score > INVALID:
            if tokens != others or not np.isclose(score, other, rtol=1e-4, atol=1e-5):
                return False
    return True
