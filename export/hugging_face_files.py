"""The files beside a model as Hugging Face's libraries read them: configuration, generation settings, tokenizer.

What these libraries take for granted in Python but not in JavaScript is written out, so that one folder serves both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import models, normalizers

from kerasformer.export.options import ExportJob
from kerasformer.files import read_json
from kerasformer.tokenization import Tokenizer, hard_texts


def write_tokenizer(job: ExportJob, folder: Path) -> None:
    """Writes the tokenizer's files, and texts with their ids, if the model has a tokenizer."""
    tokenizer = job.model.tokenizer
    if tokenizer is None:
        return
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    settings = read_json(path)
    if "token_type_ids" in job.model.input_names:
        settings |= _pair_class(tokenizer)
    if job.model.generates and _begins(tokenizer):
        # transformers.js surrounds a prompt by special tokens only if told so.
        settings["add_bos_token"] = True
    _write(path, settings)
    hard_texts.write(tokenizer, folder)


def write_config(job: ExportJob, folder: Path, found_by: Mapping[str, Any]) -> None:
    """Writes `config.json`, and `generation_config.json` for a model that generates.

    Args:
        job: With the model.
        folder: Of the bundle.
        found_by: Keys by which runtimes find the model files; see `Format.found_by`.
    """
    model = job.model
    config = {
        "architectures": [model.architecture],
        "is_encoder_decoder": model.is_encoder_decoder,
        **model.config.to_hf(),
        **found_by,
    }
    if prefix := _prefix(job):
        config["task_specific_params"] = {**config["task_specific_params"], job.info.task: {"prefix": prefix}}
    _write(folder / "config.json", config)
    if model.generates:
        _write(folder / "generation_config.json", job.info.generation)


def _pair_class(tokenizer: Tokenizer) -> dict[str, Any]:
    """The settings by which transformers.js tells two texts apart, where a tokenizer has such.

    It makes `token_type_ids` in a few classes of tokenizers alone; others give 0 for both texts, and the model answers
    wrongly. transformers for Python builds these classes anew from `tokenizer.json`, as their settings say.
    """
    backend, normalizer = tokenizer.backend, tokenizer.backend.normalizer
    if isinstance(backend.model, models.WordPiece) and isinstance(normalizer, normalizers.BertNormalizer):
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": normalizer.lowercase,
            "strip_accents": normalizer.strip_accents,
            "tokenize_chinese_chars": normalizer.handle_chinese_chars,
        }
    if isinstance(backend.model, models.Unigram) and normalizer is not None:
        return {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": normalizer.normalize_str("A") == "a",
            "keep_accents": normalizer.normalize_str("é") == "é",
        }
    return {}


def tells_pairs_apart(tokenizer: Tokenizer) -> bool:
    """transformers.js gives the second of two texts other `token_type_ids` than the first."""
    return bool(_pair_class(tokenizer))


def _begins(tokenizer: Tokenizer) -> bool:
    """A text gets the token of the beginning put before it."""
    first = tokenizer.encode("a")[:1]
    return bool(first) and first[0] == tokenizer.bos_token_id


def _prefix(job: ExportJob) -> str:
    """What is put before a text, if the checkpoint names it for a kind of the task alone: `translation_en_to_de`."""
    return "" if job.info.task in job.info.task_prefixes else job.info.prefix


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
