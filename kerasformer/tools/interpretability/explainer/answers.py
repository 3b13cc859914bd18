"""Answers of any model in one form: the scores of candidates at some places of a text.

A place is where a model chooses: the next token, a masked token, the class of a text or of a token, the first token of
an answer. Keras models and bundles are asked in the same way, so that their answers can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kerasformer.bundle import ModelInfo
from kerasformer.engines import Forward, Step, log_softmax
from kerasformer.errors import TokenizerError
from kerasformer.generation import ID_SETTINGS, Controls, GenerationConfig, GenerationOutput, decoder_start, generate
from kerasformer.pipelines import Opened
from kerasformer.tools.interpretability.explainer.readings import Reading

NEW_TOKENS = 24
"""Number of tokens that a model writes after each text, and that all panels show."""
COMPARED_TOKENS = 48
"""Number of tokens that it writes in each precision, to find where they part."""
BEAM_STEPS, NUM_BEAMS = 10, 4
"""Size of the picture of a beam search."""

NEXT, MASK, CLASS, TOKEN_CLASS, SPAN, VECTOR = "next", "mask", "class", "token-class", "span", "vector"
"""Kinds of answers."""

_NOT_AN_ANSWER = -1e4
"""Score of tokens at which no answer begins or ends."""
_IDS = tuple(name for name in ID_SETTINGS if name.endswith("_token_id") and name != "forced_eos_token_id")


@dataclass(frozen=True)
class Answers:
    """Scores of candidates at `P` places.

    Attributes:
        kind: One of the kinds above.
        places: Index of the token at each place; names for places that belong to no token.
        scores: Logits `(P, N)` float32; vectors `(P, D)` of the kind `"vector"`.
        labels: Names of the candidates; `None` for the tokens of the vocabulary.
        independent: Whether each candidate has a probability of its own, a sigmoid, instead of a share.
    """

    kind: str
    places: tuple[int | str, ...]
    scores: np.ndarray
    labels: tuple[str, ...] | None = None
    independent: bool = False

    @property
    def log_probabilities(self) -> np.ndarray:
        """Log-probabilities `(P, N)`."""
        scores = self.scores.astype(np.float64)
        return -np.logaddexp(0, -scores) if self.independent else log_softmax(scores)


@dataclass(frozen=True)
class Continued:
    """A text with what a model writes after it.

    Attributes:
        reading: The text.
        start: Token ids `(P,)` that precede what is written: the prompt, or the start token of a decoder.
        written: Token ids `(N,)`, each the most probable one.
    """

    reading: Reading
    start: np.ndarray
    written: np.ndarray

    @property
    def ids(self) -> np.ndarray:
        """Token ids of the decoder, `(P + N,)`."""
        return np.concatenate([self.start, self.written]).astype(np.int32)

    def first(self, count: int) -> Continued:
        """Returns the text with the first tokens that were written."""
        return replace(self, written=self.written[:count])


def config_of(info: ModelInfo, new_tokens: int, num_beams: int = 1) -> GenerationConfig:
    """Returns settings without rules and sampling, with the special tokens of a model."""
    known = GenerationConfig.from_dict({name: info.generation[name] for name in _IDS if name in info.generation})
    if not known.eos_token_id and info.eos_token_id:
        known = known.replace(eos_token_id=info.eos_token_id)
    return known.replace(do_sample=False, max_new_tokens=new_tokens, num_beams=num_beams)


def continued(opened: Opened, reading: Reading, new_tokens: int) -> Continued:
    """Writes the most probable continuation of a text."""
    step = _step(opened)
    output = _generate(opened, reading, new_tokens)
    start = reading.ids
    if step.is_encoder_decoder:
        start = np.array([decoder_start(step, config_of(opened.info, new_tokens))])
    return Continued(reading, start, output.sequences[0])


def beam_search(opened: Opened, reading: Reading) -> GenerationOutput:
    """Continues a text by a recorded beam search."""
    return _generate(opened, reading, BEAM_STEPS, min(NUM_BEAMS, _step(opened).vocab_size // 2))


def _generate(opened: Opened, reading: Reading, new_tokens: int, num_beams: int = 1) -> GenerationOutput:
    step = _step(opened)
    room = step.capacity - (1 if step.is_encoder_decoder else len(reading.ids))
    config = config_of(opened.info, max(1, min(new_tokens, room)), num_beams)
    inputs = reading.inputs["input_ids"], reading.inputs["attention_mask"]
    return generate(step, *inputs, config, Controls(record=True))  # token by token, by functions compiled anyway


def next_answers(opened: Opened, text: Continued) -> Answers:
    """Returns the logits of each token of a continued text, which is read token by token, as in generation."""
    step, ids = _step(opened), text.ids[None]
    if step.is_encoder_decoder:
        state = step.start(text.reading.inputs["input_ids"], text.reading.inputs["attention_mask"])
    else:
        state = step.start(ids[:, :1], np.ones_like(ids[:, :1]))
    rows = []
    for index in range(ids.shape[1] - 1):
        logits, state = step.step(ids[:, index : index + 1], state)
        rows.append(logits[0, -1])
    return Answers(NEXT, tuple(range(1, ids.shape[1])), np.stack(rows))


def masked(opened: Opened, reading: Reading) -> tuple[list[int], dict[str, np.ndarray]]:
    """Masks each token of a text in turn.

    Returns:
        Indices of the `G` tokens that are masked, and int32 arrays `(G, T)`, a text for each.

    Raises:
        TokenizerError: the tokenizer has no mask token.
    """
    mask = opened.tokenizer.mask_token_id
    if mask is None:
        raise TokenizerError(f"{opened.task} needs a tokenizer with a mask token. Received: one without")
    gaps = [index for index, special in enumerate(reading.special) if not special or reading.ids[index] == mask]
    inputs = {name: np.repeat(array, len(gaps), axis=0) for name, array in reading.inputs.items()}
    inputs["input_ids"][np.arange(len(gaps)), gaps] = mask
    return gaps, inputs


def forward_answers(opened: Opened, reading: Reading) -> Answers:
    """Returns the answers of a model that does not generate."""
    forward, info = _forward(opened), opened.info
    if kind_of(opened) != MASK:
        return described(info, forward.run(arrays(info, reading.inputs)), reading)
    gaps, inputs = masked(opened, reading)
    return of_gaps(forward.run(arrays(info, inputs)), gaps)


def of_gaps(outputs: dict[str, np.ndarray], gaps: list[int]) -> Answers:
    """Returns the answers for masked tokens from outputs for the texts of `masked`."""
    scores = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
    return Answers(MASK, tuple(gaps), scores[np.arange(len(gaps)), gaps])


def arrays(info: ModelInfo, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns those arrays that a model reads."""
    return {name: array for name, array in inputs.items() if name in info.input_names}


