"""Random models, prompts and arguments, each compared token by token with `transformers.generate`.

`python -m tests.decoding.grid [--cases N] [--first N]` prints a table of what was found. Prompts run here in one ragged
batch, there each alone, so a case also shows that batches change nothing.

Where tokens differ only because several continuations are equally good, a case counts as a tie. `torch.topk` leaves
open which of equals it takes, and two correct log-softmaxes differ in the last bit. So a tie is not guessed from
scores: `transformers` runs again with a `topk` that takes the first of equals, as ours does, and with our log-softmax,
and must then give exactly our tokens.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from kerasformer.decoding import GenerationConfig, GenerationOutput, generate
from kerasformer.decoding.distribution import log_softmax
from kerasformer.errors import GenerationError
from tests.decoding.engines import Recomputing
from tests.decoding.models import PAD, gpt2, t5, torch

logging.getLogger("transformers").setLevel(logging.ERROR)

Settings = dict[str, Any]

UNREAL = -1e5
"""Scores below it are those of hypotheses that `transformers` invents when it finds fewer than it has beams."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        model: Kind, vocabulary, seed, and what logits are rounded to (0: not).
        prompts: Token ids of each.
        settings: Of both libraries, under the names that they share.
        methods: The names in `METHODS` that they came from.
    """

    number: int
    model: tuple[str, int, int, float]
    prompts: tuple[tuple[int, ...], ...]
    settings: Settings
    methods: tuple[str, ...]

    def __str__(self) -> str:
        """The report's line."""
        return f"{self.number}: {self.model} {self.prompts} {self.settings}"


class Draw:
    """What the arguments of a case are drawn with.

    Args:
        random: The source.
        vocab_size: Of its model.
        alike: Whether prompts are equally long, and lengths that count them mean the same in a batch as alone.
    """

    def __init__(self, random: np.random.Generator, vocab_size: int, alike: bool) -> None:
        self.random, self.vocab_size, self.alike = random, vocab_size, alike

    def one(self, *values: Any) -> Any:
        """One of them."""
        return values[self.random.integers(len(values))]

    def tokens(self, most: int) -> list[int]:
        """Some tokens, each once."""
        count = self.random.integers(1, max(2, min(most, self.vocab_size)))
        return self.random.choice(self.vocab_size, count, replace=False).tolist()

    def sequence(self, most: int) -> list[int]:
        """Some tokens in a row."""
        return self.random.integers(0, self.vocab_size, self.random.integers(1, most + 1)).tolist()


def _beams(draw: Draw) -> Settings:
    beams = draw.one(2, 3, 4, 5)
    return {
        "num_beams": beams,
        "length_penalty": draw.one(1.0, 1.0, 0.0, 2.0, -1.0, 0.6),
        "early_stopping": draw.one(False, True, "never"),
        "num_return_sequences": draw.one(1, 2, beams),
    }


