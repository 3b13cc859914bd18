"""Base class of the targets: what a third-party runtime requires of a bundle beyond the plain format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.bundle.export_options import FORMATS, INT8_CACHES, ExportOptions
from kerasformer.errors import ExportError, InputError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.formats.tflite.signatures import ENCODER_LENGTHS
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.tokenization.loading import TARGET_FILE

TOKENIZED = ("input_ids", "attention_mask", "token_type_ids")
"""Arrays that the tokenizers of Hugging Face return."""

TELEMETRY = """\
Set `ORT_DISABLE_TELEMETRY=1` in the environment: from 1.29 on, ONNX Runtime sends usage data to Microsoft otherwise."""
"""Remark on cards whose programs start ONNX Runtime without this package."""


class Target:
    """A runtime that loads bundles: the base class of all targets, and itself a target without requirements.

    `export` calls the methods in the order in which they are defined here.

    Attributes:
        name: Name for `export(target=…)`.
        summary: Description for `kerasformer export --list-targets`.
        format: Format that it loads; `None` for all.
        attention: Attention features that it supports.
        inputs: Input arrays that it passes to an encoder; `None` if an app passes them.
        reads_tokenizer: Whether it, or the program on the model card, reads `tokenizer.json`.
        splits_special_tokens: Whether it reads names of special tokens in a text as text, if the tokenizer does.
        tokenizes: Whether it takes texts, so that an app handles no token ids.
        lengths: Default lengths for which an encoder is compiled; those beyond the model's limit are dropped.
        rolling_caches: Layers with a sliding window may have caches shorter than the text (`TensorInfo.margin`).
        app_files: Files beside the model that an app needs, of those that the bundle has.
        further_outputs: Whether bundles may have signatures that only this package and its page call.
        model_folder: Folder of the bundle for the model files, if the runtime expects another than the format's.
    """

    name: str = ""
    summary: str = "this package, LiteRT, ONNX Runtime"
    format: str | None = None
    attention: AttentionSupport = AttentionSupport()
    inputs: Sequence[str] | None = None
    reads_tokenizer: bool = False
    splits_special_tokens: bool = False
    tokenizes: bool = False
    lengths: Sequence[int] = ENCODER_LENGTHS
    rolling_caches: bool = True
    app_files: Sequence[str] = ("tokenizer.json", TARGET_FILE)
    further_outputs: bool = False
    model_folder: str | None = None

    def check_options(self, options: ExportOptions, format: str | None) -> str | None:
        """Refuses options that this runtime does not support, and returns the format that it requires.

        Args:
            options: The caller's options, checked.
            format: The caller's format, if any.

        Raises:
            ExportError: The caller passed another format.
            InputError: The caller requested what only this package passes to a model: adapters, or caches of int8.
        """
        if self.name and "lora_rank" in options:
            raise InputError(
                f"target={self.name!r} passes no adapters to a model. Received: lora_rank={options['lora_rank']}. "
                "Merge the adapter before the export: model.load_adapter(…), model.merge_adapter()"
            )
        if self.name and options.get("cache_dtype") == INT8_CACHES:
            raise InputError(
                f"target={self.name!r} passes caches of float32 to a model. Received: cache_dtype={INT8_CACHES!r}. "
                "Remove cache_dtype, or target for a bundle that this package runs"
            )
        if self.name not in ("", *FORMATS) and "outputs" in options and not self.further_outputs:
            raise InputError(
                f"target={self.name!r} calls no signature for further outputs. Received: outputs={options['outputs']}. "
                "Remove outputs, or target for a bundle that this package runs"
            )
        if self.format not in (None, format or self.format):
            raise ExportError(
                f"target={self.name!r} requires format={self.format!r}. Received: format={format!r}. Remove format"
            )
        return self.format or format

    def check_interface(self, job: ExportJob) -> None:
        """Refuses inputs that this runtime does not pass, and tokenizers that it cannot read.

        Raises:
            ExportError: The model has another input, such as the language of each token, no `tokenizer.json`, one of
                another vocabulary for the texts that it writes, or one that reads names of special tokens as text.
        """
        tokenizer, plain = job.model.tokenizer, "Remove target: the plain bundle has no such limit"
        if self.reads_tokenizer and tokenizer is not None and not tokenizer.portable:
            raise ExportError(
                f"target={self.name!r} reads tokenizer.json, which cannot contain the rules of this "
                f"tokenizer. Received: {type(tokenizer).__name__}. {plain}"
            )
        reads = self.reads_tokenizer or self.inputs is not None
        if reads and tokenizer is not None and tokenizer.writer.get_vocab() != tokenizer.get_vocab():
            raise ExportError(
                f"target={self.name!r} reads and writes texts with one vocabulary. Received: "
                f"{job.info.name} with separate vocabularies of {tokenizer.vocab_size} and "
                f"{tokenizer.writer.vocab_size} tokens. {plain}"
            )
        if reads and tokenizer is not None and tokenizer.split_special_tokens and not self.splits_special_tokens:
            raise ExportError(
                f"target={self.name!r} reads names of special tokens in a text as these tokens. Received: a tokenizer "
                f"with split_special_tokens=True, which reads them as text. {plain}"
            )
        further = [name for name in job.model.input_names if self.inputs is not None and name not in self.inputs]
        if further and not job.model.is_encoder_decoder:
            raise ExportError(
                f"target={self.name!r} passes only {', '.join(self.inputs or ())} to a model. Received: "
                f"{job.info.name}, which also has {', '.join(further)}. {plain}"
            )

    def check(self, job: ExportJob) -> None:
        """Refuses what this runtime does not support, before anything is written.

        Args:
            job: The model, with its task and tokenizer, and its export options.

        Raises:
            ExportError: The runtime does not support the model; the message has the reason and what to do instead.
        """

    def check_name(self, name: str) -> None:
        """Checks the name of the destination folder.

        Raises:
            ExportError: This runtime does not load a folder with that name.
        """

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Selects and adapts the format's functions for this runtime."""
        return functions

    def place(self, manifest: Manifest, folder: Path) -> Manifest:
        """Moves the model files into `model_folder`, if there is one; returns the manifest with their paths."""
        if self.model_folder is None:
            return manifest
        files = {name: Path(signature.file) for name, signature in manifest.signatures.items()}
        for parent in {path.parent for path in files.values()}:
            (folder / parent).rename(folder / self.model_folder)
        signatures = {
            name: replace(signature, file=f"{self.model_folder}/{files[name].name}")
            for name, signature in manifest.signatures.items()
        }
        return replace(manifest, signatures=signatures)

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Adds files for this runtime to the folder, which already contains the verified model files.

        Returns:
            The files that were added or changed.
        """
        return ()

    def shipped(self, manifest: Manifest, folder: Path, added: Sequence[Path]) -> list[str]:
        """Returns the files that an app needs, relative to the folder: by default models, weights and `app_files`.

        Args:
            manifest: Manifest of the bundle.
            folder: Folder with all files of the bundle except the manifest and the card.
            added: Files that `finish` added or changed.
        """
        models = sorted({signature.file for signature in manifest.signatures.values()})
        weights = sorted([*folder.rglob("*.onnx_data*"), *folder.glob("variables/*")])
        others = [folder / name for name in self.app_files if (folder / name).is_file()]
        paths = (path.relative_to(folder).as_posix() for path in (*weights, *added, *others))
        return list(dict.fromkeys([*models, *paths]))

    def card(self, manifest: Manifest, folder: Path) -> str:
        """Returns a section of the model card: how to run the bundle with this runtime.

        Args:
            manifest: Manifest of the bundle.
            folder: Folder with all files of the bundle except the manifest and the card.
        """
        return ""


def refuse_signatures(target: str, job: ExportJob, *names: str) -> None:
    """Refuses signatures that the caller requested and that a runtime never calls.

    Args:
        target: Name of the target.
        job: Export options with the signatures.
        names: Options that the runtime ignores, of those in `DecoderSignatures`.

    Raises:
        ExportError: One of these fields has a value.
    """
    for name in names:
        if value := getattr(job.signatures, name):
            raise ExportError(
                f"target={target!r} does not call these signatures, so its bundles contain none. Received: "
                f"{name}={list(value)}. Remove {name}"
            )