def described(info: ModelInfo, outputs: dict[str, np.ndarray], reading: Reading) -> Answers:
    """Returns the answers from the outputs of a model for one text, by their names in bundles."""
    places = tuple(index for index, special in enumerate(reading.special) if not special)
    if "start_logits" in outputs:
        # Answers stand in the context; the first token means that there is none, as in pipelines.
        context = ~reading.special if reading.segments is None else (reading.segments == 1) & ~reading.special
        context[0] = True
        scores = np.where(context, np.concatenate([outputs["start_logits"], outputs["end_logits"]]), _NOT_AN_ANSWER)
        return Answers(SPAN, ("first token of the answer", "last token of the answer"), scores, ())
    scores = outputs.get("logits", np.zeros(0))
    if info.task == "token-classification":
        return Answers(TOKEN_CLASS, places, scores[0, list(places)], labels_of(info, scores.shape[-1]))
    if info.task == "replaced-token-detection":
        pairs = np.stack([np.zeros_like(scores[0]), scores[0]], axis=-1)
        return Answers(TOKEN_CLASS, places, pairs[list(places)], ("original", "replaced"))
    if scores.ndim == 2:
        independent = info.problem_type == "multi_label_classification" or scores.shape[-1] == 1
        return Answers(CLASS, ("the whole text",), scores, labels_of(info, scores.shape[-1]), independent)
    vectors = next(iter(outputs.values()))
    mean = vectors.mean(axis=1) if vectors.ndim == 3 else vectors
    return Answers(VECTOR, ("the whole text",), mean, ())


def labels_of(info: ModelInfo, count: int) -> tuple[str, ...]:
    """Returns names of the classes."""
    if info.task == "next-sentence-prediction":
        return "the next sentence", "another sentence"
    return info.labels if len(info.labels) == count else tuple(f"class {index}" for index in range(count))


def kind_of(opened: Opened) -> str:
    """Returns the kind of a model's answers."""
    if isinstance(opened.model, Step):
        return NEXT
    return {
        "fill-mask": MASK,
        "pretraining": MASK,
        "text-classification": CLASS,
        "next-sentence-prediction": CLASS,
        "token-classification": TOKEN_CLASS,
        "replaced-token-detection": TOKEN_CLASS,
        "question-answering": SPAN,
    }.get(opened.info.task, VECTOR)


def answers_of(opened: Opened, text: Continued | Reading) -> Answers:
    """Returns the answers of a model; generative models read the whole of a continued text."""
    return next_answers(opened, text) if isinstance(text, Continued) else forward_answers(opened, text)


def _step(opened: Opened) -> Step:
    assert isinstance(opened.model, Step)  # noqa: S101  # callers look at the kind of the answers first
    return opened.model


def _forward(opened: Opened) -> Forward:
    assert isinstance(opened.model, Forward)  # noqa: S101
    return opened.model
