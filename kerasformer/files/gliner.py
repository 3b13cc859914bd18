"""Folders of GLiNER: an encoder with a head that finds entities whose types are named in the call.

`gliner_config.json` has the settings of the head and, unless the encoder is only named, its configuration. Such a
folder is read as if it were a checkpoint of the encoder, whose files `GlinerCheckpoint` states.

Reference: Zaratiana et al. 2023, arXiv:2311.08526, and the package `gliner`.
Called by `readers`.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from kerasformer.errors import CheckpointError, SourceError, UnsupportedConfigError
from kerasformer.files.publishing import MANIFEST
from kerasformer.files.reading import JsonObject, read_bytes, read_json
from kerasformer.files.sources import HUB_ID, inside, resolve
from kerasformer.files.tensors import RenamedTensors, TensorFile, open_tensors

CONFIG = "gliner_config.json"
"""Name of the file with the settings, which other folders lack."""
ENCODER = "token_rep_layer.bert_layer.model."
"""Prefix of the tensors of the encoder."""
LABEL_TOKEN, SEPARATOR = "<<ENT>>", "<<SEP>>"
"""Default tokens before each label, and between the labels and the text."""
_FIRST = "[FLERT]"
"""Token that the reference adds before both, and does not use."""
_ENCODER_TYPE = "deberta-v2"
"""Architecture of an encoder whose configuration has none."""
_TOKENIZER_FILES = """tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.txt
    vocab.json merges.txt spm.model spiece.model sentencepiece.bpe.model""".split()
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model")
_TABLES = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")
_NONE = (None, False, "")
REQUIRED: dict[str, tuple[object, ...]] = {
    "model_type": (None, "gliner", "gliner_uni_encoder", "gliner_uni_encoder_span"),
    "span_mode": ("markerV0",),
    "subtoken_pooling": ("first",),
    "words_splitter_type": ("whitespace",),
    **dict.fromkeys(
        """labels_encoder labels_encoder_config labels_decoder labels_decoder_config relations_layer triples_layer
        post_fusion_schema fuse_layers represent_spans precomputed_prompts_mode span_encoder_config""".split(),
        _NONE,
    ),
}
"""Supported values of settings; others belong to models that are not implemented: of tokens instead of spans, with an
encoder of their own for the labels, with a decoder, or with relations."""


def is_gliner(folder: Path) -> bool:
    """Whether a folder has a model of GLiNER."""
    return (folder / CONFIG).is_file() and not (folder / MANIFEST).exists()


class GlinerCheckpoint:
    """A folder of GLiNER as a `readers.ForeignCheckpoint`.

    Args:
        folder: Folder for which `is_gliner` is true.

    Raises:
        UnsupportedConfigError: a setting is not implemented.
        SourceError: the settings cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._config = folder, read_json(inside(folder, CONFIG))
        for key, supported in REQUIRED.items():
            if (value := self._config.get(key, supported[0])) not in supported:
                expected = " or ".join(repr(each) for each in supported if each is not None)
                raise UnsupportedConfigError(
                    f"{CONFIG} supports only {key}={expected}. Received: {key}={value!r:.200} in {folder}"
                )

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer, or an encoder is named, which is not downloaded for this."""
        return _has_vocabulary(self._folder) or self._base_name is not None

    def files(self) -> JsonObject:
        """Returns the configuration of the encoder, and the settings of the head.

        Raises:
            CheckpointError: there is no table of tokens.
        """
        return {"config.json": self._encoder_config, CONFIG: self._config}

    def tokenizer_files(self) -> JsonObject:
        """Returns the tokenizer with the tokens that mark labels, which the reference adds when it loads a model."""
        folder = self._folder if _has_vocabulary(self._folder) else self._base
        files = {name: read_bytes(inside(folder, name)) for name in _TOKENIZER_FILES if (folder / name).is_file()}
        marks = [str(self._config.get(*each)) for each in (("ent_token", LABEL_TOKEN), ("sep_token", SEPARATOR))]
        settings = read_json(inside(folder, name)) if (folder / (name := "tokenizer_config.json")).is_file() else {}
        if not any(marks[0].encode() in content for content in files.values()):
            named = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
            settings["additional_special_tokens"] = [*named, _FIRST, *marks]
        return {**files, name: settings, "config.json": {"model_type": self._encoder_type}}

    def tensors(self) -> TensorFile:
        """Returns the tensors, those of the encoder under the names that they have in its own checkpoints."""
        return RenamedTensors(self._file, {name.removeprefix(ENCODER): name for name in self._file})

    def facts(self) -> JsonObject:
        """Returns nothing: licence and origin are in the card of the folder."""
        return {}

    @cached_property
    def _file(self) -> TensorFile:
        return open_tensors(self._folder)

    @cached_property
    def _base(self) -> Path:
        """Folder of the pretrained encoder, which early versions only name.

        Raises:
            SourceError: the name is a path, since only a preset or a hub id may be loaded because a file names it; or
                it does not exist.
        """
        if self._base_name is None:
            raise SourceError(
                f"{CONFIG} must name its encoder, a preset or a hub id, or have encoder_config and a tokenizer beside "
                f"it. Received: model_name={self._config.get('model_name')!r:.200} in {self._folder}"
            )
        return resolve(self._base_name)

    @property
    def _base_name(self) -> str | None:
        name = self._config.get("model_name")
        return name if isinstance(name, str) and re.fullmatch(HUB_ID, name) else None

    @cached_property
    def _encoder_config(self) -> JsonObject:
        config = self._config.get("encoder_config")
        if not isinstance(config, dict):
            config = read_json(inside(self._base, "config.json"))
        table = next((name for name in _TABLES if ENCODER + name in self._file), None)
        if table is None:
            raise CheckpointError(
                f"{self._file} must have a table of tokens, {' or '.join(ENCODER + name for name in _TABLES)}. "
                f"Received: {', '.join(list(self._file)[:5]) or 'no tensor'}"
            )
        # The reference makes the table larger for its own tokens, and early versions do not write its new size.
        size = self._file.shape(ENCODER + table)[0]
        unused = {"architectures", "id2label", "label2id"}
        config = {key: value for key, value in config.items() if key not in unused}
        return {"model_type": _ENCODER_TYPE, **config, "vocab_size": size}

    @property
    def _encoder_type(self) -> str:
        return str(self._encoder_config["model_type"])


def _has_vocabulary(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _VOCABULARIES)
