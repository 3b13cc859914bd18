"""Target LiteRT-LM: decoders, and encoders for embeddings, in one file with their tokenizer and settings.

Its engine for generation runs decoders, its embedding engine any model for sentence-similarity.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import DECODE, Role
from kerasformer.errors import ExportError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.graph.functions import Function
from kerasformer.export.hugging_face_files import end_tokens
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import TOKENIZED, Target, refuse_signatures
from kerasformer.export.targets.litert_lm import card as litertlm_card
from kerasformer.export.targets.litert_lm import embedding_card, embedding_model, litertlm_file
from kerasformer.export.targets.litert_lm.chat_template import chat_template
from kerasformer.generation import GenerationConfig
from kerasformer.tokenization import Tokenizer

_GRAPHS = "model.tflite"


class LitertLm(Target):
    """LiteRT-LM, which loads a `.litertlm` file with graphs, tokenizer, and the tokens that start and end a text.

    Of a decoder, it calls only `prefill_*` and `decode`; a bundle for it has no other signatures, which would cost
    memory on a phone. All caches have full length, also those of layers with a sliding window: it derives the length of
    the longest text from a cache.
    `model.tflite` stays in the bundle although `model.litertlm` contains the same bytes: it is the file that was
    verified, and LiteRT in Python can map only whole files into memory.
    An encoder for embeddings reads vectors instead of tokens; see `text_encoder`.
    """

    name = "litert-lm"
    summary = "LiteRT-LM: decoders, and encoders for embeddings, on Android, iOS and desktops"
    format = "tflite"
    inputs = TOKENIZED
    reads_tokenizer = True
    rolling_caches = False
    attention = AttentionSupport(states=False)

    def check(self, job: ExportJob) -> None:
        """Refuses models that LiteRT-LM cannot run, or would run differently from this package.

        Raises:
            ExportError: The model neither is a decoder nor computes embeddings, its tokenizer or end token is missing
                or unsupported, or prompts could not fill the capacity.
            MissingExtraError: The package that writes its files is not installed.
        """
        litertlm_file.check_installed()
        _check_model(job)
        if job.info.task == embedding_model.TASK:
            embedding_model.check(job)
            return
        if not job.info.eos_token_id:
            raise ExportError(
                "LiteRT-LM needs a token that ends a text. Received: a model without eos_token_id. Set it in the "
                "model's configuration"
            )
        _start_token(job)
        chat_template(job.model.tokenizer)
        _check_capacity(job)
        refuse_signatures(self.name, job, "cache_lengths", "batch_sizes", "verify_lengths")

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """The signatures that LiteRT-LM calls, or those that its text encoder is made from."""
        if job.info.task == embedding_model.TASK:
            return functions
        return [item for item in functions if item.signature().role == Role.PREFILL or item.name == DECODE]

    def shipped(self, manifest: Manifest, folder: Path, added: Sequence[Path]) -> list[str]:
        """Returns the only file that an app needs."""
        return [litertlm_file.NAME]

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Writes `model.litertlm`."""
        path, tokenizer, graphs = folder / litertlm_file.NAME, folder / "tokenizer.json", folder / _GRAPHS
        if job.info.task == embedding_model.TASK:
            embedding_model.write(job, graphs, tokenizer, path)
            return (path,)
        metadata = litertlm_file.metadata(
            GenerationConfig.from_dict(job.info.generation),
            capacity=job.capacity or 0,
            vocab_size=job.info.vocab_size,
            start=_start_token(job),
            ends=end_tokens(job),
            chat_template=chat_template(job.model.tokenizer),
        )
        litertlm_file.write(path, metadata, tokenizer, graphs)
        return (path,)

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        return (embedding_card if manifest.info.task == embedding_model.TASK else litertlm_card).section(manifest)


def _check_model(job: ExportJob) -> None:
    if not job.model.generates and job.info.task != embedding_model.TASK:
        raise ExportError(
            "LiteRT-LM only generates texts and computes embeddings (sentence-similarity). Received: a model for "
            f"{job.info.task}. Export an encoder for embeddings with task={embedding_model.TASK!r}. Use "
            "target='mediapipe' for classifiers, or no target"
        )
    if job.info.is_encoder_decoder:
        raise ExportError(
            f"LiteRT-LM runs only decoders, and encoders for embeddings. Received: {job.info.model_type}, an "
            "encoder-decoder. Export without a target and run the bundle with LiteRT"
        )
    if job.model.tokenizer is None:
        raise ExportError(
            "LiteRT-LM needs a tokenizer, since its file contains it. Received: model.tokenizer=None. "
            "Set model.tokenizer = kerasformer.Tokenizer.load(folder)"
        )


def _start_token(job: ExportJob) -> int | None:
    """Returns the token that the tokenizer puts before a text, if any; LiteRT-LM ignores it in `tokenizer.json`.

    Raises:
        ExportError: The tokenizer adds any other token.
    """
    added = _leading_tokens(job.model.tokenizer)
    if added is None or len(added) > 1:
        raise ExportError(
            "LiteRT-LM can add only a single token, before a text. Received: a tokenizer that encodes 'a' as "
            f"{job.model.tokenizer.encode('a')} with special tokens, and as "
            f"{job.model.tokenizer.encode('a', add_special_tokens=False)} without"
        )
    return added[0] if added else None


def _leading_tokens(tokenizer: Tokenizer) -> list[int] | None:
    """Returns the ids that the tokenizer adds before a text, or `None` if it adds any after it."""
    bare, whole = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    count = len(whole) - len(bare)
    return whole[:count] if whole[count:] == bare else None


def _check_capacity(job: ExportJob) -> None:
    """Checks that prompts can fill the capacity: LiteRT-LM reads them in prefills, the last of them padded."""
    step, capacity = min(job.signatures.sizes["prefill_lengths"]), job.capacity or 0
    if capacity < step or capacity % step:
        raise ExportError(
            f"LiteRT-LM reads prompts in chunks of at least {step} tokens and rejects a prompt whose last chunk "
            f"exceeds the capacity. Expected: a capacity that is a multiple of {step}, such as "
            f"{max(step, capacity // step * step)}. Received: capacity={job.capacity!r}"
        )
