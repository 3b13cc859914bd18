"""The share of each token in a score: integrated gradients, gradient x input, and occlusion.

Shape letters: `T` tokens, `E` size of a token's vector, `N` steps of the integral.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kerasformer.basics.arguments import check, integer, number, one_of, optional
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import Opened
from kerasformer.tools.interpretability.reading import ReadText, keras_model, opened, read, token_id
from kerasformer.tools.interpretability.scoring import Scorer
from kerasformer.tools.interpretability.targets import Outputs, Target, find_target

if TYPE_CHECKING:
    from kerasformer.tools.interpretability.gradients import ScoreGradient

Method = Literal["integrated_gradients", "gradient_x_input", "occlusion"]

_STEPS = (32, 64, 128, 256, 512)
"""Numbers of steps that are tried in turn until the attributions are complete."""
_TOLERANCE = 0.05
"""Default of the largest relative error."""
ZERO = "zero"
"""Name of the baseline of vectors of zeros."""


@dataclass(frozen=True)
class WordAttribution:
    """Attribution of a word: the sum of those of its tokens.

    Attributes:
        text: The word.
        attribution: Its share in the score.
        sequence: 0 for a word of the text, 1 for one of the second text.
        start: First character in its text.
        end: Character after the last one.
    """

    text: str
    attribution: float
    sequence: int
    start: int
    end: int


@dataclass(frozen=True)
class Attribution:
    """Share of each token in a score.

    Attributes:
        method: The method.
        target: What is explained: class, answer or token.
        position: Position of the token whose class or filling is explained; `None` for other targets.
        read: The text and its tokens.
        attributions: Share of each token, `(T,)` float32: positive for tokens that raise the score.
        score: The score, a logit or the logarithm of a probability; for an answer the sum of the logits of its first
            and last token.
        baseline: Token that took the place of the text's tokens in the text that it is compared with, or `"zero"`.
        baseline_score: Score of that text; `None` for gradient x input.
        n_steps: Number of steps of the integral; 0 for other methods.
        convergence_delta: Sum of the attributions minus the difference of both scores, which is 0 for an exact
            integral; `None` for other methods.
        relative_error: `|convergence_delta|` in relation to the difference of both scores, or to a tenth of the sum of
            absolute attributions if that is more; `None` for other methods.
    """

    method: str
    target: str
    position: int | None
    read: ReadText
    attributions: np.ndarray
    score: float
    baseline: str
    baseline_score: float | None = None
    n_steps: int = 0
    convergence_delta: float | None = None
    relative_error: float | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens in readable form."""
        return self.read.tokens

    def words(self) -> list[WordAttribution]:
        """Returns the attributions of words, as the tokenizer separates them, without special tokens."""
        groups: dict[tuple[int, int], list[int]] = {}
        pairs = zip(self.read.sequence_ids.tolist(), self.read.word_ids.tolist(), strict=True)
        for position, (sequence, word) in enumerate(pairs):
            if sequence >= 0:
                groups.setdefault((sequence, word), []).append(position)
        return [self._word(sequence, positions) for (sequence, _), positions in groups.items()]

    def _word(self, sequence: int, positions: list[int]) -> WordAttribution:
        text = (self.read.pair or "") if sequence else self.read.text
        start, end = int(self.read.offsets[positions, 0].min()), int(self.read.offsets[positions, 1].max())
        start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokens include the space before them
        return WordAttribution(text[start:end], float(self.attributions[positions].sum()), sequence, start, end)

    def top(self, count: int = 5) -> list[WordAttribution]:
        """Returns the words with the highest attributions, the highest first."""
        check("count", count, integer(1))
        return sorted(self.words(), key=lambda word: -word.attribution)[:count]

    @property
    def title(self) -> str:
        """One line that tells what is explained."""
        place = f" of {self.read.source_of(self.position).strip()!r}" if self.position is not None else ""
        return f"Score of {self.target}{place}: {self.score:.3f}"

    def picture(self, path: str | Path, dark: bool = False) -> None:
        """Draws the text with the colours of its attributions.

        Args:
            path: Output file, ending in `.png` or `.svg`.
            dark: Use colours for dark pages.

        Raises:
            InputError: `path` has another suffix, its folder does not exist, or the text is too long for a picture.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.tools.viz import draw_attribution

        draw_attribution(self.pieces(), path, self.title, dark)

    def html(self) -> str:
        """Returns the text with the colours of its attributions as a piece of HTML without scripts.

        Characters of the text that have a meaning in HTML are escaped.
        """
        from kerasformer.tools.viz import attribution_html

        return attribution_html(self.pieces(), self.title)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return self.html()

    def pieces(self) -> list[tuple[str, float | None]]:
        """Returns the texts in pieces with their attributions; `None` for characters without token."""
        pieces: list[tuple[str, float | None]] = []
        for sequence, text in enumerate(filter(None, (self.read.text, self.read.pair))):
            pieces += [("\n", None)] if sequence else []
            end = 0
            for position in np.flatnonzero(self.read.sequence_ids == sequence).tolist():
                start, stop = (max(int(place), end) for place in self.read.offsets[position])
                pieces += [(text[end:start], None)] if start > end else []
                pieces.append((text[start:stop], float(self.attributions[position])))
                end = max(stop, end)
            pieces += [(text[end:], None)] if text[end:] else []
        return pieces


def attribute(
    source: Any,
    text: str,
    pair: str | None = None,
    *,
    target: object = None,
    at: str | int | None = None,
    method: Method = "integrated_gradients",
    baseline: str | int | None = None,
    n_steps: int | None = None,
    tolerance: float | None = _TOLERANCE,
    internal_batch_size: int | None = None,
) -> Attribution:
    """Computes the share of each token in the score of a class, an entity, an answer or the next token.

        kf.attribute("sentiment-bert", "A film to see twice.").top()
        kf.attribute(ner, "Maria lives in Berlin", at="Berlin", target="B-LOC")
        kf.attribute(qa, "Who wrote it?", "It was written by Ada.", target="Ada")

    A score is a logit; of a bundle that returns probabilities, as MediaPipe's classifiers do, it is their logarithm
    `log p`, or `log(p / (1 - p))` where classes do not exclude each other. An encoder-decoder reads the prefix of the
    source's task before the text, as in a pipeline, and the score is that of the first token that its settings do not
    force.

    `"integrated_gradients"` adds up the gradients on the straight path from the vectors of the baseline to those of the
    text, so that the attributions add up to the difference of both scores. `"gradient_x_input"` is the gradient times
    the vectors of the text. `"occlusion"` is how much the score falls if the baseline takes the place of one token; it
    needs no gradients, and works for bundles, too. Special tokens that the tokenizer adds are part of the baseline and
    have no share, except with gradient x input.

    Args:
        source: Keras model, pipeline, or what `kerasformer.pipeline` opens. Gradients need a Keras model, with
            TensorFlow or JAX as the backend.
        text: The text; for question answering, the question.
        pair: The second text of a classifier of pairs; for question answering, the context.
        target: Class or its index, part of the context as the answer, or token or its id; by default the one with the
            highest score.
        at: Part of the text, or position, of the token whose class is explained, for token-classification and
            fill-mask; by default the token that is most clearly an entity, or the first mask token.
        method: `"integrated_gradients"`, `"gradient_x_input"` or `"occlusion"`.
        baseline: Token that takes the place of the text's tokens, or its id; `"zero"` for vectors of zeros. By default
            the first of mask, unknown, padding and end token that the tokenizer has.
        n_steps: Number of steps of the integral, by the quadrature of Gauss and Legendre. By default 32, twice as many
            while the error is above the tolerance, and at most 512.
        tolerance: Largest relative error of the sum of integrated gradients; `None` for any.
        internal_batch_size: Number of texts in one call of the model; by default about 1024 tokens.

    Returns:
        The attributions, of which `picture`, `html`, `words` and `top` make something to read.

    Raises:
        CapacityError: the text is longer than the model.
        InputError: there is no such target, the source has no gradients, an argument has no effect with the method, or
            integrated gradients miss the tolerance.
        TokenizerError: the source has no tokenizer.

    Reference: Sundararajan, Taly, Yan 2017, arXiv:1703.01365, with completeness in section 3; gradient x input:
        Shrikumar et al. 2016, arXiv:1605.01713; occlusion: Zeiler and Fergus 2014, arXiv:1311.2901, section 4. Names
        of arguments are those of Captum where it has them.
    """
    method = check("method", method, one_of("integrated_gradients", "gradient_x_input", "occlusion"))
    steps = check("n_steps", n_steps, optional(integer(1, 10_000)))
    limit = check("tolerance", tolerance, optional(number(above=0)))
    size = check("internal_batch_size", internal_batch_size, optional(integer(1)))
    _refuse_ignored(method, baseline is not None, steps is not None or limit != _TOLERANCE)
    model = opened(source)
    if method != "occlusion":
        keras_model(model, f"method={method!r}")
    tokens = read(model, text, pair)
    scorer = Scorer(model, size)
    outputs = scorer(tokens.inputs)
    chosen = find_target(model.info, model.tokenizer.writer, tokens, outputs, target, at, scorer.generates)
    name, token = (ZERO, None) if method == "gradient_x_input" else _baseline(model, baseline, method)
    plain = Attribution(
        method, chosen.name, chosen.position, tokens, np.zeros(len(tokens.tokens), np.float32),
        float(chosen.score(outputs)[0]), name,
    )  # fmt: skip
    if method == "occlusion":
        return _occluded(plain, scorer, chosen, token)
    return _with_gradients(plain, model, scorer, chosen, token, steps, limit)


def _refuse_ignored(method: str, baseline: bool, integral: bool) -> None:
    """Refuses arguments of another method than the one that is used."""
    ignored = [
        *(["baseline"] if baseline and method == "gradient_x_input" else []),
        *(["n_steps or tolerance"] if integral and method != "integrated_gradients" else []),
    ]
    if ignored:
        raise InputError(f"{' and '.join(ignored)} would have no effect with this method. Received: method={method!r}")


def _baseline(source: Opened, baseline: object, method: str) -> tuple[str, int | None]:
    """Returns the readable baseline and its token id, `None` for vectors of zeros."""
    tokenizer = source.tokenizer
    if baseline == ZERO and method != "occlusion":
        return ZERO, None
    if baseline is not None:
        token = token_id(tokenizer, baseline, "baseline")
        return str(tokenizer.id_to_token(token)), token
    for kind in ("mask", "unk", "pad", "eos"):
        token = getattr(tokenizer, f"{kind}_token_id")
        if token is not None and token < source.info.vocab_size:
            return str(tokenizer.id_to_token(token)), int(token)
    raise InputError(
        "The tokenizer has neither mask, unknown, padding nor end token, one of which would take the place of the "
        "text's tokens. Expected: baseline=, a token or its id. Received: none"
    )


def _occluded(plain: Attribution, scorer: Scorer, target: Target, token: int | None) -> Attribution:
    """Computes how much the score falls without each token."""
    places = np.flatnonzero(plain.read.sequence_ids >= 0)
    ids = np.repeat(plain.read.inputs["input_ids"], len(places) + 1, axis=0)
    ids[np.arange(len(places)), places] = token
    ids[-1, places] = token
    inputs = {name: np.repeat(array, len(ids), axis=0) for name, array in plain.read.inputs.items()}
    batches = scorer.batches({**inputs, "input_ids": ids})  # of which only the scores are kept
    scores = np.concatenate([np.array(target.score(outputs), np.float32) for outputs in batches])
    attributions = plain.attributions.copy()
    attributions[places] = np.float32(plain.score) - scores[:-1]
    return replace(plain, attributions=attributions, baseline_score=float(scores[-1]))


def _with_gradients(
    plain: Attribution,
    source: Opened,
    scorer: Scorer,
    target: Target,
    token: int | None,
    n_steps: int | None,
    tolerance: float | None,
) -> Attribution:
    require("keras", "tensorflow")
    from kerasformer.layers import merged_lora
    from kerasformer.tools.interpretability.gradients import ScoreGradient

    def score(outputs: Outputs) -> Any:
        return target.score(scorer.next_token(outputs["logits"]) if scorer.generates else outputs)

    model = keras_model(source, "A gradient")
    with merged_lora(model):
        gradient = ScoreGradient(model, scorer.with_start(plain.read.inputs), score)
        vectors = gradient.vectors(plain.read.ids)
        if plain.method == "gradient_x_input":
            return replace(plain, attributions=(gradient(vectors[None])[1][0] * vectors).sum(axis=1))
        changed = np.where(plain.read.sequence_ids >= 0, plain.read.ids if token is None else token, plain.read.ids)
        start = gradient.vectors(changed)
        if token is None:
            start[plain.read.sequence_ids >= 0] = 0
        baseline_score = float(gradient(start[None])[0][0])
        integral = partial(_integral, gradient, start, vectors, scorer.batch_size(len(vectors)))
        for steps in _STEPS if n_steps is None else (n_steps,):
            attributions = integral(steps)
            result = _with_error(replace(plain, attributions=attributions, n_steps=steps), baseline_score)
            if tolerance is None or (result.relative_error or 0) <= tolerance:
                return result
    raise InputError(
        f"The attributions do not add up to the difference of the scores. Expected: a relative error of at most "
        f"{tolerance:g}. Received: {result.relative_error:.3g} with {result.n_steps} steps. Pass a larger n_steps, "
        "another baseline, method='occlusion', or tolerance=None to accept any error"
    )


def _with_error(result: Attribution, baseline_score: float) -> Attribution:
    difference, total = result.score - baseline_score, float(result.attributions.sum(dtype=np.float64))
    scale = max(abs(difference), float(np.abs(result.attributions).sum()) / 10)
    delta = total - difference
    return replace(
        result,
        baseline_score=baseline_score,
        convergence_delta=delta,
        relative_error=abs(delta) / scale if scale else 0.0,
    )


def _integral(gradient: ScoreGradient, start: np.ndarray, end: np.ndarray, batch_size: int, n_steps: int) -> np.ndarray:
    """Returns the integrated gradients of each token `(T,)`, on the path from `start` to `end` `(T, E)`."""
    places, weights = np.polynomial.legendre.leggauss(n_steps)
    places, weights = ((places + 1) / 2).astype(np.float32), (weights / 2).astype(np.float32)
    total = np.zeros_like(end)
    for first in range(0, n_steps, batch_size):
        part = slice(first, first + batch_size)
        path = start + places[part, None, None] * (end - start)
        total += np.einsum("n,nte->te", weights[part], gradient(path)[1])
    shares: np.ndarray = (total * (end - start)).sum(axis=1)
    return shares
