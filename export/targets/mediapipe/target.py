"""MediaPipe's Text Classifier and Text Embedder, on Android, iOS, web and in Python.

They take a text, and one TFLite file with the tokenizer inside. What they ask for and no other runtime of TFLite does:
one signature of one length, three inputs whatever the model takes, probabilities and not logits, one vector of a text
and not one of each token. The file still is what LiteRT runs, and `kf.pipeline` opens the bundle.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import PROBABILITIES, Manifest
from kerasformer.errors import ExportError, argument
from kerasformer.export.formats.tflite.metadata import WORDPIECE, Tensor, attach, input_order, metadata
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.outputs import with_mean, with_probabilities, with_segments
from kerasformer.export.options import ExportJob
from kerasformer.export.quantization.auto import NAME as AUTO
from kerasformer.export.targets.base import Target
from kerasformer.export.targets.mediapipe.card import section
from kerasformer.export.targets.mediapipe.tokenizer_conversion import NO_LINE, check, vocabulary

_TASKS = {"text-classification": "TextClassifier", "feature-extraction": "TextEmbedder"}
_INPUTS = {
    "input_ids": Tensor("ids", "Ids of the tokens of a text."),
    "attention_mask": Tensor("mask", "1 for tokens, 0 for padding."),
    "token_type_ids": Tensor("segment_ids", "0 for the first text, 1 for a second one."),
}
_LABELS = "labels.txt"


class MediapipeTokenizerWarning(UserWarning):
    """Some texts become other tokens in MediaPipe than in the model's own tokenizer."""


class Mediapipe(Target):
    """Classifiers of texts, and encoders for vectors of texts, with the tokenizer of BERT or ALBERT."""

    name = "mediapipe"
    summary = "MediaPipe Text Classifier and Text Embedder: Android, iOS, web, Python"
    needs = {"format": "tflite"}
    tokenizes = True
    lengths = (128,)

    def check(self, job: ExportJob, quantize: str) -> None:
        """Refuses other tasks and tokenizers, several lengths, and answers that are no probabilities.

        Raises:
            ExportError: with the reason.
        """
        info = job.info
        if quantize == AUTO or job.in_graph:
            received = "quantize='auto'" if quantize == AUTO else "tokenizer='in-graph'"
            raise ExportError(
                "MediaPipe's file has answers and a tokenizer of its own, which the search for a recipe and a "
                f"tokenizer in the graph do not know. Received: {received}. Name a recipe, and leave the tokenizer out"
            )
        if info.task not in _TASKS:
            raise ExportError(
                "MediaPipe's text tasks are text-classification and feature-extraction (one vector of a text). "
                f"Received: {info.task}. Export with {argument('format', 'tflite')} and no target"
            )
        if len(job.lengths) != 1 or job.lengths[0] < 2:
            raise ExportError(
                "MediaPipe runs one length of at least 2 tokens: longer texts are cut, shorter ones cost as much. "
                f"Received: {argument('lengths', list(job.lengths))}. Choose one, such as lengths=[128]"
            )
        if info.problem_type == "regression":
            raise ExportError(
                "MediaPipe's classifier gives scores of classes. Received: a model that gives a number "
                f"(problem_type='regression'). Export with {argument('format', 'tflite')} and no target"
            )
        if unfit := [label for label in info.labels if not label.strip() or {*label} & {*NO_LINE}]:
            raise ExportError(
                "MediaPipe reads the names of classes from a file with a line each. Received: "
                f"{unfit}. Give them names (id2label)"
            )
        if check(job.model.tokenizer) == WORDPIECE:
            warnings.warn(
                "MediaPipe lowercases A to Z and no other letter, keeps accents, and splits at no space but "
                "ASCII's: words that differ in these are other tokens there, mostly [UNK]. Give it plain(text), a few "
                "lines that are on the model card, in Kotlin, Swift, JavaScript and Python",
                MediapipeTokenizerWarning,
                stacklevel=2,
            )

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Three inputs, and an answer that needs no more work."""
        if job.info.task == "feature-extraction":
            return [with_segments(with_mean(each)) for each in functions]
        several = job.info.problem_type == "multi_label_classification" or len(job.info.labels) == 1
        return [with_segments(with_probabilities(each, several)) for each in functions]

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Puts metadata, vocabulary and labels into the model file."""
        (signature,) = manifest.signatures.values()
        path, tokens = folder / signature.file, vocabulary(job.model.tokenizer)
        files = {tokens.file: tokens.content}
        output = Tensor("embedding", "Mean of the vectors of a text's tokens.")
        if PROBABILITIES in signature.outputs:
            output = Tensor("probability", "Probability of each class.", _LABELS)
            files[_LABELS] = "".join(f"{label}\n" for label in manifest.info.labels).encode()
        inputs = [_INPUTS[name] for name in input_order(path)]
        description = f"{manifest.info.name}, recipe {manifest.recipe.get('name')}"
        attach(path, metadata(_TASKS[manifest.info.task], description, inputs, output, tokens), files)
        return (path,)

    def card(self, manifest: Manifest, folder: Path) -> str:
        """Code for all platforms, and which texts are read otherwise."""
        return section(manifest, folder)
