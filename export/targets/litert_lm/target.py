"""LiteRT-LM: decoders on Android, iOS, desktops, in one file with their tokenizer and the tokens that end a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import DECODE, Role
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import ExportError, argument
from kerasformer.export.graph.functions import Function
from kerasformer.export.options import ExportJob
from kerasformer.export.targets.base import Target, refuse_signatures
from kerasformer.export.targets.litert_lm import card as litertlm_card
from kerasformer.export.targets.litert_lm import litertlm_file
from kerasformer.tokenization import Tokenizer

_GRAPHS = "model.tflite"


class LitertLm(Target):
    """LiteRT-LM, which takes one `.litertlm` file: graphs, tokenizer, and the tokens that begin and end a text.

    It calls `prefill_*` and `decode` alone: a bundle for it has no other signatures, which would cost a phone memory.
    `model.tflite` stays beside `model.litertlm`, which holds the same bytes: LiteRT in Python maps whole files into
    memory, not parts of them, and it is the file that was verified.
    """

    name = "litert-lm"
    summary = "LiteRT-LM: decoders on Android, iOS, desktops"
    needs = {"format": "tflite"}

    def check(self, job: ExportJob, quantize: str) -> None:
        """Refuses what LiteRT-LM cannot run, and what it would run otherwise than this package.

        Raises:
            ExportError: a model that is no decoder, a tokenizer or an end that LiteRT-LM lacks, or a cache of which
                prompts could not use the last positions.
            MissingExtraError: the package that writes its files is not installed.
        """
        litertlm_file.check_installed()
        _check_model(job)
        if not job.info.eos_token_id:
            raise ExportError(
                "LiteRT-LM starts no session without a token that ends a text. Received: a model without eos_token_id. "
                "Set it in the model's configuration"
            )
        _begin_token(job)
        _check_capacity(job)
        refuse_signatures(self.name, job, "cache_lengths", "rows", "verify_lengths")

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """The signatures that LiteRT-LM calls."""
        return [each for each in functions if each.signature().role == Role.PREFILL or each.name == DECODE]

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Writes `model.litertlm`."""
        path = folder / litertlm_file.NAME
        metadata = litertlm_file.metadata(
            GenerationConfig.from_dict(job.info.generation),
            capacity=job.capacity or 0,
            vocab_size=job.info.vocab_size,
            begin=_begin_token(job),
            end=job.info.eos_token_id,
        )
        litertlm_file.write(path, metadata, folder / "tokenizer.json", folder / _GRAPHS)
        return (path,)

    def card(self, manifest: Manifest, folder: Path) -> str:
        """How LiteRT-LM is given the file, and which settings the caller has to give."""
        return litertlm_card.section(manifest)


def _check_model(job: ExportJob) -> None:
    if not job.model.generates:
        raise ExportError(
            f"LiteRT-LM generates text. Received: a model for {job.info.task}. Take {argument('target', 'mediapipe')} "
            f"for classifiers "
            "and embeddings, or no target"
        )
    if job.info.is_encoder_decoder:
        raise ExportError(
            f"LiteRT-LM has no encoder: it runs decoders. Received: {job.info.model_type}, an encoder-decoder. Export "
            "without a target, and run it with LiteRT"
        )
    if job.model.tokenizer is None:
        raise ExportError(
            "LiteRT-LM reads texts, so that its file has a tokenizer. Received: a model without one. "
            "Set model.tokenizer = kerasformer.tokenizer(folder)"
        )


def _begin_token(job: ExportJob) -> int | None:
    """The token that the tokenizer puts before a text, if it does; LiteRT-LM does not follow `tokenizer.json` there.

    Raises:
        ExportError: the tokenizer adds more than that.
    """
    added = _added(job.model.tokenizer)
    if added is None or len(added) > 1:
        raise ExportError(
            "LiteRT-LM puts one token before a text, and none after it. Received: a tokenizer that makes "
            f"{job.model.tokenizer.encode('a')} of 'a', which alone is "
            f"{job.model.tokenizer.encode('a', add_special_tokens=False)}"
        )
    return added[0] if added else None


def _added(tokenizer: Tokenizer) -> list[int] | None:
    """Ids that the tokenizer puts before a text; `None` if it puts some behind."""
    bare, whole = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    count = len(whole) - len(bare)
    return whole[:count] if whole[count:] == bare else None


def _check_capacity(job: ExportJob) -> None:
    """A prompt is read in prefills, of which the last may be wider than what is left, but not than the cache."""
    step, capacity = min(job.signatures.sizes["prefill_lengths"]), job.capacity or 0
    if capacity < step or capacity % step:
        raise ExportError(
            f"LiteRT-LM reads prompts in pieces of {step} and more tokens, and refuses those whose last piece does not "
            f"fit. Expected: a capacity that is a multiple of {step}, such as {max(step, capacity // step * step)}. "
            f"Received: {argument('capacity', job.capacity)}"
        )
