"""Vocabularies that are trained on the texts of a recipe, in the formats of BERT, GPT-2 and T5."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from kerasformer.arguments import check, one_of
from kerasformer.tokenization import Tokenizer


class _Algorithm(NamedTuple):
    """How a vocabulary is trained: the empty tokenizer, its trainer, the special tokens and where they stand."""

    backend: Callable[[], tokenizers.Tokenizer]
    trainer: Callable[..., trainers.Trainer]
    special: dict[str, str]
    single: str | None = None
    pair: str | None = None
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")


def train_tokenizer(
    texts: Iterable[str], algorithm: str, vocab_size: int, *, max_length: int | None = None
) -> Tokenizer:
    """Trains a vocabulary.

    Args:
        texts: Texts of the language.
        algorithm: `"bpe"` of bytes as in GPT-2, `"unigram"` as in T5, or `"wordpiece"` of lower-case words as in BERT.
        vocab_size: Number of tokens, including the special ones.
        max_length: Maximum length of a text in tokens, saved with the tokenizer.

    Raises:
        InputError: an unknown algorithm.

    Reference: Sennrich et al. 2015, arXiv:1508.07909; Kudo 2018, arXiv:1804.10959; Schuster and Nakajima 2012.
    """
    chosen = _ALGORITHMS[check("algorithm", algorithm, one_of(*_ALGORITHMS))]
    backend, special = chosen.backend(), list(dict.fromkeys(chosen.special.values()))
    trainer = chosen.trainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    if chosen.single is not None:
        ids = [(token, backend.token_to_id(token)) for token in special]
        templates = {"single": chosen.single, "pair": chosen.pair}
        backend.post_processor = processors.TemplateProcessing(**templates, special_tokens=ids)
    return Tokenizer(backend, special_tokens=chosen.special, model_inputs=chosen.inputs, model_max_length=max_length)


def _byte_level_bpe() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def _bpe_trainer(**options: Any) -> trainers.Trainer:
    return trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)


def _unigram() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    # Separates punctuation from words, so that a word is the same token before a full stop.
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    backend.decoder = decoders.Metaspace()
    return backend


def _unigram_trainer(**options: Any) -> trainers.Trainer:
    printable = [chr(code) for code in range(33, 127)]
    return trainers.UnigramTrainer(unk_token="<unk>", initial_alphabet=printable, **options)


def _wordpiece() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


_END = "<|endoftext|>"
_ALGORITHMS = {
    "bpe": _Algorithm(
        _byte_level_bpe,
        _bpe_trainer,
        {name: _END for name in ("bos_token", "eos_token", "unk_token", "pad_token")},
    ),
    "unigram": _Algorithm(
        _unigram,
        _unigram_trainer,
        {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
        "$A </s>",
        "$A </s> $B </s>",
    ),
    "wordpiece": _Algorithm(
        _wordpiece,
        trainers.WordPieceTrainer,
        {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
        "[CLS] $A [SEP]",
        "[CLS] $A [SEP] $B:1 [SEP]:1",
        ("input_ids", "token_type_ids", "attention_mask"),
    ),
}
