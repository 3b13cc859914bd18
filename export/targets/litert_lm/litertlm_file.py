"""Writing of a `.litertlm` file with Google's package: a header and sections for settings, tokenizer and graphs."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING

from kerasformer.extras import require
from kerasformer.generation import GenerationConfig

if TYPE_CHECKING:
    from google.protobuf.message import Message

NAME = "model.litertlm"
_LIBRARY, _EXTRA = "litert_lm_builder", "litert-lm"
_BACKENDS = {"TEXT_ENCODER": "cpu"}
"""Backends on which a graph may run, by its type: LiteRT-LM refuses to open the file with others."""


def check_installed() -> None:
    """Checks that the package that writes these files is installed.

    Raises:
        MissingExtraError: It is not installed.
    """
    _module("litertlm_builder")


def metadata(
    generation: GenerationConfig,
    *,
    capacity: int,
    vocab_size: int,
    start: int | None,
    ends: Iterable[int],
    chat_template: str | None = None,
) -> Message:
    """Returns the settings of a model as an `LlmMetadata` message.

    Args:
        generation: Generation settings, of which the sampling settings and suppressed tokens are included.
        capacity: Number of slots of the cache.
        vocab_size: Number of logits.
        start: Token to put before every text, if any.
        ends: Tokens that end a text.
        chat_template: Jinja template of conversations, if any.
    """
    message = _module("runtime.proto.llm_metadata_pb2").LlmMetadata(max_num_tokens=capacity)
    message.llm_model_type.generic_model.SetInParent()
    # The builder requires these fields for every model.
    message.supports_thinking = message.supports_function_calling = False
    if start is not None:
        message.start_token.token_ids.ids.append(start)
    for token in ends:
        message.stop_tokens.add().token_ids.ids.append(token)
    message.suppress_tokens.ids.extend(generation.suppress_tokens)
    if chat_template is not None:
        message.jinja_prompt_template = chat_template
    _set_sampler(message.sampler_params, generation, vocab_size)
    return message


def _set_sampler(sampler: Message, generation: GenerationConfig, vocab_size: int) -> None:
    """Sets the sampler; greedy search is top-1 sampling, since LiteRT-LM does not implement the sampler `GREEDY`."""
    sampler.type = sampler.TOP_P
    sampler.k, sampler.p, sampler.temperature = 1, 1.0, 1.0
    if generation.do_sample:
        sampler.k = generation.top_k or vocab_size
        sampler.p, sampler.temperature = generation.top_p, generation.temperature


def embedding_metadata(before: Sequence[int], after: Sequence[int]) -> Message:
    """Returns the settings of a model for embeddings as an `EmbeddingMetadata` message.

    Args:
        before: Tokens to put before every text.
        after: Tokens to put after every text.
    """
    message = _module("runtime.proto.embedding_metadata_pb2").EmbeddingMetadata()
    message.embedding_model_type.generic_model.SetInParent()
    for union, ids in ((message.bos_token, before), (message.eos_token, after)):
        if ids:
            union.token_ids.ids.extend(ids)
    return message


def write(path: Path, message: Message, tokenizer: Path, graphs: Path) -> None:
    """Writes the file of a model that generates; equal sections give equal bytes.

    Args:
        path: The file.
        message: Result of `metadata`.
        tokenizer: Path of a `tokenizer.json`.
        graphs: Path of a TFLite file with the signatures `prefill_*` and `decode`.
    """
    _write(path, "add_llm_metadata", message, tokenizer, {"PREFILL_DECODE": graphs})


def write_embedding_model(path: Path, message: Message, tokenizer: Path, embedder: Path, encoder: Path) -> None:
    """Writes the file of a model for embeddings; equal sections give equal bytes.

    Args:
        path: The file.
        message: Result of `embedding_metadata`.
        tokenizer: Path of a `tokenizer.json`.
        embedder: Path of a TFLite file that converts a token to a vector.
        encoder: Path of a TFLite file with the signatures `encoder_*`.
    """
    _write(path, "add_embedding_metadata", message, tokenizer, {"EMBEDDER": embedder, "TEXT_ENCODER": encoder})


def _write(path: Path, add_metadata: str, message: Message, tokenizer: Path, graphs: dict[str, Path]) -> None:
    """Writes the sections of a file; `graphs` are TFLite files by the names of their types in LiteRT-LM."""
    library = _module("litertlm_builder")
    builder = library.LitertLmFileBuilder()
    builder.add_system_metadata(library.Metadata("Authors", "kerasformer", library.DType.STRING))
    with TemporaryDirectory(prefix="kerasformer-") as folder, path.open("wb") as file:
        settings = Path(folder) / "metadata.pb"
        settings.write_bytes(message.SerializeToString(deterministic=True))
        getattr(builder, add_metadata)(str(settings))
        builder.add_hf_tokenizer(str(tokenizer))
        for kind, graph in graphs.items():
            constraint = {"backend_constraint": _BACKENDS[kind]} if kind in _BACKENDS else {}
            builder.add_tflite_model(str(graph), library.TfLiteModelType[kind], **constraint)
        builder.build(file, validate_metadata=True)
    _name_by_content(path)


def _name_by_content(path: Path) -> None:
    """Replaces the random id and the time in the header by an id that depends on the content, and a fixed time.

    Caches on a device use the id as a key, so different models need different ids.
    """
    core = _module("litertlm_core")
    entries = _system_metadata(path)
    with path.open("r+b") as file:
        file.seek(core.BLOCK_SIZE)
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        file.seek(0)
        header = file.read(core.BLOCK_SIZE)
        precision = "microseconds" if "." in entries["creation_timestamp"] else "seconds"
        for old, new in (
            (entries["uuid"], str(uuid.uuid5(uuid.NAMESPACE_OID, digest))),
            (entries["creation_timestamp"], datetime.fromtimestamp(0, UTC).isoformat(timespec=precision)),
        ):
            header = header.replace(old.encode(), new.encode())
        file.seek(0)
        file.write(header)


def _system_metadata(path: Path) -> dict[str, str]:
    peek = _module("litertlm_peek")
    header = peek.read_litertlm_header(str(path), io.StringIO()).SystemMetadata()
    entries = (peek.kvp_to_dict(header.Entries(index)) for index in range(header.EntriesLength()))
    return {entry["key"]: entry["value"] for entry in entries}


def _module(name: str) -> ModuleType:
    return require(f"{_LIBRARY}.{name}", _EXTRA)
