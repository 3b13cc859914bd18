"""Files for Hugging Face's libraries: configuration, generation settings, tokenizer and modules.

Settings that transformers defaults in Python but not in JavaScript are written explicitly, so that one folder works in
both.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import models, normalizers

from kerasformer.bundle.info import EmbeddingInfo
from kerasformer.export.job import ExportJob
from kerasformer.files.publishing import write_json
from kerasformer.files.reading import JsonMapping, JsonObject, read_json
from kerasformer.tokenization import Tokenizer, hard_texts

_MODULE = "kerasformer.tools.integrations.sentence_transformers.KerasformerModule"


def write_tokenizer(job: ExportJob, folder: Path) -> None:
    """Writes the tokenizer's files and test texts with their ids, if the model has a tokenizer."""
    tokenizer = job.model.tokenizer
    if tokenizer is None:
        return
    tokenizer.for_bundles().save(folder)
    path = folder / "tokenizer_config.json"
    settings = read_json(path)
    if "token_type_ids" in job.model.input_names:
        settings |= _segment_settings(tokenizer)
    if job.model.generates and _prepends_bos(tokenizer):
        # Without this setting, transformers.js adds no special tokens to a prompt.
        settings["add_bos_token"] = True
    write_json(path, settings)
    hard_texts.write(tokenizer, folder)


def write_config(job: ExportJob, folder: Path, extra_entries: JsonMapping) -> None:
    """Writes `config.json`, and `generation_config.json` for a model that generates.

    Args:
        job: The model and its export options.
        folder: Folder of the bundle.
        extra_entries: Additional entries of `config.json`; see `Format.config_entries`.
    """
    model = job.model
    config = {
        "architectures": [model.architecture],
        "is_encoder_decoder": model.is_encoder_decoder,
        **model.config.to_hf(),
        **extra_entries,
    }
    if prefix := _prefix(job):
        specific = config.get("task_specific_params") or {}
        known = specific.get(job.info.task, {})
        config["task_specific_params"] = {**specific, job.info.task: {**known, "prefix": prefix}}
    write_json(folder / "config.json", config)
    if model.generates:
        settings, ends = dict(job.info.generation), end_tokens(job)
        if ends != job.info.eos_token_id:
            settings["eos_token_id"] = list(ends)
        write_json(folder / "generation_config.json", settings)


def write_modules(embedding: EmbeddingInfo, folder: Path) -> None:
    """Writes the files with which sentence-transformers opens a bundle, and every library that takes its models."""
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": _MODULE}])
    settings = {
        "model_type": "SentenceTransformer",
        "prompts": dict(embedding.prompts),
        "default_prompt_name": embedding.default_prompt,
        "similarity_fn_name": embedding.similarity,
    }
    write_json(folder / "config_sentence_transformers.json", settings)


def end_tokens(job: ExportJob) -> tuple[int, ...]:
    """Returns the tokens that end a text, including the one that the chat template puts after an answer."""
    tokenizer, ends = job.model.tokenizer, job.info.eos_token_id
    turn_end = None if tokenizer is None else tokenizer.turn_end_token_id()
    return ends if turn_end is None or turn_end in ends else (*ends, turn_end)


def _segment_settings(tokenizer: Tokenizer) -> JsonObject:
    """Returns the settings with which transformers.js sets `token_type_ids`; empty if no class fits the tokenizer.

    Only a few tokenizer classes of transformers.js set `token_type_ids`; all others give 0 for both texts, and the
    model answers wrongly. The Python library creates these classes from `tokenizer.json` with the same settings.
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


def sets_token_types(tokenizer: Tokenizer) -> bool:
    """Returns whether transformers.js gives the second text of a pair different `token_type_ids` from the first."""
    return bool(_segment_settings(tokenizer))


def _prepends_bos(tokenizer: Tokenizer) -> bool:
    """Returns whether the tokenizer puts its beginning-of-sequence token before a text."""
    first = tokenizer.encode("a")[:1]
    return bool(first) and first[0] == tokenizer.bos_token_id


def _prefix(job: ExportJob) -> str:
    """Returns the task prefix if the checkpoint has it only for all tasks, or a variant: `translation_en_to_de`.

    transformers.js reads that of the task alone.
    """
    return "" if job.info.task in job.info.task_prefixes else job.info.prefix
