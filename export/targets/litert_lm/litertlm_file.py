"""A `.litertlm` file, written with Google's own package: settings, tokenizer and graphs as sections behind a header."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from kerasformer.decoding import GenerationConfig
from kerasformer.errors import require

NAME = "model.litertlm"
_LIBRARY, _EXTRA = "litert_lm_builder", "litert-lm"


def check_installed() -> None:
    """Asks for the package that writes such files.

    Raises:
        MissingExtraError: it is not installed.
    """
    _module("litertlm_builder")


def metadata(
    generation: GenerationConfig, *, capacity: int, vocab_size: int, begin: int | None, end: Iterable[int]
) -> Any:
    """What LiteRT-LM knows of a model besides its graphs: an `LlmMetadata` message.

    Args:
        generation: Of its settings, those of sampling and the tokens that are never written are kept.
        capacity: Positions of the cache.
        vocab_size: Rows of the logits.
        begin: Token before every text.
        end: Tokens of which each ends a text.
    """
    message = _module("runtime.proto.llm_metadata_pb2").LlmMetadata(max_num_tokens=capacity)
    message.llm_model_type.generic_model.SetInParent()
    # The builder asks of every model whether it thinks and calls functions.
    message.supports_thinking = message.supports_function_calling = False
    if begin is not None:
        message.start_token.token_ids.ids.append(begin)
    for token in end:
        message.stop_tokens.add().token_ids.ids.append(token)
    message.suppress_tokens.ids.extend(generation.suppress_tokens)
    _set_sampler(message.sampler_params, generation, vocab_size)
    return message


def _set_sampler(sampler: Any, generation: GenerationConfig, vocab_size: int) -> None:
    """Greedy is the best of one: LiteRT-LM has no sampler of the type that its schema calls `GREEDY`."""
    sampler.type = sampler.TOP_P
    sampler.k, sampler.p, sampler.temperature = 1, 1.0, 1.0
    if generation.do_sample:
        sampler.k = generation.top_k or vocab_size
        sampler.p, sampler.temperature = generation.top_p, generation.temperature


def write(path: Path, message: Any, tokenizer: Path, graphs: Path) -> None:
    """Writes the file; the same sections give the same bytes.

    Args:
        path: The file.
        message: What `metadata` made.
        tokenizer: A `tokenizer.json`.
        graphs: A TFLite file with the signatures `prefill_*` and `decode`.
    """
    library = _module("litertlm_builder")
    builder = library.LitertLmFileBuilder()
    builder.add_system_metadata(library.Metadata("Authors", "kerasformer", library.DType.STRING))
    with TemporaryDirectory(prefix="kerasformer-") as folder, path.open("wb") as file:
        settings = Path(folder) / "llm_metadata.pb"
        settings.write_bytes(message.SerializeToString(deterministic=True))
        builder.add_llm_metadata(str(settings))
        builder.add_hf_tokenizer(str(tokenizer))
        builder.add_tflite_model(str(graphs), library.TfLiteModelType.PREFILL_DECODE)
        builder.build(file, validate_metadata=True)
    _name_by_content(path)


def _name_by_content(path: Path) -> None:
    """Puts what the sections decide, and no date, in place of the random name and the time in the header.

    Caches on a device go by the name, so that another model needs another one.
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
    found = peek.read_litertlm_header(str(path), io.StringIO()).SystemMetadata()
    entries = (peek.kvp_to_dict(found.Entries(index)) for index in range(found.EntriesLength()))
    return {entry["key"]: entry["value"] for entry in entries}


def _module(name: str) -> ModuleType:
    return require(f"{_LIBRARY}.{name}", _EXTRA)
