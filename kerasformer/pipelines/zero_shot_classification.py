"""Zero-shot classification: classes that are named in the call, with a model for natural language inference."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, sequence
from kerasformer.basics.tasks import entailment_class
from kerasformer.errors import InputError
from kerasformer.pipelines.answers import Ranking
from kerasformer.pipelines.base import LengthOptions, Pipeline, sigmoid, softmax
from kerasformer.pipelines.chunks import COMBINE, Combine, combined
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text
from kerasformer.pipelines.opening import Opened


class ZeroShotClassificationPipeline(Pipeline):
    """Classifies texts by the probability that a text entails a sentence about each class.

    Raises:
        InputError: the model has no class whose name starts with "entail".

    Reference: Yin et al. 2019, arXiv:1909.00161.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        entailment = entailment_class(self.info.labels)
        if entailment is None:
            raise InputError(
                "zero-shot-classification needs a model for natural language inference, with a class whose name starts "
                f"with 'entail' and at least one other. Received: the classes {', '.join(self.info.labels) or 'none'}. "
                "If a class has another name, load the model with labels= and the names in order"
            )
        self._entailment = entailment

    def __call__(
        self,
        inputs: object,
        candidate_labels: str | Sequence[str],
        *,
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
        batch_size: int = 8,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        combine: Combine = "mean",
        progress: bool = False,
    ) -> Any:
        """Classifies texts.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            candidate_labels: Names of the classes, as a list or separated by commas.
            hypothesis_template: Sentence about a class, with `{}` for its name.
            multi_label: Whether several classes can apply to a text: the score of each is then its probability of
                entailment against contradiction. Otherwise the scores of all classes add up to 1.
            batch_size: Number of texts that are read at once, and of pairs of a text, or a chunk of one, and a class in
                one call of the model.
            truncation: Whether to truncate a text that, with a sentence about a class, exceeds the model's maximum
                length, with a warning. Otherwise it is split into chunks, each of which is read with that sentence.
            chunk_length: Length of a chunk in tokens, including the sentence about a class and special tokens; the
                model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk's part of the text by default.
            combine: Logit of a class for a text of several chunks, from which scores are computed as for one: `"mean"`
                of its logits for the chunks, weighted by their numbers of text tokens, or `"max"`, the highest of them.
                With `multi_label`, a logit is the difference of those of entailment and contradiction.
            progress: Whether to show a progress bar on standard error.

        Returns:
            For a text, `{"sequence", "labels", "scores"}` with the most probable class first; for a list of texts, a
            list; for another iterable, an iterator.

        Raises:
            CapacityError: the sentence about a class leaves no space for a text.
            InputError: no classes, or a template without `{}`.
        """
        labels = _labels(candidate_labels)
        template = check("hypothesis_template", hypothesis_template, STRING)
        independent = check("multi_label", multi_label, BOOLEAN) or len(labels) == 1
        hypotheses = _hypotheses(template, labels)
        checked = read_inputs(inputs, read_text)
        options = LengthOptions(truncation, chunk_length, stride)
        check("combine", combine, COMBINE)

        def answer(part: Sequence[str]) -> list[Ranking]:
            texts = [text for text in part for _ in labels]
            encoded = self._encode(texts, options, hypotheses * len(part))
            evidence = self._evidence(self._run(encoded, batch_size, by_length=True)["logits"], independent)
            logits = np.stack(combined(evidence, encoded, combine)).reshape(len(part), len(labels))
            scores = sigmoid(logits) if independent else softmax(logits)
            return [_ranked(text, labels, row) for text, row in zip(part, scores, strict=True)]

        return map_inputs(checked, answer, batch_size=batch_size, progress=progress, label=self.task)

    def _evidence(self, logits: np.ndarray, independent: bool) -> np.ndarray:
        """Returns the logit of entailment `(B,)`, relative to that of contradiction if classes are independent."""
        entailment: np.ndarray = logits[:, self._entailment]
        # Contradiction is the first class or, if that is entailment, the last one, as in transformers.
        return entailment - logits[:, -1 if self._entailment == 0 else 0] if independent else entailment


def _ranked(text: str, labels: Sequence[str], scores: np.ndarray) -> Ranking:
    order = scores.argsort()[::-1]
    return {"sequence": text, "labels": [labels[i] for i in order], "scores": scores[order].tolist()}


def _labels(value: object) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    labels = tuple(name for name in check("candidate_labels", names, sequence(STRING)) if name)
    if not labels:
        raise InputError(f"At least one class was expected. Received: candidate_labels={value!r}")
    return labels


def _hypotheses(template: str, labels: Sequence[str]) -> list[str]:
    """Returns a sentence about each class.

    Raises:
        InputError: the template has no place for a class, or another one.
    """
    try:
        fields = [field for _, *field in Formatter().parse(template) if field[0] is not None]
    except ValueError:  # a single brace
        fields = []
    # The name alone: requests of a server set the template, and a width such as in {:>999999999} would fill the memory.
    if fields != [["", "", None]] and (not fields or any(field != ["0", "", None] for field in fields)):
        raise InputError(
            "hypothesis_template must contain {}, which is replaced by the name of a class. "
            f"Received: hypothesis_template={template!r}"
        )
    return [template.format(label) for label in labels]