# Each method of the tests: what it draws. A new setting is a line here.
METHODS: dict[str, Callable[[Draw], Settings]] = {
    "greedy": lambda draw: {},
    "allowed after a prefix": lambda draw: {"prefix_allowed_tokens_fn": _allowed(draw)},
    "prompt's words": lambda draw: {"encoder_repetition_penalty": draw.one(0.5, 1.3, 5.0)},
    "growing end": lambda draw: {
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
    "forced begin": lambda draw: {"forced_bos_token_id": draw.tokens(2)[0]} if draw.alike else {},
    "forced end": lambda draw: {"forced_eos_token_id": draw.tokens(3)},
    "min_new_tokens": lambda draw: {"min_new_tokens": draw.one(1, 2)},
    "min_length": lambda draw: {"min_length": draw.one(2, 4)} if draw.alike else {},
    "max_length": lambda draw: {"max_length": draw.one(13, 16), "max_new_tokens": None} if draw.alike else {},
}


def _allowed(draw: Draw) -> Callable[[int, Any], list[int]]:
    """A function of the last token alone: their tokens are a tensor and ours an array."""
    after = [sorted(draw.tokens(draw.vocab_size)) for _ in range(draw.vocab_size)]
    return lambda prompt, tokens: after[int(tokens[-1])]


def _distinct(draw: Draw) -> list[list[int]]:
    return [list(s) for s in {tuple(draw.sequence(2)) for _ in range(draw.one(1, 5, 40))}]


def case(number: int) -> Case:
    """The case of that number; sixteen in a row hold each method."""
    random = np.random.default_rng(number)
    kind, alike = str(random.choice(["gpt2", "t5"])), bool(random.integers(2))
    vocab_size = int(random.choice([1, 2, 3, 5, 17, 61, 61, 61, 130]))
    draw = Draw(random, vocab_size, alike or kind == "t5")
    names = list(METHODS)
    methods = {names[number % len(names)], *random.choice(names, draw.one(0, 1, 2, 4), replace=False).tolist()}
    if random.integers(2):
        methods.add("beams")  # where most can go wrong
    settings: Settings = {"max_new_tokens": draw.one(1, 2, 5, 9)}
    for name in sorted(methods, key=names.index):
        settings |= METHODS[name](draw)
    if settings["max_new_tokens"] is not None:  # less than the least is refused there
        settings["max_new_tokens"] = max(settings["max_new_tokens"], settings.get("min_new_tokens", 0))
    lengths = random.integers(1, 13, draw.one(1, 2, 3))
    texts = [_text(random, vocab_size, int(lengths[0] if alike else length)) for length in lengths]
    return Case(number, (kind, vocab_size, draw.one(0, 1), draw.one(0.0, 0.5)), tuple(texts), settings, tuple(methods))


def _text(random: np.random.Generator, vocab_size: int, length: int) -> tuple[int, ...]:
    """Random tokens, of which half repeat themselves."""
    tokens = random.integers(0, vocab_size, length)
    if random.integers(2):
        tokens = np.resize(tokens[: random.integers(1, 4)], length)
    return tuple(tokens.tolist())


@functools.cache
def engine(model: tuple[str, int, int, float]) -> Recomputing:
    """The model of a case."""
    kind, *rest = model
    return {"gpt2": gpt2, "t5": t5}[kind](*rest)


Found = list[tuple[list[int], float | None]]
"""Sequences and their scores."""


def ours(of: Case) -> Found:
    """What a case gives here."""
    width = max(map(len, of.prompts))
    ids = np.array([[*prompt, *[PAD] * (width - len(prompt))] for prompt in of.prompts])
    mask = np.array([[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in of.prompts])
    config = GenerationConfig(pad_token_id=PAD, decoder_start_token_id=PAD, **of.settings)
    output: GenerationOutput = generate(engine(of.model), ids, mask, config)
    scores = [None] * len(output.sequences) if output.sequence_scores is None else output.sequence_scores.tolist()
    return list(zip([sequence.tolist() for sequence in output.sequences], scores, strict=True))


class Theirs:
    """What a case gives in `transformers`, each prompt alone.

    Attributes:
        found: Sequences and scores of all prompts; `None` if it refuses.
        stuck: Whether it went on with a forbidden token where none was left, or found no real hypothesis.
    """

    def __init__(self, of: Case) -> None:
        self.found: Found | None = []
        self.stuck = False
        for prompt in of.prompts:
            try:
                self.found += self._of(of, prompt)
            except (RuntimeError, IndexError, ValueError):
                self.found = None
                return

    def _of(self, of: Case, prompt: tuple[int, ...]) -> Found:
        made = engine(of.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs are about lengths
            result = made.model.generate(  # type: ignore[attr-defined]
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), pad_token_id=PAD,
                return_dict_in_generate=True, output_scores=True, **of.settings,
            )  # fmt: skip
        tokens = result.sequences[:, 1 if made.is_encoder_decoder else len(prompt) :].tolist()
        if "sequences_scores" not in result:
            self.stuck |= any(not bool((scores > -torch.inf).any()) for scores in result.scores)
            return [(row, None) for row in tokens]
        self.stuck |= not bool((result.sequences_scores > UNREAL).any())
        lengths = (result.beam_indices >= 0).sum(dim=1).tolist()
        scores = result.sequences_scores.tolist()
        return [(row[:size], score) for row, size, score in zip(tokens, lengths, scores, strict=True)]


@contextlib.contextmanager
def first_of_equals() -> Iterator[None]:
    """`transformers` with our log-softmax, and a `topk` that takes the first of equals."""

    def topk(values: Any, k: int) -> tuple[Any, Any]:
        if k > values.shape[-1]:
            raise RuntimeError("selected index k out of range")
        ordered, places = values.sort(dim=-1, descending=True, stable=True)
        return ordered[..., :k], places[..., :k]

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


WORDS = ("equal", "tie", "theirs fails", "no token left")
"""What may come out of a comparison."""


def compare(of: Case) -> str:
    """A word for what came out.

    - `equal`: the same tokens;
    - `tie`: the same once ties are broken alike;
    - `theirs fails`: as beam search there does with a vocabulary smaller than its candidates;
    - `no token left`: the rules forbid every token: ours refuses, and theirs had none either;
    - `different`: none of these, which is a bug.
    """
    theirs = Theirs(of)
    try:
        mine = ours(of)
    except GenerationError as error:
        refused = "no token can be chosen" in str(error) and theirs.stuck
        if theirs.found is not None:
            return "no token left" if refused else f"different: {error}"
    if theirs.found is None:
        return "theirs fails"
    if _same(mine, theirs.found):
        return "equal"
    with first_of_equals():
        again = Theirs(of).found
    if again is not None and _same(mine, again):
        return "tie"
    return f"different: ours {mine}, theirs {again}"


def _same(mine: Found, theirs: Found) -> bool:
    """Whether tokens are equal, and scores nearly, wherever theirs are those of real hypotheses."""
    for (tokens, score), (others, other) in zip(mine, theirs, strict=True):
        if other is None or score is None:
            if (tokens, score) != (others, other):
                return False
        elif other > UNREAL or score > UNREAL:
            if tokens != others or not np.isclose(score, other, rtol=1e-4, atol=1e-5):
                return False
    return True


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for each in map(case, range(given.first, given.first + given.cases)):
        verdict = compare(each)
        if verdict.startswith("different"):
            print(each, verdict, sep="\n    ", flush=True)
        for method in ("all", *each.methods):
            table[method][verdict.split(":")[0]] += 1
    words = (*WORDS, "different")
    print("|".join(["", f" {'method':24}", *(f" {word} " for word in words), ""]))
    for method in ("all", *METHODS):
        print("|".join(["", f" {method:24}", *(f" {table[method][word]:{len(word)}} " for word in words), ""]))


if __name__ == "__main__":
    main()
