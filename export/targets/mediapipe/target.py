"""Target MediaPipe: its Text Classifier and Text Embedder on Android, iOS and the web, and in Python.

They take texts and a single TFLite file that contains the tokenizer. Unlike other TFLite runtimes they require one
signature with one length, three inputs whatever the model takes, probabilities instead of logits, and one embedding of
a text instead of one for each token. LiteRT also runs the file, and `kf.pipeline` opens the bundle.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import PROBABILITIES, Kind, Manifest
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.metadata import WORDPIECE, Tensor, attach, input_order, metadata
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.outputs import with_mean, with_probabilities, with_segments
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import TOKENIZED, Target
from kerasformer.export.targets.mediapipe.card import section
from kerasformer.export.targets.mediapipe.tokenizer_conversion import LINE_ENDS, check, vocabulary

_TASKS = {
    "text-classification": "TextClassifier",
    "feature-extraction": "TextEmbedder",
    "sentence-similarity": "TextEmbedder",
}
_INPUTS = {
    Kind.IDS: Tensor("ids", "Token ids of a text."),
    Kind.MASK: Tensor("mask", "1 for tokens, 0 for padding."),
    Kind.SEGMENTS: Tensor("segment_ids", "0 for the first text, 1 for a second one."),
}
_LABELS = "labels.txt"


class MediapipeTokenizerWarning(UserWarning):
    """MediaPipe tokenizes some texts differently from the model's own tokenizer."""


class Mediapipe(Target):
    """MediaPipe tasks, for text classifiers and text encoders with the tokenizer of BERT, MPNet or ALBERT."""

    name = "mediapipe"
    summary = "MediaPipe Text Classifier and Text Embedder: Android, iOS, web, Python"
    format = "tflite"
    inputs = TOKENIZED
    reads_tokenizer = True
    tokenizes = True
    app_files = ()
    lengths = (128,)

    def check(self, job: ExportJob) -> None:
        """Refuses other tasks and tokenizers, several lengths, and regression.

        Raises:
            ExportError: MediaPipe does not support the model or an option; the message has the reason.
        """
        info = job.info
        if job.in_graph:
            raise ExportError(
                "A file for MediaPipe has its own tokenizer, so that none in the graph is supported. "
                "Received: tokenizer='in-graph'. Remove it"
            )
        if info.task not in _TASKS:
            raise ExportError(
                "MediaPipe supports only text-classification, sentence-similarity and feature-extraction (the mean). "
                f"Received: {info.task}. Export with format='tflite' and without a target"
            )
        if len(job.lengths) != 1 or job.lengths[0] < 2:
            raise ExportError(
                "MediaPipe needs a single length of at least 2 tokens, to which it pads or truncates all texts. "
                f"Received: lengths={list(job.lengths)!r}. Choose one, such as lengths=[128]"
            )
        if info.problem_type == "regression":
            raise ExportError(
                "MediaPipe's classifier returns scores of classes. Received: a regression model "
                "(problem_type='regression'). Export with format='tflite' and without a target"
            )
        if invalid := [label for label in info.labels if not label.strip() or {*label} & {*LINE_ENDS}]:
            raise ExportError(
                "MediaPipe reads the names of classes from a file with one name per line. Received: names that are "
                f"blank or contain line ends: {invalid}. Set other names (id2label)"
            )
        if check(job.model.tokenizer) == WORDPIECE:
            warnings.warn(
                "MediaPipe lowercases only A to Z, keeps accents, and splits only at ASCII spaces. Words with other "
                "characters become different tokens, usually [UNK]. Pass plain(text) to it, a short function on the "
                "model card, in Kotlin, Swift, JavaScript and Python",
                MediapipeTokenizerWarning,
                stacklevel=2,
            )

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Adds the inputs and the postprocessing that MediaPipe expects."""
        if job.info.task == "feature-extraction":
            return [with_segments(with_mean(function)) for function in functions]
        if job.info.task == "sentence-similarity":
            return [with_segments(function) for function in functions]
        multi_label = job.info.problem_type == "multi_label_classification" or len(job.info.labels) == 1
        return [with_segments(with_probabilities(function, multi_label)) for function in functions]

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Adds metadata, vocabulary and labels to the model file."""
        (signature,) = manifest.signatures.values()
        path, tokens = folder / signature.file, vocabulary(job.model.tokenizer)
        files = {tokens.file: tokens.content}
        mean = manifest.info.task == "feature-extraction"
        output = Tensor("embedding", "Mean of the hidden states of a text." if mean else "Embedding of a text.")
        if PROBABILITIES in signature.outputs:
            output = Tensor("probability", "Probability of each class.", _LABELS)
            files[_LABELS] = "".join(f"{label}\n" for label in manifest.info.labels).encode()
        inputs = [_INPUTS[Kind(signature.inputs[name].kind or Kind.OTHER)] for name in input_order(path)]
        description = f"{manifest.info.name}, recipe {manifest.recipe.get('name')}"
        attach(path, metadata(_TASKS[manifest.info.task], description, inputs, output, tokens), files)
        return (path,)

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        return section(manifest, folder)
